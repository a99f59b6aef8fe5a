"""A run's graph with its places: what the live widget, the saved picture and the exports draw alike."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from loom_kernel.views import words
from loom_kernel.views.expected import KIND as EXPECTED
from loom_kernel.views.graph import Box, Graph, graph
from loom_kernel.views.layout import Layout, Place, layout
from loom_kernel.views.run import RunView

MIN_WIDTH, LABEL_WIDTH, MAX_WIDTH = 128.0, 196.0, 244.0
TEXT_X = 31.0  # where a label begins, right of its status shape
PAD = 12.0

_NARROW, _WIDE = frozenset("iljtfrI.,:;'|!()[] "), frozenset("mwMW@%")


@dataclass(frozen=True, eq=False)
class Drawing:
    """Boxes with labels cut to fit, and where they stand. ``labels`` run parallel to ``graph.boxes``.

    ``structure`` is the view's when it was drawn.
    """

    graph: Graph
    layout: Layout
    labels: tuple[str, ...]
    structure: int = -1

    @cached_property
    def hash(self) -> str:
        """Names the structure: the same for the same boxes and edges, whatever their status."""
        text = repr((self.labels, self.graph.edges))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def each(self) -> Iterator[tuple[Box, str, Place]]:
        """Boxes, labels and places."""
        return zip(self.graph.boxes, self.labels, self.layout.places, strict=True)


def draw(view: RunView) -> Drawing:
    """The drawing of the run now."""
    structure = view.structure  # before the nodes are read: one that comes in between is drawn the next time
    g = graph(view)
    labels = tuple(fit(box.label, LABEL_WIDTH - TEXT_X - PAD) for box in g.boxes)
    return Drawing(g, layout(_widths(g, labels), g.edges), labels, structure)


def redraw(before: Drawing, view: RunView) -> Drawing:
    """The same as :func:`draw`, with a drawing of an earlier state: it is that one as long as nothing moves."""
    if before.structure != view.structure:
        return draw(view)
    if not any(box.stack for box in before.graph.boxes):
        return before
    now = layout(_widths(before.graph, before.labels), before.graph.edges)  # a stack's counts may need more room
    return before if now is before.layout else replace(before, layout=now)


def _widths(g: Graph, labels: tuple[str, ...]) -> list[float]:
    return [box_width(label, note_of(box)) for label, box in zip(labels, g.boxes, strict=True)]


def box_width(label: str, note: str) -> float:
    """A box's width for its text, in steps of 4, so that a number that grows by a digit moves nothing."""
    wide = max(text_width(label), text_width(note) * 0.96) + TEXT_X + PAD
    return min(MAX_WIDTH, max(MIN_WIDTH, -(-wide // 4) * 4))


def text_width(text: str) -> float:
    """Pixels at 12 px, estimated to the safe side: the fonts of a browser are not known here."""
    return sum(
        3.9 if c in _NARROW else 10.6 if c in _WIDE else 8.0 if c.isupper() else 7.0 if ord(c) < 0x2E80 else 12.5
        for c in text
    )


def fit(text: str, width: float) -> str:
    """The text, cut in the middle of its width with an ellipsis where it is too long."""
    text = " ".join(text.split())
    if text_width(text) <= width:
        return text
    while text and text_width(text) > width - 8:
        text = text[:-1]
    return text.rstrip(" ·") + "…"


def note_room(box_width: float) -> float:
    """How wide a second line may be in a box of that width, in pixels at 12 px; it is written at 11."""
    return (box_width - TEXT_X - 6) * 12 / 11


def note_of(box: Box) -> str:
    """The part of a box's second line that decides its width: a stack's counts. The rest is short by nature."""
    return box.count_words()


def note(box: Box, status: str, *, times: bool = True) -> str:
    """A box's second line as far as it does not tick: ``0.31 s · journal``, ``2 tries``, ``PermissionError``.

    Args:
        status: as it is drawn.
        times: False leaves durations and what the journal gave out, so that two runs of one job read the same.
    """
    if box.stack:
        return box.count_words()
    node = box.nodes[0]
    parts: list[str] = []
    match status:
        case "completed":
            if node.kind == "prompt":
                parts.append(words.scalar(words.loads(node.result), 18) or "answered")
            elif times and node.cached_from:
                parts.append(words.cached(node))
            elif times and node.duration_s is not None:
                parts.append(words.duration(node.duration_s))
            if node.attempts > 1 and node.kind != "prompt":
                parts.append(f"{node.attempts} tries")
            if times and node.from_journal:
                parts.append("journal")
            if not parts:
                parts.append("done")
        case "failed":
            parts.append(words.short(words.class_name(node.error), 20) if node.error else "failed")
            if node.attempts > 1:
                parts.append(f"{node.attempts} tries")
        case "retrying":
            parts.append("trying again")
        case "running":
            parts.append("checking" if node.kind == "prompt" else "running")
            if node.progress is not None:
                parts = [progress(node.progress)]
            if node.attempts > 1 and node.kind != "prompt":
                parts.append(f"try {node.attempts}")
        case "waiting":
            parts.append("sleeping" if node.kind == "sleep" else "waiting")
        case "cancelled":
            parts.append("cancelled")
        case _:
            parts.append("may come" if node.kind == EXPECTED else "to do")
    return " · ".join(parts)


def progress(value: tuple[float, float | None]) -> str:
    """``3 of 10``, or ``3`` where nobody knows the end."""
    done, total = value
    return words.number(done) if total is None else f"{words.number(done)} of {words.number(total)}"
