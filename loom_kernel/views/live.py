"""What a live view is sent: the run once as a whole, then only what has changed since.

A status that changes costs some hundred bytes and no layout, however large the graph is: the drawing is kept as long as
the run's structure is the same, and a box is described anew only when something that it shows has changed. Where the
structure grows, what is new is sent, and the places and lines that gave way.
"""

from __future__ import annotations

from typing import Any

import msgspec

from loom_kernel.views.drawing import Drawing, draw, redraw
from loom_kernel.views.graph import Box
from loom_kernel.views.run import RunView
from loom_kernel.views.snapshot import BoxShot, GraphShot, Snapshot, Wire, box_shot, shoot


class NewShot(Wire):
    """A box that was not there: ``at`` is its index when all are in."""

    at: int
    box: BoxShot


class DeltaShot(Wire):
    """What has changed since the snapshot or delta numbered ``base``; it makes number ``serial``.

    Taken in this order: boxes named in ``gone`` leave, with their lines; ``new`` ones are put in; ``boxes`` are pairs of
    an index and the fields that changed; lines in ``cut`` leave, and ``edges`` come or take another path, indices as
    they are then. ``top`` are fields of the snapshot itself, ``graph`` those of its graph.
    """

    base: int
    serial: int
    top: dict[str, Any]
    graph: dict[str, Any] = {}
    gone: list[str] = []
    new: list[NewShot] = []
    boxes: list[tuple[int, dict[str, Any]]] = []
    cut: list[tuple[int, int]] = []
    edges: list[tuple[int, int, str]] = []


_TOP = {f.name: f.encode_name for f in msgspec.structs.fields(Snapshot) if f.name not in ("graph", "serial")}
_BOX = {f.name: f.encode_name for f in msgspec.structs.fields(BoxShot)}
_GRAPH = {"hash": "hash", "width": "width", "height": "height"}


class LiveShots:
    """Makes snapshots of one run, and the differences between them. One thread at a time.

    Args:
        view: the run; it is read, never copied.
    """

    def __init__(self, view: RunView) -> None:
        self._view = view
        self._drawing: Drawing | None = None
        self._shot: Snapshot | None = None
        self._said: dict[str, tuple[tuple[Any, ...], BoxShot]] = {}

    def whole(self, now: float) -> dict[str, Any]:
        """Everything, as plain JSON values. ``now``: seconds since the epoch, by the clock that stamped the events."""
        self._look(now)
        result: dict[str, Any] = msgspec.to_builtins(self._shot)
        return result

    def delta(self, now: float) -> dict[str, Any] | None:
        """What has changed since the last call of either, as plain JSON values; None where it takes a whole one."""
        before = self._shot
        if before is None:
            return None
        shot = self._look(now)
        made = _difference(before, shot)
        if made is None:
            return None
        plain: dict[str, Any] = msgspec.to_builtins(made)
        return {name: value for name, value in plain.items() if value or name in ("base", "serial", "top")}

    def _look(self, now: float) -> Snapshot:
        view = self._view
        drawing = self._drawing = draw(view) if self._drawing is None else redraw(self._drawing, view)
        said: dict[str, tuple[tuple[Any, ...], BoxShot]] = {}
        shots: list[BoxShot] = []
        rest = (view.at_rest, view.interrupted)
        for i, box in enumerate(drawing.graph.boxes):
            place = drawing.layout.places[i]
            facts = (rest, drawing.labels[i], place, *_facts(box, view))
            known = self._said.get(box.id)
            if known is None or known[0] != facts:
                known = facts, box_shot(box, drawing.labels[i], place, view)
            said[box.id] = known
            shots.append(known[1])
        self._said = said
        serial = 1 if self._shot is None else self._shot.serial + 1
        self._shot = shoot(view, now, drawing, boxes=shots, serial=serial)
        return self._shot


def _facts(box: Box, view: RunView) -> tuple[Any, ...]:
    """All that a box shows and that may change while the structure stays. Equal facts, equal box."""
    if box.stack:
        return tuple(sorted(box.counts.items()))
    node = box.nodes[0]
    child = view.children.get(node.child_run_id) if node.child_run_id and view.children else None
    asks = child is not None and bool(child.family_prompts)
    return (
        node.status, node.attempts, node.started_at, node.duration_s, node.wake_at, node.progress, node.from_journal,
        node.error is None, node.passed, node.drift, asks,
    )  # fmt: skip


def _difference(before: Snapshot, after: Snapshot) -> DeltaShot | None:
    made = DeltaShot(base=before.serial, serial=after.serial, top=_changed(_TOP, before, after))
    made.top["now"] = after.now
    old, new = before.graph, after.graph
    boxes = old.boxes
    # Another box may stand under the same label, so the hash does not tell.
    if new.edges is not old.edges and [b.id for b in old.boxes] != [b.id for b in new.boxes]:
        ids, had = {b.id for b in new.boxes}, {b.id: b for b in old.boxes}
        stayed = [b for b in old.boxes if b.id in ids]
        if [b.id for b in stayed] != [b.id for b in new.boxes if b.id in had]:
            return None  # a new order
        made.gone = [b.id for b in old.boxes if b.id not in ids]
        made.new = [NewShot(at=i, box=b) for i, b in enumerate(new.boxes) if b.id not in had]
        boxes = [had.get(b.id, b) for b in new.boxes]
    made.boxes = [
        (i, _changed(_BOX, a, b))
        for i, (a, b) in enumerate(zip(boxes, new.boxes, strict=True))
        if a is not b and a != b
    ]
    if new.edges is not old.edges:
        made.graph = _changed(_GRAPH, old, new)
        _edges(old, new, made)
    return made


def _edges(old: GraphShot, new: GraphShot, made: DeltaShot) -> None:
    index = {b.id: i for i, b in enumerate(new.boxes)}
    paths: dict[tuple[int, int], str] = {}
    for edge in old.edges:
        a, b = index.get(old.boxes[edge.a].id), index.get(old.boxes[edge.b].id)
        if a is not None and b is not None:
            paths[(a, b)] = edge.path
    for edge in new.edges:
        if paths.pop((edge.a, edge.b), None) != edge.path:
            made.edges.append((edge.a, edge.b, edge.path))
    made.cut = list(paths)


def _changed(names: dict[str, str], before: msgspec.Struct, after: msgspec.Struct) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, wire in names.items():
        value = getattr(after, name)
        if value is not (was := getattr(before, name)) and value != was:
            found[wire] = msgspec.to_builtins(value)
    return found
