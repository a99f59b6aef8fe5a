"""What going on with edited code would do, found out before anything is done: per call, reused, run again, or gone.

Pure: from what a dry replay heard and what is recorded, to the plan that a person decides about.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from loom_kernel.engine.replay import History, Record, had_effect

Fate = Literal["reused", "cached", "rerun", "depends", "runs", "gone"]
"""``reused``: answered from the record. ``cached``: answered with an earlier run's result. ``rerun``: finished, and runs again. ``depends``: comes after something that runs
again, and runs again itself only if it is called with other arguments then. ``runs``: not finished so far. ``gone``:
recorded, and not called any more."""

FATES: tuple[Fate, ...] = ("reused", "cached", "rerun", "depends", "runs", "gone")

CALL = 44
"""Characters of a call in the plan."""

FATES_KEPT = 1_000
"""Calls whose fate is kept with the question, to be drawn in the graph."""

SHOWN = 40
"""Calls that a person is shown one by one."""


@dataclass(frozen=True)
class Heard:
    """A call that the dry replay came to.

    Attributes:
        record: what is recorded of it, or of the call in whose place it stands.
        after: something before it runs again, so that it may be another call then.
    """

    node_id: str
    kind: str
    name: str
    fate: Fate
    why: str = ""
    called: Any = None
    where: str = ""
    record: Record | None = None
    after: str = ""


@dataclass(frozen=True)
class PlannedNode:
    """One row of the plan.

    Attributes:
        why: the reason, in words.
        called, recorded: its arguments now, and those of the record in whose place it stands where they differ.
    """

    node_id: str
    kind: str
    name: str
    fate: Fate
    why: str = ""
    called: Any = None
    recorded: Any = None
    where: str = ""


@dataclass(frozen=True)
class EditPlan:
    """What a resume with edited code would do.

    Attributes:
        nodes: in the order in which the body calls them; what is gone comes last.
        again: node ids of records that are given up: those calls run again.
        aside: records that may not be asked for any more, which is then no mismatch.
        problem: what the body raised during the dry replay, or why it was not followed to its end.
        version: of the body that was replayed.
    """

    nodes: tuple[PlannedNode, ...]
    again: tuple[str, ...] = ()
    aside: tuple[str, ...] = ()
    problem: str = ""
    version: str = ""
    diff: str = ""

    def of(self, fate: Fate) -> list[PlannedNode]:
        """Its nodes of that fate."""
        return [node for node in self.nodes if node.fate == fate]

    @property
    def counts(self) -> dict[str, int]:
        """How many nodes have which fate."""
        return {fate: len(self.of(fate)) for fate in FATES}

    @property
    def asks(self) -> bool:
        """Whether there is something to decide: finished work would run again, or is not asked for any more."""
        return any(node.fate in ("rerun", "gone") for node in self.nodes)

    @property
    def sentence(self) -> str:
        """The plan in one line: ``2 reused, 1 runs again, 2 depend on it``."""
        return sentence(self.counts)

    def rows(self, limit: int = SHOWN) -> tuple[list[str], list[list[str]]]:
        """Columns and rows for people; long stretches of what is reused are one row."""
        return ["step", "what happens", "why"], table(self.nodes, limit)

    def detail(self) -> dict[str, Any]:
        """What is kept with the question."""
        columns, rows = self.rows()
        few = len(self.nodes) - len(self.of("reused")) <= FATES_KEPT
        return {
            "counts": self.counts,
            "columns": columns,
            "rows": rows,
            "total": len(self.nodes),
            "fates": {node.node_id: node.fate for node in self.nodes if node.fate != "reused"} if few else None,
            "problem": self.problem,
            "diff": self.diff,
        }

    def __str__(self) -> str:
        _, rows = self.rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([self.sentence, *lines, *([self.problem] if self.problem else [])])


@dataclass(frozen=True)
class StartPlan(EditPlan):
    """What a new run would do now: which calls an earlier run answers, and which run.

    ``problem`` says where more cannot be known: what comes after a call that runs depends on what it gives.
    """

    @property
    def sentence(self) -> str:
        """The plan in one line: ``9 from the cache, 3 run``."""
        counts = self.counts
        parts = [f"{counts['cached']} from the cache"] if counts["cached"] else []
        if counts["runs"]:
            parts.append(f"{counts['runs']} {'runs' if counts['runs'] == 1 else 'run'}")
        return ", ".join(parts) or "it makes no call"


def sentence(counts: Mapping[str, int]) -> str:
    """Counts of fates in words."""
    said = []
    for fate, one, many in (
        ("reused", "reused", "reused"),
        ("cached", "from the cache", "from the cache"),
        ("rerun", "runs again", "run again"),
        ("depends", "depends on that", "depend on that"),
        ("runs", "runs for the first time", "run for the first time"),
        ("gone", "is gone", "are gone"),
    ):
        n = counts.get(fate, 0)
        if n:
            said.append(f"{n} {one if n == 1 else many}")
    return ", ".join(said) or "nothing is recorded"


_WORDS: dict[str, str] = {
    "reused": "reused",
    "cached": "from cache",
    "rerun": "runs again",
    "depends": "depends on the above",
    "runs": "runs",
    "gone": "gone",
}


def table(nodes: Sequence[PlannedNode], limit: int = SHOWN) -> list[list[str]]:
    """Rows for people. What runs again and what is gone is told first where there is no room for all."""
    rows: list[list[str]] = []
    stretch: list[PlannedNode] = []

    def fold() -> None:
        if len(stretch) > 3 and len(nodes) > limit:
            rows.append([f"{stretch[0].name} … {stretch[-1].name} ({len(stretch)})", _WORDS["reused"], ""])
        else:
            rows.extend([brief(node), _WORDS["reused"], node.why] for node in stretch)
        stretch.clear()

    for node in nodes:
        if node.fate == "reused":
            stretch.append(node)
            continue
        fold()
        rows.append([brief(node), _WORDS[node.fate], node.why])
    fold()
    if len(rows) > limit:
        left = len(rows) - limit
        rows = [*rows[:limit], [f"… and {left} more", "", ""]]
    return rows


def brief(node: PlannedNode) -> str:
    """``clean(rows=[1, 2])``: a call as people read it, on one line."""
    if node.kind in ("prompt", "sleep", "workflow") or not isinstance(node.called, dict) or not node.called:
        return node.name
    inside = ", ".join(f"{name}={_short(value)}" for name, value in node.called.items())
    text = f"{node.name}({inside})"
    return text if len(text) <= CALL else f"{text[: CALL - 2]}…)"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 20 else f"{text[:19]}…"


def assemble(
    heard: Iterable[Heard], history: History, *, can_call: Any, problem: str = "", version: str = "", diff: str = ""
) -> EditPlan:
    """The plan.

    Args:
        heard: calls of the dry replay, in order.
        history: what is recorded.
        can_call: ``can_call(kind, name)``: whether the code may still make such a call.
    """
    nodes: list[PlannedNode] = []
    again: list[str] = []
    aside: list[str] = []
    spoken: set[str] = set()
    stuck = ""
    for call in heard:
        record = call.record
        if record is not None:
            spoken.add(record.node_id)
        other = record is not None and record.node_id != call.node_id
        nodes.append(
            PlannedNode(
                node_id=call.node_id,
                kind=call.kind,
                name=call.name,
                fate=call.fate,
                why=call.why,
                called=call.called,
                recorded=decoded(record) if other and record is not None else None,
                where=call.where,
            )
        )
        if record is None:
            continue
        if call.fate == "rerun" and not other:
            again.append(record.node_id)
        if call.fate == "depends" or other:
            aside.append(record.node_id)
        if call.fate in ("rerun", "runs"):
            stuck = stuck or call.name
    ended = not problem
    for record in history.records.values():
        if record.node_id in spoken or not had_effect(record) or record.kind in ("sleep",):
            continue
        known = can_call(record.kind, record.name)
        if not ended and known and stuck:
            fate: Fate = "depends"
            why = f"not known before {stuck} has run"
        else:
            fate, why = "gone", "" if known else "the code does not call it any more"
        aside.append(record.node_id)
        nodes.append(
            PlannedNode(record.node_id, record.kind, record.name, fate, why, called=decoded(record), where=record.where)
        )
    return EditPlan(tuple(nodes), tuple(again), tuple(aside), problem, version, diff)


def decoded(record: Record) -> Any:
    """The recorded preview of its arguments."""
    try:
        return msgspec.json.decode(bytes(record.args))
    except msgspec.DecodeError:
        return None


@dataclass
class Stage:
    """How far the dry replay is: ``after`` names the first call that runs again, once it was passed."""

    after: str = ""
    heard: list[Heard] = field(default_factory=list)

    def add(self, heard: Heard) -> None:
        """A call's fate is known."""
        self.heard.append(heard)


def judge(record: Record, code: str, *, kept: bool, after: str) -> tuple[Fate, str]:
    """What happens to a call whose record answers it.

    Args:
        code: hash of what it does now.
        kept: whether the record has its value.
        after: the call before it that runs again; empty where everything before it is reused.
    """
    if record.code and code and record.code != code:
        return "rerun", "its code was edited"
    if not kept:
        return "rerun", "its result was not kept"
    if after:
        return "depends", f"after {after}, if its arguments change"
    return "reused", ""
