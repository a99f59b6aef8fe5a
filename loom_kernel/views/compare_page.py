"""A comparison of two runs as text, as a page fragment and as a picture. Everything that people wrote is escaped."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping
from html import escape

from loom_kernel.views import words
from loom_kernel.views.compare import TIMES, Change, Comparison, Line, Pair
from loom_kernel.views.drawing import TEXT_X, Drawing, draw, fit, note_room
from loom_kernel.views.graph import Box
from loom_kernel.views.layout import Place
from loom_kernel.views.svg import _DIM, _EDGE, _FONT, _INK, _LINE, _PAPER, _text

SIGNS = {"same": "=", "changed": "≠", "only_a": "−", "only_b": "+"}
WORDS = {"same": "the same", "changed": "changed", "only_a": "only in A", "only_b": "only in B"}

_QUIET = "#777777"
_GREEN, _RED, _AMBER = "#2e7d32", "#c62828", "#b26a00"
_ON_PAGE = {"changed": "#b26a00", "only_a": "#d9483b", "only_b": "#3a8f3f", "same": _QUIET}
_SHAPES = {
    "same": f'<path d="M2 5h10M2 9h10" stroke="{_DIM}" stroke-width="1.6"/>',
    "changed": f'<path d="M1.5 5h11M1.5 9h11M9.5 1.5l-5 11" stroke="{_AMBER}" stroke-width="1.7" fill="none"/>',
    "only_a": f'<path d="M2 7h10" stroke="{_RED}" stroke-width="2"/>',
    "only_b": f'<path d="M2 7h10M7 2v10" stroke="{_GREEN}" stroke-width="2"/>',
}
_BORDER = {"same": _LINE, "changed": _AMBER, "only_a": _RED, "only_b": _GREEN}
_PAPERS = {"same": _PAPER, "changed": "#fff8ec", "only_a": "#fff3f2", "only_b": "#f1f8f1"}

DETAILS = 40
"""Calls whose difference is told in full."""

LINES = 60
"""Lines of one difference that are shown."""


# ---------------------------------------------------------------- text


def plain(made: Comparison, *, times: bool = True) -> str:
    """The comparison as text."""
    lines = [summary(made)]
    rows = [(name, a, b) for name, a, b in made.facts if times or name not in TIMES]
    width = max((len(a) for _, a, _ in rows), default=0)
    lines += [f"  {name:<9} {a:<{width}}  {'→' if a != b else '='} {b}" for name, a, b in rows]
    for title, diff in (("inputs", made.inputs), ("result", made.output), ("error", made.error)):
        lines += _block(title, diff)
    shown = [pair for pair in made.pairs if pair.change != "same"]
    if shown:
        lines.append("calls")
    for pair in shown[:DETAILS]:
        lines.append(f"  {SIGNS[pair.change]} {_name(pair)}: {_said(pair, times)}")
        lines += [f"      {line.sign} {line.text}" for line in (*pair.args, *pair.result)[:LINES]]
    if len(shown) > DETAILS:
        lines.append(f"  and {len(shown) - DETAILS:,} more that differ")
    same = made.counts["same"]
    if same:
        lines.append(f"  = {words.plural(same, 'call')} the same")
    return "\n".join(line.rstrip() for line in lines)


def summary(made: Comparison) -> str:
    """One line: ``digest: A and B differ in 2 calls, the inputs and the result``."""
    name = made.a.workflow if made.a.workflow == made.b.workflow else f"{made.a.workflow} and {made.b.workflow}"
    if made.same:
        return f"{name}: A and B are the same"
    counts = made.counts
    differ = counts["changed"] + counts["only_a"] + counts["only_b"]
    parts = [words.plural(differ, "call")] if differ else []
    parts += [title for title, diff in (("the inputs", made.inputs), ("the result", made.output)) if diff]
    if made.error and not differ:
        parts.append("the error")
    head = ", ".join(parts[:-1])
    return f"{name}: A and B differ in {f'{head} and ' if head else ''}{parts[-1]}"


def _block(title: str, diff: tuple[Line, ...]) -> list[str]:
    if not diff:
        return []
    return [title, *(f"    {line.sign} {line.text}" for line in diff[:LINES])]


def _name(pair: Pair) -> str:
    return pair.node.label


def _said(pair: Pair, times: bool) -> str:
    if pair.change in ("only_a", "only_b"):
        return WORDS[pair.change]
    said = " and ".join([", ".join(pair.what[:-1]), pair.what[-1]] if len(pair.what) > 1 else pair.what)
    took = _took(pair) if times else ""
    return f"other {said}" + (f" ({took})" if took else "")


def _took(pair: Pair) -> str:
    a = words.duration(pair.a.duration_s) if pair.a and pair.a.duration_s is not None else ""
    b = words.duration(pair.b.duration_s) if pair.b and pair.b.duration_s is not None else ""
    return f"{a} → {b}" if a and b and a != b else a or b


# ---------------------------------------------------------------- page


def static_html(made: Comparison, *, times: bool = True, names: tuple[str, str] = ("", "")) -> str:
    """The comparison as a page fragment that survives a notebook's sanitizer.

    Args:
        times: False leaves out what differs from run to run.
        names: what people call the two runs.
    """
    glyph, colour = ("=", _QUIET) if made.same else ("≠", _ON_PAGE["changed"])
    parts = [
        '<div class="wf-diff" style="font-size:13px;line-height:1.5;margin:4px 0">',
        f'<div><span style="color:{colour}">{glyph}</span>&ensp;<b>{escape(summary(made))}</b></div>',
        _facts_table(made, times, names),
    ]
    for title, diff in (("Inputs", made.inputs), ("Result", made.output), ("Error", made.error)):
        if diff:
            parts.append(f"<div><b>{title}</b></div>{_lines(diff)}")
    if made.pairs:
        parts.append(_picture(made, times))
    shown = [pair for pair in made.pairs if pair.change != "same"]
    parts += [_detail(pair, times) for pair in shown[:DETAILS]]
    if len(shown) > DETAILS:
        parts.append(f'<div style="color:{_QUIET}">and {len(shown) - DETAILS:,} more that differ</div>')
    parts.append("</div>")
    return "".join(parts)


def _facts_table(made: Comparison, times: bool, names: tuple[str, str]) -> str:
    cell = "padding:1px 14px 1px 0;text-align:left;font-variant-numeric:tabular-nums;border:0"
    dim = f"{cell};color:{_QUIET};font-weight:normal"
    first, second = (f"{letter} {name}".strip() for letter, name in zip("AB", names, strict=True))
    rows = [
        f'<tr style="background:none"><th style="{dim}"></th><th style="{cell}">{escape(first)}</th>'
        f'<th style="{cell}">{escape(second)}</th></tr>'
    ]
    for name, a, b in made.facts:
        if times or name not in TIMES:
            bold = f"{cell};font-weight:600" if a != b and name not in TIMES else cell
            rows.append(
                f'<tr style="background:none"><td style="{dim}">{escape(name)}</td><td style="{cell}">{escape(a)}</td>'
                f'<td style="{bold}">{escape(b)}</td></tr>'
            )
    return f'<table style="margin:4px 0;border:0;border-collapse:collapse"><tbody>{"".join(rows)}</tbody></table>'


def _lines(diff: tuple[Line, ...]) -> str:
    paint = {"-": "background:rgba(217,72,59,.16)", "+": "background:rgba(58,143,63,.18)", "…": f"color:{_QUIET}"}
    out = [
        f'<div style="white-space:pre-wrap;overflow-wrap:anywhere;{paint.get(line.sign, "")}">'
        f"{escape(line.sign)} {escape(line.text)}</div>"
        for line in diff[:LINES]
    ]
    if len(diff) > LINES:
        out.append(f'<div style="color:{_QUIET}">… {len(diff) - LINES:,} more lines</div>')
    return (
        '<div style="font-family:monospace;font-size:12px;margin:2px 0 8px;padding:2px 0 2px 8px;'
        f'border-left:2px solid rgba(127,127,127,.4)">{"".join(out)}</div>'
    )


def _detail(pair: Pair, times: bool) -> str:
    colour = _ON_PAGE[pair.change]
    head = (
        f'<span style="color:{colour}">{SIGNS[pair.change]}</span> <b>{escape(_name(pair))}</b> '
        f'<span style="color:{_QUIET}">{escape(_said(pair, times))}</span>'
    )
    body = "".join(
        f'<div style="color:{_QUIET}">{title}</div>{_lines(diff)}'
        for title, diff in (
            ("arguments", pair.args),
            ("answer" if pair.node.kind == "prompt" else "result", pair.result),
        )
        if diff
    )
    if not body:
        return f'<div style="margin:2px 0 2px 16px">{head}</div>'
    return (
        f'<details style="margin:2px 0"><summary>{head}</summary><div style="margin-left:16px">{body}</div></details>'
    )


# ---------------------------------------------------------------- picture


def _picture(made: Comparison, times: bool) -> str:
    drawing = draw(made.union())
    data = base64.b64encode(svg(made, times=times, drawing=drawing).encode()).decode()
    width = drawing.layout.width
    return (
        f'<div style="overflow-x:auto;margin:6px 0"><img alt="{escape(plain(made, times=False))}" width="{width:g}" '
        f'style="max-width:100%;min-width:{width * 0.75:.0f}px;height:auto" src="data:image/svg+xml;base64,{data}"></div>'
    )


def svg(made: Comparison, *, times: bool = True, drawing: Drawing | None = None) -> str:
    """Both graphs in one picture: what is the same, what changed, what only one of them has."""
    drawing = drawing or draw(made.union())
    by_id = {pair.id: pair for pair in made.pairs}
    layout = drawing.layout
    boxes = [[by_id[node.node_id] for node in box.nodes] for box in drawing.graph.boxes]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{layout.width:g}" height="{layout.height:g}" '
        f'viewBox="0 0 {layout.width:g} {layout.height:g}" role="img" aria-label="{_text(summary(made))}" '
        f'font-family="{_FONT}">'
    ]
    parts += [f'<path d="{path}" fill="none" stroke="{_EDGE}" stroke-width="1.3"/>' for path in layout.paths]
    for box, pairs, label, place in zip(drawing.graph.boxes, boxes, drawing.labels, layout.places, strict=True):
        parts.append(_box(box, pairs, label, place, times))
    parts.append("</svg>")
    return "".join(parts)


def _box(box: Box, pairs: list[Pair], label: str, place: Place, times: bool) -> str:
    counts = Counter(pair.change for pair in pairs)
    change = next(iter(counts)) if len(counts) == 1 else "changed"
    dash = ' stroke-dasharray="4 3"' if change == "only_a" else ""
    width = "1" if change == "same" else "1.5"
    rect = (
        f'width="{place.w:g}" height="{place.h:g}" rx="5" fill="{_PAPERS[change]}" stroke="{_BORDER[change]}" '
        f'stroke-width="{width}"{dash}'
    )
    behind = f'<rect x="4" y="4" {rect}/>' if box.stack else ""
    second = fit(_note(pairs, counts, change, times), note_room(place.w))
    ink = _DIM if change in ("same", "only_a") else _INK
    return (
        f'<g transform="translate({place.x:g} {place.y:g})"><title>{_text(box.label)}</title>{behind}<rect {rect}/>'
        f'<g transform="translate(10 {place.h / 2 - 7:g})">{_SHAPES[change]}</g>'
        f'<text x="{TEXT_X:g}" y="19" font-size="12" fill="{ink}">{_text(label)}</text>'
        f'<text x="{TEXT_X:g}" y="34" font-size="11" fill="{_DIM}">{_text(second)}</text></g>'
    )


def _note(pairs: list[Pair], counts: Mapping[Change, int], change: Change, times: bool) -> str:
    if len(pairs) > 1:
        names: tuple[tuple[Change, str], ...] = (
            ("changed", "changed"), ("only_a", "in A"), ("only_b", "in B"), ("same", "same"),
        )  # fmt: skip
        return ", ".join(f"{counts[key]:,} {word}" for key, word in names if counts[key])
    if change in ("only_a", "only_b"):
        return WORDS[change]
    if change == "same":
        return (_took(pairs[0]) if times else "") or "the same"
    return ", ".join("args" if word == "arguments" else word for word in pairs[0].what)
