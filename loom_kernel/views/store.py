"""The store: what the runs of a process are now and what was noticed of them, for whoever draws or watches.

It holds nothing that would be lost with it. A run of the journal is folded from its events and is only shown here; a run
that somebody records by hand is theirs. Any thread may ask and write.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypedDict, cast

import msgspec

from loom_kernel.events import TERMINAL
from loom_kernel.views.notices import WorkflowNotice
from loom_kernel.views.run import RunView
from loom_kernel.views.run_snapshot import RunSnapshot, StageSnapshot, ToolEvent, bounded, run_snapshot

KEPT = 1_000
"""Runs that are listed, about; of more, those that ended go with their notices, the oldest first. The journal has
them all."""

_OVER = frozenset({"completed", "failed", "cancelled", "skipped"})
"""Statuses of a node that has ended."""

_log = logging.getLogger("loom_kernel")


class StoreSnapshot(TypedDict):
    """Everything in a store at one moment. ``version`` counts its changes."""

    runs: list[RunSnapshot]
    notices: list[WorkflowNotice]
    version: int


Subscriber = Callable[[StoreSnapshot], Any]


class Folded(Protocol):
    """A run of the journal, as whoever follows it has it."""

    @property
    def view(self) -> RunView: ...
    @property
    def tool_events(self) -> dict[str, list[ToolEvent]]: ...


class _Held:
    """One run, and its JSON as long as it is the same."""

    __slots__ = ("_at", "_json", "folded", "given")

    def __init__(self, given: RunSnapshot | None, folded: Folded | None) -> None:
        self.given, self.folded = given, folded
        self._json: bytes | None = None
        self._at: Any = None

    @property
    def status(self) -> str:
        if self.folded is not None:
            return self.folded.view.shown_status
        return cast(RunSnapshot, self.given)["status"]

    @property
    def nested(self) -> bool:
        if self.folded is not None:
            return self.folded.view.parent_run_id is not None
        return bool(cast(RunSnapshot, self.given).get("parent_run_id"))

    def changed(self) -> None:
        self._json = None

    def json(self) -> bytes:
        if self.folded is not None:
            view = self.folded.view
            at = (view.revision, view.interrupted)
            if self._json is None or at != self._at:
                self._json, self._at = _encode(run_snapshot(view, self.folded.tool_events)), at
        elif self._json is None:
            self._json = _encode(self.given)
        return self._json


class Store:
    """Runs and notices, and who wants to hear of changes. ``loom_kernel.store`` is the process's own.

    Everything that is given out is a JSON copy (mappings, lists, texts, numbers) and may be kept.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._lock = threading.RLock()
        self._runs: dict[str, _Held] = {}
        self._notices: dict[str, WorkflowNotice] = {}
        self._told: set[str] = set()  # ids of notices that were delivered, also of those that are gone
        self._version = 0
        self._graph: StoreSnapshot | None = None
        self._subscribers: dict[object, Subscriber] = {}

    # ------------------------------------------------------------ reading

    def runs(self) -> list[RunSnapshot]:
        """The runs, in the order they were begun."""
        with self._lock:
            return [msgspec.json.decode(held.json()) for held in self._runs.values()]

    def notices(self) -> list[WorkflowNotice]:
        """The notices, the oldest first; those that were acknowledged have ``acked_at``."""
        with self._lock:
            return [cast(WorkflowNotice, dict(notice)) for notice in self._notices.values()]

    def active_run_id(self) -> str | None:
        """The newest top-level run that has not ended, else the newest nested one; None where there is none."""
        with self._lock:
            active = [(held.nested, run_id) for run_id, held in self._runs.items() if held.status not in TERMINAL]
        roots = [run_id for nested, run_id in active if not nested]
        found = roots or [run_id for _, run_id in active]
        return found[-1] if found else None

    def snapshot(self) -> StoreSnapshot:
        """A copy of everything. ``version`` is higher after every change."""
        with self._lock:
            return {"runs": self.runs(), "notices": self.notices(), "version": self._version}

    def graph_snapshot(self) -> StoreSnapshot:
        """For drawing: without values, with short texts and a bounded number of nodes. The same object until something
        changes, so that whoever draws can tell that nothing did; it is not to be changed."""
        with self._lock:
            if self._graph is None or self._graph["version"] != self._version:
                runs = [bounded(run) for run in self.runs()]
                self._graph = {"runs": runs, "notices": self.notices(), "version": self._version}
            return self._graph

    def subscribe(self, fn: Subscriber) -> Callable[[], None]:
        """Call ``fn`` with a fresh :meth:`snapshot` after each change; returns what ends that.

        Changes that somebody writes here are told at once, in their thread. What happens in runs is told in a thread
        of its own, changes that come close together as one, the last one always. What ``fn`` raises is logged and has no effect.

        Raises:
            TypeError: it cannot be called.
        """
        if not callable(fn):
            raise TypeError(f"subscribe() takes a function, not a {type(fn).__name__}")
        ticket = object()
        with self._lock:
            self._subscribers[ticket] = fn

        def unsubscribe() -> None:
            with self._lock:
                self._subscribers.pop(ticket, None)

        return unsubscribe

    # ------------------------------------------------------------ writing

    def record_run_start(self, run: RunSnapshot) -> bool:
        """Add a run. ``tool_nodes`` must be there, ``[]`` where it has none. False when there is a run of that id.

        Raises:
            ValueError: ``id``, ``name``, ``status`` or ``tool_nodes`` is missing.
            TypeError: something in it is no JSON.
        """
        made = cast(RunSnapshot, _copy(run, "record_run_start", ("id", "name", "status", "tool_nodes")))
        made.setdefault("stages", [])
        with self._lock:
            if made["id"] in self._runs:
                return False
            self._runs[made["id"]] = _Held(made, None)
            self._moved()
        self.tell()
        return True

    def record_stage_start(self, run_id: str, stage: StageSnapshot) -> bool:
        """Add a node to a run that was recorded here, or replace the one of that id. False when the run is unknown, has
        ended, or is the journal's.

        Raises:
            ValueError: ``id`` or ``name`` is missing.
            TypeError: something in it is no JSON.
        """
        made = _copy(stage, "record_stage_start", ("id", "name"))
        made.setdefault("status", "running")

        def write(run: RunSnapshot) -> bool:
            stages = cast("list[dict[str, Any]]", run["stages"])
            place = next((i for i, known in enumerate(stages) if known.get("id") == made["id"]), len(stages))
            stages[place : place + 1] = [made]
            return True

        return self._write(run_id, write)

    def record_stage_end(self, run_id: str, stage: StageSnapshot) -> bool:
        """What became of a node. False when run or node are unknown or have ended, or the run is the journal's.

        Raises:
            ValueError, TypeError: as for :meth:`record_stage_start`.
        """
        made = _copy(stage, "record_stage_end", ("id", "name"))
        made.setdefault("status", "completed")

        def write(run: RunSnapshot) -> bool:
            known = _stage(run, made["id"])
            if known is None or known.get("status") in _OVER:
                return False
            known.update(made)  # type: ignore[typeddict-item]
            return True

        return self._write(run_id, write)

    def record_tool_start(self, run_id: str, stage_id: str, event: ToolEvent) -> bool:
        """A node's tool begins. False when run or node are unknown or have ended, or the run is the journal's.

        Raises:
            ValueError: ``name`` is missing.
            TypeError: something in it is no JSON.
        """
        made = _copy(event, "record_tool_start", ("name",))
        made.setdefault("started_at", self._now())
        made.setdefault("ended_at", None)

        def write(run: RunSnapshot) -> bool:
            stage = _stage(run, stage_id)
            if stage is None or stage.get("status") in _OVER:
                return False
            stage.setdefault("tool_events", []).append(cast(ToolEvent, made))
            return True

        return self._write(run_id, write)

    def record_tool_end(self, run_id: str, stage_id: str, event: ToolEvent) -> bool:
        """It ended: the one of that ``id``, else the newest of that name which has not. False when there is none.

        Raises:
            ValueError, TypeError: as for :meth:`record_tool_start`.
        """
        made = _copy(event, "record_tool_end", ("name",))
        if made.get("ended_at") is None:
            made["ended_at"] = self._now()

        def write(run: RunSnapshot) -> bool:
            stage = _stage(run, stage_id)
            for known in reversed(stage.get("tool_events", []) if stage is not None else []):
                same = known.get("id") == made["id"] if "id" in made else known["name"] == made["name"]
                if same and known.get("ended_at") is None:
                    known.update(made)  # type: ignore[typeddict-item]
                    return True
            return False

        return self._write(run_id, write)

    def record_run_end(self, run_id: str, status: str, result: Any = None, error: str | None = None) -> bool:
        """The end of a run that was recorded here: final. What of it was not at an end is cancelled, questions included.

        False when the run is unknown, has ended already, or is the journal's.

        Raises:
            ValueError: ``status`` is no end.
            TypeError: ``result`` is no JSON.
        """
        if status not in TERMINAL:
            raise ValueError(f"record_run_end(status={status!r}): it is one of {', '.join(sorted(TERMINAL))}")
        kept = _copy({"result": result}, "record_run_end", ())["result"]

        def write(run: RunSnapshot) -> bool:
            now = self._now()
            for stage in (*run["stages"], *run["tool_nodes"]):
                if stage.get("status") not in _OVER:
                    stage["status"], stage["ended_at"] = "cancelled", now
            run["status"], run["result"], run["error"] = status, kept, error
            run["ended_at"] = run.get("ended_at") or now
            return True

        return self._write(run_id, write)

    def remove_run(self, run_id: str) -> bool:
        """Take a run out, with its notices. The journal keeps what it has. False when it is not here."""
        with self._lock:
            if run_id not in self._runs:
                return False
            self._drop({run_id})
            self._moved()
        self.tell()
        return True

    def record_notice(self, notice: WorkflowNotice) -> bool:
        """Add a notice. False when one of that ``id`` was delivered before.

        Raises:
            ValueError: ``id`` or ``message`` is missing.
            TypeError: something in it is no JSON.
        """
        made = cast(WorkflowNotice, _copy(notice, "record_notice", ("id", "message")))
        made.setdefault("level", "info")
        made.setdefault("created_at", self._now())
        made.setdefault("acked_at", None)
        if not self.add_notice(made):
            return False
        self.tell()
        return True

    def ack_notice(self, id: str) -> bool:
        """Somebody has read it. False when there is none of that id, or it was acknowledged already."""
        with self._lock:
            notice = self._notices.get(id)
            if notice is None or notice.get("acked_at") is not None:
                return False
            notice["acked_at"] = self._now()
            self._moved()
        self.tell()
        return True

    def _write(self, run_id: str, write: Callable[[RunSnapshot], bool]) -> bool:
        with self._lock:
            held = self._runs.get(run_id)
            if held is None or held.given is None or held.given["status"] in TERMINAL or not write(held.given):
                return False
            held.changed()
            self._moved()
        self.tell()
        return True

    def _drop(self, run_ids: set[str]) -> None:
        for run_id in run_ids:
            del self._runs[run_id]
        self._notices = {id: n for id, n in self._notices.items() if n.get("run_id") not in run_ids}

    def _moved(self) -> None:
        self._version += 1

    # ------------------------------------------------------------ for whoever follows runs of the journal

    def follow(self, run_id: str, folded: Folded) -> None:
        """Show this run of the journal from now on. Nobody is told yet: :meth:`tell`."""
        with self._lock:
            known = self._runs.get(run_id)
            if known is not None and known.folded is folded:
                return
            self._runs[run_id] = _Held(None, folded)
            if len(self._runs) > KEPT + KEPT // 10:  # a tenth at a time: looking at all is not for every start
                ended = [id for id, held in self._runs.items() if held.status in TERMINAL]
                self._drop(set(ended[: max(0, len(self._runs) - KEPT)]))
            self._moved()

    def changed(self) -> None:
        """Something happened in a run that is followed. Nobody is told yet: :meth:`tell`."""
        with self._lock:
            self._moved()

    def add_notice(self, notice: WorkflowNotice) -> bool:
        """Add a notice that is JSON already, unless one of that id was delivered. Nobody is told yet: :meth:`tell`."""
        with self._lock:
            if notice["id"] in self._told:
                return False
            self._told.add(notice["id"])
            self._notices[notice["id"]] = notice
            self._moved()
            return True

    def delivered(self, ids: Iterable[str]) -> None:
        """What was known before: these notices do not come any more."""
        with self._lock:
            self._told.update(ids)

    @property
    def watched(self) -> bool:
        """Whether anybody has subscribed."""
        return bool(self._subscribers)

    def tell(self) -> None:
        """Give the subscribers a snapshot each. An error of one is logged and has no effect."""
        for fn in list(self._subscribers.values()):
            try:
                fn(self.snapshot())
            except Exception:
                _log.exception("a subscriber of the store failed; runs and the others go on")

    def __repr__(self) -> str:
        return f"<store: {len(self._runs)} runs, {len(self._notices)} notices>"


def create_store() -> Store:
    """A store of its own, which shows what is recorded in it and runs that were started with ``run(..., store=)``."""
    return Store()


def _stage(run: RunSnapshot, stage_id: str) -> StageSnapshot | None:
    return next((stage for stage in (*run["stages"], *run["tool_nodes"]) if stage.get("id") == stage_id), None)


def _encode(value: Any) -> bytes:
    return msgspec.json.encode(value)


def _copy(value: Any, what: str, needed: Iterable[str]) -> dict[str, Any]:
    """A JSON copy.

    Raises:
        ValueError: it has not what is needed.
        TypeError: it is no mapping, or something in it is no JSON.
    """
    try:
        made = msgspec.json.decode(_encode(value))
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise TypeError(f"{what}: only JSON can be recorded: {error}") from None
    if not isinstance(made, dict):
        raise TypeError(f"{what}: a mapping is needed, not {type(value).__name__}")
    missing = [name for name in needed if name not in made]
    if missing:
        raise ValueError(f"{what}: {', '.join(missing)} is missing")
    return made
