"""What a person sees of one durable call, and of one open question."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from msgspec import Raw

from loom_kernel.events import NULL, ErrorRecord, MessageRecorded, PromptOpened, Shown

LOG_LINES = 2_000
"""Lines kept of one node's log; the oldest go first. The journal keeps all."""

SAID = 200
"""Messages kept of one turn of a model stage; the journal keeps all."""

SHOWN = 6
"""Previews kept of one node."""

ACTIVE = frozenset({"running", "waiting", "retrying"})
"""Node statuses in which something is still going on."""

SETTLED = frozenset({"completed", "failed", "cancelled"})
"""Node statuses in which nothing more comes, unless the run is resumed."""


class NodeKey(NamedTuple):
    """The parts of a node id, which is also its replay key: ``kind:name:identity#occurrence``."""

    kind: str
    name: str
    identity: str
    occurrence: int


def split_node_id(node_id: str) -> NodeKey:
    """Take a node id apart. An id of another form comes back as a step of that name, so that nothing is lost."""
    kind, _, rest = node_id.partition(":")
    head, hash_, occurrence = rest.rpartition("#")
    name, colon, identity = head.rpartition(":")
    if not (hash_ and colon and occurrence.isdigit()):
        return NodeKey("step", node_id, "", 1)
    return NodeKey(kind, name, identity, int(occurrence))


@dataclass(slots=True)
class NodeView:
    """One durable call of a run. Times are seconds since the epoch, durations seconds.

    Attributes:
        node_id: its id, which is its replay key.
        name: as the author wrote it.
        kind: step, tool, inline, workflow, sleep or prompt.
        status: pending, running, waiting, retrying, completed, failed or cancelled.
        parents: node ids of what had settled when it was called.
        attempts: tries so far, in all executions of the run.
        duration_s: the last attempt's body, as its worker measured it; for questions the time they stood open.
        first_at: when its first attempt began.
        queued_s: how long that waited before, for its turn under a limit.
        lost: begin and end of what went into attempts that failed, the waits after them included.
        waited_s: how long it waited for a person or a timer.
        from_journal: finished in an earlier execution; this one only read it.
        passed: the body went on after its failure.
        drift: recorded, but never asked for by the execution that ended the run.
        copied: done in the run that this one was forked from.
        log: lines that it printed, oldest first.
        cached_from, cached_at: the earlier run whose result it is, and when that was recorded; nothing ran here.
        args, result: encoded values, as the journal keeps them.
        tokens, cost_usd: what models used in it, over all tries.
        shown: what a person sees of the tables and figures that it made, the newest last.
        said: of a model stage what was said in this turn, oldest first.
        saying: what its model is just saying; nothing is kept of it.
    """

    node_id: str
    name: str
    kind: str
    status: str = "pending"
    parents: tuple[str, ...] = ()
    attempts: int = 0
    first_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    duration_s: float | None = None
    waited_s: float = 0.0
    queued_s: float = 0.0
    lost: tuple[tuple[float, float], ...] = ()
    wake_at: float | None = None
    from_journal: bool = False
    passed: bool = False
    drift: bool = False
    copied: bool = False
    error: ErrorRecord | None = None
    log: deque[str] = field(default_factory=lambda: deque(maxlen=LOG_LINES))
    progress: tuple[float, float | None] | None = None
    args: Raw = field(default_factory=lambda: NULL)
    result: Raw = field(default_factory=lambda: NULL)
    shown: deque[Shown] = field(default_factory=lambda: deque(maxlen=SHOWN))
    said: deque[MessageRecorded] = field(default_factory=lambda: deque(maxlen=SAID))
    saying: str = ""
    answered_by: str = ""
    cached_from: str = ""
    cached_at: float = 0.0
    tokens: int = 0
    cost_usd: float = 0.0
    child_run_id: str | None = None
    where: str = ""

    @property
    def occurrence(self) -> int:
        """Which call of this name and these arguments it is, from 1."""
        return split_node_id(self.node_id).occurrence

    @property
    def label(self) -> str:
        """Its name as people read it; a question ends with a question mark."""
        if self.kind != "prompt":
            return self.name
        words = self.name.replace("-", " ").replace("_", " ").strip() or "question"
        return words if words.endswith("?") else f"{words}?"


@dataclass(slots=True)
class PromptView:
    """A question that is open. ``prompt`` is what people type, ``generation`` counts up when an answer was rejected."""

    node_id: str
    opened: PromptOpened
    opened_at: float

    @property
    def prompt(self) -> str:
        return self.opened.prompt

    @property
    def kind(self) -> str:
        return self.opened.kind

    @property
    def message(self) -> str:
        return self.opened.message

    @property
    def generation(self) -> int:
        return self.opened.generation

    @property
    def options(self) -> list[str]:
        return self.opened.options

    @property
    def schema(self) -> dict[str, Any]:
        return self.opened.schema

    @property
    def shown(self) -> list[Shown]:
        return self.opened.shown

    @property
    def deadline(self) -> float | None:
        return self.opened.deadline

    @property
    def error(self) -> str:
        """Why the last answer was not taken; empty for the first."""
        return self.opened.error
