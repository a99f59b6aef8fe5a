"""What stays of a run in a saved notebook: plain text and a static page fragment.

The text holds nothing that differs between two runs of one job: no ids, times, durations or addresses. The fragment
is made of elements that survive a notebook's sanitizer: the graph is an ``<img>``, never inline SVG.
"""

from __future__ import annotations

import base64
from html import escape

from loom_kernel.views import words
from loom_kernel.views.drawing import Drawing, draw
from loom_kernel.views.expected import KIND as EXPECTED
from loom_kernel.views.graph import Box, graph
from loom_kernel.views.readable import readable
from loom_kernel.views.run import RunView
from loom_kernel.views.snapshot import box_status, hint, notice, shoot
from loom_kernel.views.svg import svg

_TONES = {
    "run": ("●", "#2b7fd3"),
    "wait": ("◆", "#8a63d2"),
    "ok": ("✓", "#3a8f3f"),
    "bad": ("✗", "#d9483b"),
    "warn": ("▲", "#b26a00"),
    "quiet": ("–", "#777777"),
}
_DIM = "#777777"  # readable on white and on black alike


def summary(view: RunView) -> str:
    """One line: ``clean-weather: completed, 13 of 13 steps``."""
    return f"{view.workflow}: {words.status_words(view)}, {words.steps_words(view)}"


def plain(view: RunView) -> str:
    """The run as text, one line a node in a stable order, many alike in one line."""
    lines = [summary(view)]
    lines += [f"  {_line(box, view)}" for box in graph(view).boxes]
    for prompt in view.family_prompts:
        lines.append(f"  {words.short(prompt.message, 200)} (answer with {hint(prompt)})")
    if view.error is not None and view.status in ("failed", "blocked", "killed"):
        lines.append(f"  {words.class_name(view.error)}: {words.short(words.stable(view.error.message), 200)}")
    elif text := notice(view):
        lines.append(f"  {words.short(words.stable(text), 200)}")
    return "\n".join(lines)


def _line(box: Box, view: RunView) -> str:
    status = box_status(box, view)
    glyph = words.GLYPHS.get(status, "?")
    if box.stack:
        return f"{glyph} {box.label}: {box.count_words()}"
    node = box.nodes[0]
    match status:
        case "completed" if node.kind == "prompt":
            return f"{glyph} {box.label} {words.scalar(words.loads(node.result), 60) or 'answered'}"
        case "completed":
            return f"{glyph} {box.label}"
        case "failed" if node.error is not None:
            return f"{glyph} {box.label}: {words.class_name(node.error)}"
        case "waiting" if node.kind != "sleep":
            return f"{glyph} {box.label} waiting for an answer"
        case "pending" if node.kind == EXPECTED:
            return f"{glyph} {box.label}: may come"
        case "pending":
            return f"{glyph} {box.label}: to do"
        case _:
            return f"{glyph} {box.label}: {status}"


def static_html(view: RunView, *, times: bool = True) -> str:
    """The run as a page fragment: what it is, the graph as a picture, then what matters now.

    A live view hides it by its ``data-run``. Everything that people or models wrote is escaped.

    Args:
        times: False leaves out durations and the picture's, so that two runs of one job give the same text.
    """
    drawing = draw(view)
    glyph, colour = _TONES[words.tone(view)]
    facts = [words.steps_words(view)]
    if times and view.at_rest and view.started_at is not None:
        facts.append(words.duration(view.active_s))
    if times and (spent := words.spent(view)):
        facts.append(spent)
    parts = [
        f'<div class="wf-static" data-run="{escape(view.run_id)}" style="font-size:13px;line-height:1.5;margin:4px 0">',
        f"<div><b>{escape(view.workflow)}</b>&ensp;",
        f'<span style="color:{colour}">{glyph} {escape(words.status_words(view))}</span>&ensp;',
        f'<span style="color:{_DIM}">{escape(" · ".join(facts))}</span></div>',
    ]
    if drawing.graph.boxes:
        parts.append(_picture(view, drawing, times))
    parts.append(_below(view))
    parts.append("</div>")
    return "".join(parts)


def _picture(view: RunView, drawing: Drawing, times: bool) -> str:
    data = base64.b64encode(svg(view, times=times, drawing=drawing).encode()).decode()
    width = drawing.layout.width
    # A picture that is a little too wide shrinks; a very wide one is scrolled, since nobody reads 4 px letters.
    fit = f"max-width:100%;min-width:{width * 0.75:.0f}px"
    return (
        f'<div style="overflow-x:auto;margin:6px 0"><img alt="{escape(plain(view))}" width="{width:g}" '
        f'style="{fit};height:auto" src="data:image/svg+xml;base64,{data}"></div>'
    )


def _below(view: RunView) -> str:
    """The open questions, the failure, or the outcome: only what matters now."""
    parts = []
    for prompt in view.family_prompts:
        way = f"answer with <code>{escape(hint(prompt))}</code>" if hint(prompt) else "answer in its widget"
        parts.append(f'<div><b>{escape(prompt.message)}</b>&ensp;<span style="color:{_DIM}">{way}</span></div>')
        parts.extend(_table(s.columns, s.rows, s.total) for s in prompt.shown if s.kind == "table")
    shot = shoot(view, 0.0).failure
    if shot is not None:
        message = escape(words.stable(shot.message))
        parts.append(f'<div><b style="color:{_TONES["bad"][1]}">{escape(shot.type)}</b>&ensp;{message}</div>')
        if shot.lines:
            code = "\n".join(f"{line.place}\n{line.line:>6}  {line.text}" for line in shot.lines)
            parts.append(
                f'<pre style="margin:4px 0;padding:6px 10px;border-left:2px solid #d9483b">{escape(code)}</pre>'
            )
        parts.append(f'<div style="color:{_DIM}">{escape(shot.hint)}</div>')
    elif text := notice(view):
        parts.append(f'<div style="color:{_DIM}">{escape(words.stable(text))}</div>')
    if view.status == "completed" and bytes(view.result) != b"null":
        text = words.stable(readable(view.result, limit=300, pretty=False))
        parts.append(f'<div style="color:{_DIM}">result <code>{escape(text)}</code></div>')
    return "".join(parts)


def _table(columns: list[str], rows: list[list[str]], total: int) -> str:
    head = "".join(f"<th>{escape(c)}</th>" for c in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(v)}</td>" for v in row) + "</tr>" for row in rows)
    more = total - len(rows)
    foot = f'<div style="color:{_DIM}">and {more:,} more rows</div>' if more > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{foot}"


def bundle(view: RunView, *, times: bool = True) -> dict[str, str]:
    """The MIME bundle of the static picture."""
    return {"text/plain": plain(view), "text/html": static_html(view, times=times)}
