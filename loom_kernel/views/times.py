"""Where a run's time went: every moment of it under one word, and the chain of calls that decided when it ended.

The moments of a run between its start and its end (or now) add up: *running* while some body computes, else *waiting for
a person* while a question is open, else *trying again* while a failed step is repeated, else *sleeping*, else *queued*
while calls only wait for their turn, else *between steps*, where the body itself is at work; and *at rest* while nobody
executes it. SQL has the same in its views ``times`` and ``critical_path``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import msgspec

from loom_kernel.views import words
from loom_kernel.views.drawing import LABEL_WIDTH, fit
from loom_kernel.views.graph import graph
from loom_kernel.views.node import ACTIVE, NodeView
from loom_kernel.views.run import RunView
from loom_kernel.views.snapshot import Wire, box_status

Kind = Literal["running", "waiting", "retrying", "sleeping", "queued", "between", "rest"]

KINDS: tuple[Kind, ...] = ("running", "waiting", "retrying", "sleeping", "queued", "between", "rest")
"""In the order in which they count where several apply at once."""

WORDS: dict[Kind, str] = {
    "running": "running",
    "waiting": "waiting for a person",
    "retrying": "trying again",
    "sleeping": "sleeping",
    "queued": "queued",
    "between": "between steps",
    "rest": "at rest",
}

ROWS = 60
"""Rows of a timeline; the longest ones are kept."""


class Span(NamedTuple):
    """A stretch of a node's time, seconds since the epoch."""

    kind: Kind
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Leg:
    """One call of the critical path. ``spans`` are its own times; ``gap_s`` is how long the body took to call it."""

    node: NodeView
    spans: tuple[Span, ...]
    gap_s: float

    def seconds(self, kind: Kind) -> float:
        """Seconds of one kind."""
        return sum(s.end - s.start for s in self.spans if s.kind == kind)


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds by kind, which add up to ``total_s``, and the critical path from the first call to the last."""

    total_s: float
    seconds: dict[Kind, float]
    path: tuple[Leg, ...]


def times(view: RunView, now: float) -> Times:
    """Where the time of a run went.

    Args:
        now: seconds since the epoch, by the clock that stamped the events; the end of what goes on.
    """
    start, end = _bounds(view, now)
    if start is None:
        return Times(0.0, dict.fromkeys(KINDS, 0.0), ())
    nodes = dict(view.nodes)
    spans = [s for node in nodes.values() for s in spans_of(node, end)]
    return Times(end - start, _partition(spans, view.stretches(end), start, end), tuple(_path(nodes, start, end)))


def _bounds(view: RunView, now: float) -> tuple[float | None, float]:
    if view.ended and view.ended_at is not None:
        now = view.ended_at
    elif view.interrupted and view.last_at is not None:
        now = view.last_at  # nothing is known of it since
    return view.started_at, max(now, view.started_at or now)


def spans_of(node: NodeView, end: float) -> list[Span]:
    """What a node spent its time on, in order; ``end`` closes what goes on."""
    if node.first_at is None or node.started_at is None:
        return []
    until = node.ended_at if node.ended_at is not None else end if node.status in ACTIVE else node.started_at
    if node.kind in ("prompt", "sleep"):
        return [Span("waiting" if node.kind == "prompt" else "sleeping", node.first_at, max(node.first_at, until))]
    spans = []
    if node.queued_s:
        spans.append(Span("queued", node.first_at - node.queued_s, node.first_at))
    spans += [Span("retrying", *lost) for lost in node.lost]
    if node.status == "retrying":
        return [*spans, Span("retrying", node.started_at, max(node.started_at, until))]
    # The body's own measure ends where the node does; before it the attempt waited for a thread.
    body = until
    if node.ended_at is not None and node.duration_s is not None:
        body = max(node.started_at, node.ended_at - node.duration_s)
        if body - node.started_at > 0.001:
            spans.append(Span("queued", node.started_at, body))
    else:
        body = node.started_at
    spans.append(Span("running", body, max(body, until)))
    return spans


def _partition(spans: list[Span], active: list[tuple[float, float]], start: float, end: float) -> dict[Kind, float]:
    edges: list[tuple[float, int, int]] = []
    for span in [*spans, *(Span("between", a, b) for a, b in active)]:
        a, b = max(start, span.start), min(end, span.end)
        if a < b:
            at = KINDS.index(span.kind)
            edges += [(a, at, 1), (b, at, -1)]
    edges.sort()
    seconds: dict[Kind, float] = dict.fromkeys(KINDS, 0.0)
    open_ = [0] * len(KINDS)
    between = KINDS.index("between")
    last = start
    for moment, at, step in [*edges, (end, between, 0)]:
        if moment > last:
            # Nothing counts while nobody executes the run, not even a question that stands open.
            kinds = (k for k, n in zip(KINDS, open_, strict=True) if n)
            kind: Kind = next(kinds, "rest") if open_[between] else "rest"
            seconds[kind] += moment - last
            last = moment
        open_[at] += step
    return seconds


def _path(nodes: dict[str, NodeView], start: float, end: float) -> list[Leg]:
    """From the call that was over last back along whichever parent was over last."""

    def over(node: NodeView) -> float:
        if node.first_at is None:
            return start - 1
        return node.ended_at if node.ended_at is not None else end

    path: list[Leg] = []
    seen: set[str] = set()
    at = max(nodes.values(), key=over, default=None)
    while at is not None and at.first_at is not None and at.node_id not in seen:
        seen.add(at.node_id)
        parents = [nodes[p] for p in at.parents if p in nodes and nodes[p].first_at is not None]
        above = max(parents, key=over, default=None)
        ready = over(above) if above is not None else start
        path.append(Leg(at, tuple(spans_of(at, end)), max(0.0, at.first_at - at.queued_s - ready)))
        at = above
    path.reverse()
    return path


# ---------------------------------------------------------------- for the view


class PartShot(Wire):
    """Seconds of one kind, and its words."""

    kind: str
    words: str
    seconds: float


class RowShot(Wire):
    """A box in the timeline: ``spans`` are kind, begin and end in seconds since the run's start."""

    id: str
    label: str
    status: str
    critical: bool
    spans: list[tuple[str, float, float]]


class TimesShot(Wire):
    """The timeline: where the time went, and when each box had its part. Seconds since ``start``, an epoch."""

    start: float
    total_s: float
    critical: str
    parts: list[PartShot]
    rows: list[RowShot]
    left_out: int = 0


def timeline(view: RunView, now: float) -> dict[str, Any]:
    """The timeline as plain JSON values."""
    found = times(view, now)
    start, end = _bounds(view, now)
    start = start if start is not None else end
    critical = {leg.node.node_id for leg in found.path}
    rows: list[tuple[float, RowShot]] = []
    for box in graph(view).boxes:
        spans = _joined([s for node in box.nodes for s in spans_of(node, end)])
        if spans:
            shown: list[tuple[str, float, float]] = [
                (s.kind, round(s.start - start, 3), round(s.end - start, 3)) for s in spans
            ]
            row = RowShot(
                id=box.id,
                label=fit(box.label, LABEL_WIDTH - 44),
                status=box_status(box, view),
                critical=any(n.node_id in critical for n in box.nodes),
                spans=shown,
            )
            rows.append((sum(s.end - s.start for s in spans), row))
    if len(rows) > ROWS:
        kept = {id(r) for _, r in sorted(rows, key=lambda r: (r[1].critical, r[0]))[-ROWS:]}
    else:
        kept = {id(r) for _, r in rows}
    shot = TimesShot(
        start=start,
        total_s=round(found.total_s, 3),
        critical=words.short(" → ".join(leg.node.label for leg in found.path[-12:]), 400) if found.path else "",
        parts=[
            PartShot(kind=k, words=WORDS[k], seconds=round(found.seconds[k], 3))
            for k in KINDS
            if found.seconds[k] >= 0.0005
        ],
        rows=sorted((r for _, r in rows if id(r) in kept), key=lambda r: r.spans[0][1]),
        left_out=max(0, len(rows) - ROWS),
    )
    made: dict[str, Any] = msgspec.to_builtins(shot)
    return made


def _joined(spans: list[Span]) -> list[Span]:
    """Spans of one kind that touch as one, at most a few dozen."""
    out: list[Span] = []
    last: dict[str, int] = {}
    for span in sorted(spans, key=lambda s: s.start):
        i = last.get(span.kind)
        if i is not None and span.start <= out[i].end + 0.002:
            out[i] = Span(span.kind, out[i].start, max(out[i].end, span.end))
        else:
            last[span.kind] = len(out)
            out.append(span)
    return out if len(out) <= 48 else [*out[:47], Span(out[47].kind, out[47].start, max(s.end for s in out[47:]))]
