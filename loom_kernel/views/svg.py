"""The picture that stays: a static SVG that no page can break and that breaks no page.

No ``<defs>``, no markers, no ``<style>``: each element carries its own colours, chosen to read on light and on dark
pages alike, since a picture does not know where it will be looked at.
"""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from loom_kernel.views import words
from loom_kernel.views.drawing import TEXT_X, Drawing, draw, fit, note, note_room
from loom_kernel.views.expected import KIND as EXPECTED
from loom_kernel.views.graph import Box
from loom_kernel.views.layout import Place
from loom_kernel.views.run import RunView
from loom_kernel.views.snapshot import box_status

_FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif"
_PAPER, _INK, _DIM, _LINE, _EDGE = "#ffffff", "#1c1c1c", "#666666", "#c9ccd1", "#8b9097"
_RUN, _OK, _BAD, _WAIT, _WAIT_PAPER = "#1976d2", "#2e7d32", "#c62828", "#6a3fb5", "#f5f0ff"

# One shape a status, drawn in a box of 14 × 14: the state is never said by colour alone.
SHAPES = {
    "completed": f'<path d="M1.5 7.5l4 4 7-8.5" fill="none" stroke="{_OK}" stroke-width="1.8"/>',
    "failed": f'<path d="M2.5 2.5l9 9M11.5 2.5l-9 9" fill="none" stroke="{_BAD}" stroke-width="2"/>',
    "waiting": f'<path d="M7 0l6 7-6 7-6-7z" fill="{_WAIT}"/>',
    "running": f'<circle cx="7" cy="7" r="5" fill="none" stroke="{_RUN}" stroke-width="1.8"/>'
    f'<circle cx="7" cy="7" r="2" fill="{_RUN}"/>',
    "retrying": f'<path d="M11.8 5.2A5 5 0 1 0 12 8M12 2v3.4H8.6" fill="none" stroke="{_RUN}" stroke-width="1.6"/>',
    "cancelled": f'<path d="M2.5 7h9" stroke="{_DIM}" stroke-width="1.8"/>',
    "pending": f'<circle cx="7" cy="7" r="4" fill="none" stroke="{_DIM}"/>',
}


def svg(view: RunView, *, times: bool = True, drawing: Drawing | None = None) -> str:
    """The run's graph as a standalone SVG document.

    Args:
        times: False leaves out durations, so that two runs of one job give the same bytes.
        drawing: the drawing of this very state where the caller has one.
    """
    drawing = drawing or draw(view)
    layout, boxes = drawing.layout, drawing.graph.boxes
    summary = f"{view.workflow}: {words.status_words(view)}, {words.steps_words(view)}"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{layout.width:g}" height="{layout.height:g}" '
        f'viewBox="0 0 {layout.width:g} {layout.height:g}" role="img" id="wf-{drawing.hash}" '
        f"aria-label={quoteattr(_clean(summary))} font-family={quoteattr(_FONT)}>"
    )
    parts = [head]
    for (_, b), path in zip(drawing.graph.edges, layout.paths, strict=True):
        pending = box_status(boxes[b], view) == "pending"
        colour = _LINE if pending else _EDGE
        parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.3"/>')
    for box, label, place in zip(boxes, drawing.labels, layout.places, strict=True):
        parts.append(_box(box, label, place, box_status(box, view), times))
    parts.append("</svg>")
    return "".join(parts)


def _box(box: Box, label: str, place: Place, status: str, times: bool) -> str:
    paper, line, width, dash = _PAPER, _LINE, "1", ""
    match status:
        case "waiting" if box.kind != "sleep":
            paper, line, width = _WAIT_PAPER, _WAIT, "1.5"
        case "running" | "retrying" | "waiting":
            line, width = _RUN, "1.5"
        case "failed":
            line, width = _BAD, "1.5"
        case "pending":
            dash = ' stroke-dasharray="3 3"'
    rect = (
        f'width="{place.w:g}" height="{place.h:g}" rx="5" fill="{paper}" stroke="{line}" stroke-width="{width}"{dash}'
    )
    behind = f'<rect x="4" y="4" {rect}/>' if box.stack else ""
    second = fit(note(box, status, times=times), note_room(place.w))
    pale = ' opacity="0.55"' if box.kind == EXPECTED else ""
    quiet = _DIM if status in ("pending", "cancelled") else _INK
    return (
        f'<g transform="translate({place.x:g} {place.y:g})"{pale}><title>{_text(box.label)}</title>{behind}<rect {rect}/>'
        f'<g transform="translate(10 {place.h / 2 - 7:g})">{SHAPES.get(status, SHAPES["pending"])}</g>'
        f'<text x="{TEXT_X:g}" y="19" font-size="12" fill="{quiet}">{_text(label)}</text>'
        f'<text x="{TEXT_X:g}" y="34" font-size="11" fill="{_DIM}">{_text(second)}</text></g>'
    )


def _clean(text: str) -> str:
    """Without the characters that XML cannot hold at all."""
    return "".join(
        c for c in text if c in "\t\n" or (c >= " " and not 0xD800 <= ord(c) <= 0xDFFF and c not in "\ufffe\uffff")
    )


def _text(text: str) -> str:
    return escape(_clean(text))
