"""What is drawn of a run: boxes and the lines between them.

A node is a box, except where many are alike: more than :data:`FOLD` siblings of one name, or a chain of that many in
a row, become one counted stack ("fetch × 800: 612 done, 3 failed").
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from loom_kernel.views import words
from loom_kernel.views.node import NodeView
from loom_kernel.views.run import RunView

_TELLING = 120  # characters of an argument that are compared

FOLD = 12
"""The most alike nodes that are drawn one by one."""


@dataclass(slots=True)
class Box:
    """One box of the picture. ``nodes`` has one member, or all that a stack folds; ``label`` may still be cut to fit."""

    id: str
    nodes: list[NodeView]
    label: str = ""
    parents: list[int] = field(default_factory=list)

    @property
    def stack(self) -> bool:
        return len(self.nodes) > 1

    @property
    def kind(self) -> str:
        return self.nodes[0].kind

    @property
    def status(self) -> str:
        """One word for all members; what needs attention wins."""
        if not self.stack:
            return self.nodes[0].status
        counts = self.counts
        for status in ("waiting", "running", "retrying", "failed", "pending", "cancelled"):
            if counts[status]:
                # A stack in which some are done and others not begun is going on.
                return "running" if status == "pending" and counts["completed"] else status
        return "completed"

    @property
    def counts(self) -> Counter[str]:
        return Counter(n.status for n in self.nodes)

    def count_words(self) -> str:
        """``612 done, 3 failed, 5 running``; empty for a single node."""
        if not self.stack:
            return ""
        counts = self.counts
        running = counts["running"] + counts["retrying"]
        parts = [
            (counts["completed"], "done"),
            (counts["failed"], "failed"),
            (running, "running"),
            (counts["waiting"], "waiting"),
            (counts["cancelled"], "cancelled"),
            (counts["pending"], "to do"),
        ]
        return ", ".join(f"{n:,} {word}" for n, word in parts if n)


@dataclass(slots=True)
class Graph:
    """Boxes in a stable order (parents before children) and edges as pairs of indices into them."""

    boxes: list[Box]
    edges: list[tuple[int, int]]


def graph(view: RunView, *, fold: int = FOLD) -> Graph:
    """What to draw of the run now."""
    nodes = _ordered(view)
    boxes = _fold_siblings(nodes, fold)
    boxes = _fold_chains(boxes, fold)
    _label(boxes)
    edges = [(p, i) for i, box in enumerate(boxes) for p in box.parents]
    return Graph(boxes, edges)


class _Ordered(NamedTuple):
    """A node, its rank (longest way from a source) and its parents, which many nodes may share as one list."""

    node: NodeView
    rank: int
    parents: list[str]


def _ordered(view: RunView) -> list[_Ordered]:
    """Nodes, parents first.

    Within a rank the order follows the parents' order, then the order of calling: two branches that race give the
    same picture whichever is faster. What is shared is looked at once: thousands of nodes may come after the same
    thousands.
    """
    nodes = dict(view.nodes)
    order = [n for n in list(view.order) if n in nodes]
    for node in view.expected:
        nodes[node.node_id] = node
        order.append(node.node_id)
    shared: dict[int, tuple[tuple[str, ...], list[str]]] = {}  # by the identity of the tuples that nodes share
    parents: dict[str, list[str]] = {}
    for n in order:
        given = nodes[n].parents
        if id(given) not in shared:
            shared[id(given)] = given, [p for p in dict.fromkeys(given) if p in nodes]
        parents[n] = shared[id(given)][1]
    rank: dict[str, int] = {}
    todo = order
    while todo:  # one round in nearly all runs: an event's parents have had theirs before
        later: list[str] = []
        after: dict[int, int] = {}
        for n in todo:
            own = parents[n]
            found = after.get(id(own))
            if found is None:
                if any(p not in rank for p in own):
                    later.append(n)
                    continue
                found = after[id(own)] = max((rank[p] + 1 for p in own), default=0)
            rank[n] = found
        if len(later) == len(todo):  # a ring, which an engine never writes: break it rather than hang
            parents[later[0]] = [p for p in parents[later[0]] if p in rank]
        todo = later
    by_rank: dict[int, list[str]] = defaultdict(list)
    for n in order:
        by_rank[rank[n]].append(n)
    place: dict[str, int] = {}
    out: list[_Ordered] = []
    for r in sorted(by_rank):
        distinct = {id(parents[n]): parents[n] for n in by_rank[r]}
        keys = {i: sorted(place[p] for p in own) for i, own in distinct.items()}
        in_turn = sorted(keys, key=keys.__getitem__)
        turn = dict.fromkeys(in_turn[:1], 0)
        for before, i in pairwise(in_turn):
            turn[i] = turn[before] + (keys[i] != keys[before])
        for n in sorted(by_rank[r], key=lambda n: turn[id(parents[n])]):  # stable: calling order
            place[n] = len(place)
            out.append(_Ordered(nodes[n], r, parents[n]))
    return out


def _fold_siblings(nodes: list[_Ordered], fold: int) -> list[Box]:
    boxes: list[Box] = []
    home: dict[str, int] = {}
    i = 0
    while i < len(nodes):
        j = i
        groups: dict[tuple[str, str, tuple[int, ...]], list[NodeView]] = {}
        homes: dict[int, tuple[int, ...]] = {}
        while j < len(nodes) and nodes[j].rank == nodes[i].rank:  # one rank at a time: parents are boxed already
            node, _, parents = nodes[j]
            above = homes.get(id(parents))
            if above is None:
                above = homes[id(parents)] = tuple(sorted({home[p] for p in parents}))
            groups.setdefault((node.kind, node.name, above), []).append(node)
            j += 1
        for (kind, _, above), members in groups.items():
            folded = len(members) > fold and kind != "prompt"  # a question is never hidden in a stack
            for together in [members] if folded else [[m] for m in members]:
                box_id = f"stack:{together[0].node_id}" if folded else together[0].node_id
                for m in together:
                    home[m.node_id] = len(boxes)
                boxes.append(Box(box_id, together, parents=list(above)))
        i = j
    return boxes


def _fold_chains(boxes: list[Box], fold: int) -> list[Box]:
    children: list[int] = [0] * len(boxes)
    for box in boxes:
        for p in box.parents:
            children[p] += 1
    head = list(range(len(boxes)))
    chains: dict[int, list[int]] = defaultdict(list)
    for i, box in enumerate(boxes):
        if len(box.parents) == 1 and not box.stack and box.kind != "prompt":
            p = box.parents[0]
            above = boxes[p]
            if (
                children[p] == 1
                and not above.stack
                and (above.kind, above.nodes[0].name) == (box.kind, box.nodes[0].name)
            ):
                head[i] = head[p]
        chains[head[i]].append(i)
    if all(len(c) <= fold for c in chains.values()):
        return boxes
    out: list[Box] = []
    new: dict[int, int] = {}
    for i, box in enumerate(boxes):
        chain = chains[head[i]]
        if len(chain) <= fold:
            new[i] = len(out)
            out.append(Box(box.id, box.nodes, parents=[new[p] for p in box.parents]))
        elif i == head[i]:
            new.update(dict.fromkeys(chain, len(out)))
            members = [boxes[m].nodes[0] for m in chain]
            out.append(Box(f"stack:{members[0].node_id}", members, parents=[new[p] for p in box.parents]))
    return out


def _label(boxes: list[Box]) -> None:
    """Names; where a name stands in several boxes, with the argument that tells them apart, else with a number."""
    alike: dict[tuple[str, str], list[Box]] = defaultdict(list)
    for box in boxes:
        alike[(box.kind, box.nodes[0].name)].append(box)
    for same in alike.values():
        tails = _tails([box.nodes[0] for box in same]) if len(same) > 1 else [""]
        for box, tail in zip(same, tails, strict=True):
            name = box.nodes[0].label
            if box.stack:
                box.label = f"{name} × {len(box.nodes):,}"
            else:
                box.label = f"{name} · {tail}" if tail else name


def _tails(nodes: list[NodeView]) -> list[str]:
    args = [_arguments(n) for n in nodes]
    names = list(dict.fromkeys(name for a in args for name in a))
    for name in names:
        values = [words.scalar(a.get(name), _TELLING) or "" for a in args]
        if len(set(values)) == len(values) and sum(map(bool, values)) >= len(values) - 1:
            return _without_common_folder(values)
    # Nothing tells all of them apart: the first argument that differs at all, then a number where that repeats.
    best: list[str] = max(
        ([words.scalar(a.get(name), _TELLING) or "" for a in args] for name in names),
        key=lambda v: len(set(v)),
        default=[],
    )
    if len(set(best)) < 2:
        return ["" if i == 0 else f"{i + 1}" for i in range(len(nodes))]
    seen: Counter[str] = Counter()
    out = []
    for value in _without_common_folder(best):
        seen[value] += 1
        out.append(value if seen[value] == 1 else f"{value} {seen[value]}".strip())
    return out


def _without_common_folder(values: list[str]) -> list[str]:
    """Addresses and paths without the part that all of them share, which tells nothing apart."""
    given = [v for v in values if v]
    low, high = min(given), max(given)  # what these two share, all share
    shared = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    cut = low.rfind("/", 0, shared) + 1
    return [v[cut:] or v for v in values]


def _arguments(node: NodeView) -> dict[str, Any]:
    if node.kind == "prompt":
        return {}
    value = words.loads(node.args)
    return value if isinstance(value, dict) else {}
