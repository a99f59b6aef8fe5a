"""What keeps stores current: each run that begins here is followed by the store that it belongs to.

That is the one it was started with (``run(..., store=)``), else the process's own, once somebody has asked for it: before
that, nothing is followed and nothing costs. Whatever goes wrong here is logged; it is nothing of the run's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from loom_kernel import codec, once
from loom_kernel import events as ev
from loom_kernel.views import notices
from loom_kernel.views.run import RunView
from loom_kernel.views.run_snapshot import ToolEvent
from loom_kernel.views.store import Store

if TYPE_CHECKING:
    from loom_kernel.engine.execution import Execution
    from loom_kernel.journal.abc import JournalEntry
    from loom_kernel.runtime.core import Runtime
    from loom_kernel.runtime.run import Run

STORE = "store"
"""The process's own store, as ``once`` knows it."""

PAUSE_S = 0.02
"""Seconds from one telling to the next, at least."""

SHARE = 2
"""How much longer than a telling the pause after it is."""

_OUTPUT = 400

_log = logging.getLogger("loom_kernel")


class Feeding:
    """The stores of one runtime. On the loop thread."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        # By runs that were started with one of their own; whoever gave it holds it.
        self._chosen: weakref.WeakValueDictionary[str, Store] = weakref.WeakValueDictionary()
        self._more: dict[str, list[Store]] = {}  # by runs that are shown in further ones
        self._followed: weakref.WeakKeyDictionary[Store, dict[str, Followed]] = weakref.WeakKeyDictionary()
        self._telling: weakref.WeakKeyDictionary[Store, Telling] = weakref.WeakKeyDictionary()
        self.notify_on: frozenset[str] = frozenset(notices.KINDS)

    def choose(self, run_id: str, store: Store) -> None:
        """That run, and its children, belong to this store instead of the process's own."""
        self._chosen[run_id] = store

    def add(self, run_id: str, store: Store) -> None:
        """That run, and its children, are shown in this store, too."""
        self._more.setdefault(run_id, []).append(store)

    def begun(self, execution: Execution) -> None:
        """An execution begins here."""
        try:
            created, run_id = execution.history.created, execution.run_id
            parent = created.parent_run_id if created is not None else None
            if parent is not None and (chosen := self._chosen.get(parent)) is not None:
                self._chosen.setdefault(run_id, chosen)
            if parent in self._more:
                self._more.setdefault(run_id, self._more[parent])
            stores = self._stores(run_id)
            if not stores:
                return
            run = self._runtime.run_object(run_id)
            run._attach(execution)
            for store in stores:
                self.follow(run, store, execution.entries)
        except Exception:
            _log.exception("a store does not show a run; the run goes on")

    def show(self, run: Run[Any]) -> None:
        """A run that a start has found, wherever it is executed: with the stores of that start."""
        for store in self._stores(run.id) if run.id in self._chosen or run.id in self._more else ():
            self.follow(run, store, run._execution.entries if run._execution is not None else ())

    def _stores(self, run_id: str) -> list[Store]:
        own = self._chosen.get(run_id) or once.known(STORE)
        return [*([own] if own is not None else []), *self._more.get(run_id, ())]

    def seed(self, store: Store) -> None:
        """A store that comes later: it shows what this process executes or has executed, as far as somebody holds it.

        Nothing of that is a notice any more.
        """
        for run_id in list(self._runtime.engine.executions if self._runtime.engine is not None else ()):
            self._runtime.live_run(run_id)  # makes the handles of children
        for run in list(self._runtime._runs.values()):
            if run.id not in self._chosen and run._execution is not None:
                self.follow(run, store, run._execution.entries)
            elif run.id not in self._chosen and run._last is not None:
                self.follow(run, store, (), rests=True)

    def follow(self, run: Run[Any], store: Store, entries: Iterable[JournalEntry], *, rests: bool = False) -> None:
        """Show a run from now on. What is in ``entries`` was known before."""
        runs = self._followed.setdefault(store, {})
        followed = runs.get(run.id)
        if followed is None:
            followed = runs[run.id] = Followed(self, run, store)
        store.follow(run.id, followed)
        if not rests:
            followed.listen(entries)
        self.tell(store)

    def ended(self, run: Run[Any], store: Store) -> None:
        """From here on only the store holds it."""
        self._followed[store].pop(run.id, None)
        if not run.view.resumable and store in self._more.get(run.id, ()):
            self._more[run.id] = [other for other in self._more[run.id] if other is not store]

    def gone(self, run_id: str) -> None:
        """The run was deleted from the journal."""
        for store, runs in list(self._followed.items()):
            runs.pop(run_id, None)
            store.remove_run(run_id)

    async def finish(self) -> None:
        """Tell what was not told yet: this runtime ends."""
        for telling in list(self._telling.values()):
            await telling.finish()

    def tell(self, store: Store) -> None:
        """Let its subscribers hear of what changed, soon and in another thread: what they do holds up no run."""
        if store.watched:
            self._telling.setdefault(store, Telling(self._runtime)).due(store)


class Followed:
    """One run in one store."""

    def __init__(self, feeding: Feeding, run: Run[Any], store: Store) -> None:
        self._feeding, self._run = feeding, run
        self._store = weakref.ref(store)
        self._listens = False
        self.tool_events: dict[str, list[ToolEvent]] = {}

    @property
    def view(self) -> RunView:
        return self._run.view

    def listen(self, entries: Iterable[JournalEntry]) -> None:
        """Hear what comes; ``entries`` came before."""
        store = self._store()
        if store is None or self._listens:
            return  # what came meanwhile was heard
        known = []
        for entry in entries:
            self._tools(entry)
            if entry.type in notices.TELLING and (notice := self._notice(entry)) is not None:
                known.append(notice["id"])
        store.delivered(known)
        self._listens = True
        self._run._add_listener(self._hear)

    def _hear(self, entry: JournalEntry) -> None:
        store = self._store()
        if store is None:
            self._run._remove_listener(self._hear)
            return
        try:
            self._tools(entry)
            store.changed()
            if entry.type in notices.TELLING and self.view.parent_run_id is None:
                notice = self._notice(entry)
                if notice is not None and notice["kind"] in self._feeding.notify_on:
                    store.add_notice(notice)
            if entry.type == ev.RunEnded.type:  # where it is resumed here, it begins here
                self._listens = False
                self._run._remove_listener(self._hear)
                self._feeding.ended(self._run, store)
            self._feeding.tell(store)
        except Exception:
            _log.exception("a store missed something of a run; the run goes on")

    def _notice(self, entry: JournalEntry) -> notices.WorkflowNotice | None:
        return notices.notice_of(self._run.id, self.view.workflow, entry)

    def _tools(self, entry: JournalEntry) -> None:
        """What models' tools do is told of nodes, and no part of a run's picture."""
        at = entry.created_at / 1e6
        if entry.type == ev.ToolCalled.type:
            called = cast(ev.ToolCalled, entry.event)
            tool = ToolEvent(id=called.call_id, name=called.name, started_at=at, ended_at=None)
            self.tool_events.setdefault(entry.node_id or "", []).append(tool)
        elif entry.type == ev.MessageRecorded.type and cast(ev.MessageRecorded, entry.event).role == "tool":
            said = cast(ev.MessageRecorded, entry.event)
            for tool in self.tool_events.get(entry.node_id or "", ()):
                if tool["id"] == said.tool_call_id and tool["ended_at"] is None:
                    tool["ended_at"], tool["output"] = at, codec.preview(said.text, limit=_OUTPUT).decode()


class Telling:
    """Tells one store's subscribers, in a thread, one telling at a time. It holds the store only while there is something
    to tell, and then to the end: nobody else may hold it any more."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._due: Store | None = None
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def due(self, store: Store) -> None:
        """Something changed."""
        self._due = store
        if self._task is None:
            loop = asyncio.get_running_loop()
            # Not in the context of whoever changed it: the telling would end with that run.
            self._task = loop.create_task(self._tell(), context=self._runtime.engine.context)

    async def _tell(self) -> None:
        try:
            while (store := self._due) is not None:
                self._due = None
                began = time.monotonic()
                await asyncio.to_thread(store.tell)
                # Copies of thousands of nodes take their time, which runs need too.
                with contextlib.suppress(TimeoutError):
                    pause = max(PAUSE_S, SHARE * (time.monotonic() - began))
                    await asyncio.wait_for(self._hurry.wait(), pause)
        finally:
            self._task = None

    async def finish(self) -> None:
        """Tell now what is due."""
        self._hurry.set()
        if self._task is not None:
            await asyncio.wait({self._task})
