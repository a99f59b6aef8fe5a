"""Cancelling by a signal: scopes that say "stop", and the registry in which each run that is executed here has one.

Aborting asks; it ends no thread and no process. A run whose scope is aborted is killed: no call begins any more, those
at work are cancelled and waited for, and its end is durable. Source: Atomic's cancellation registry.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from loom_kernel import events as ev
from loom_kernel.authoring.context import CancelToken
from loom_kernel.engine.endings import cancelled
from loom_kernel.errors import DefinitionError
from loom_kernel.once import once

if TYPE_CHECKING:
    from loom_kernel.engine.execution import Execution
    from loom_kernel.runtime.core import Runtime

LOOK_S = 0.05
"""How often an event of another loop or thread is looked at."""

_log = logging.getLogger("loom_kernel")


class Controller(Protocol):
    """What a registry can abort."""

    def abort(self, reason: Any = None) -> None:
        """Ask for the end. Twice is once."""
        ...


class CancelScope:
    """Something that may be aborted, once. Any thread may ask and listen. Give it as ``run(..., signal=scope)``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._aborted = False
        self._reason: Any = None
        self._listeners: list[Callable[[Any], None]] = []

    @property
    def aborted(self) -> bool:
        """Whether somebody has aborted it."""
        return self._aborted

    @property
    def reason(self) -> Any:
        """The first reason that was given."""
        return self._reason

    def abort(self, reason: Any = None) -> None:
        """Abort it. What listens is called in this thread; the first reason stays."""
        with self._lock:
            if self._aborted:
                return
            self._aborted, self._reason = True, reason
            listeners, self._listeners = self._listeners, []
        for fn in listeners:
            try:
                fn(reason)
            except Exception:
                _log.exception("a listener of a cancel scope failed; the others are called")

    def on_abort(self, fn: Callable[[Any], None]) -> Callable[[], None]:
        """Call ``fn`` with the reason when it is aborted, at once where it is already. Returns what ends that."""
        with self._lock:
            if not self._aborted:
                self._listeners.append(fn)
        if self._aborted:
            fn(self._reason)

        def remove() -> None:
            with self._lock:
                if fn in self._listeners:
                    self._listeners.remove(fn)

        return remove

    def __repr__(self) -> str:
        return f"CancelScope({'aborted' if self._aborted else 'open'})"


class _Entry:
    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.children: dict[int, Controller] = {}  # by identity
        self.aborted = False


class CancellationRegistry:
    """Who can be aborted, by run. ``loom_kernel.cancellation_registry`` has every run that is executed here."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._entries: dict[str, _Entry] = {}

    def register(self, run_id: str, controller: Controller) -> None:
        """Say who ends this run. Registered again, it is the new one, with the children that were there."""
        with self._lock:
            known = self._entries.get(run_id)
            self._entries[run_id] = entry = _Entry(controller)
            entry.children = known.children if known is not None else {}

    def register_child(self, run_id: str, controller: Controller) -> None:
        """Something that is aborted with the run, and before it.

        Raises:
            LookupError: no run of that id is registered.
        """
        with self._lock:
            entry = self._entries.get(run_id)
            if entry is None:
                raise LookupError(f"no run {run_id!r} is registered here; a run is registered before its children")
            entry.children[id(controller)] = controller

    def unregister_child(self, run_id: str, controller: Controller) -> None:
        """It is over, and is not aborted any more."""
        with self._lock:
            entry = self._entries.get(run_id)
            if entry is not None:
                entry.children.pop(id(controller), None)

    def abort(self, run_id: str, reason: Any = None) -> bool:
        """Abort the run's children, the last one first, and then it. False when no run of that id is registered."""
        with self._lock:
            entry = self._entries.get(run_id)
            if entry is None:
                return False
            entry.aborted = True
            controllers = [*reversed(entry.children.values()), entry.controller]
        for controller in controllers:
            controller.abort(reason)
        return True

    def abort_all(self, reason: Any = None) -> int:
        """Abort every run; returns how many there were."""
        with self._lock:
            run_ids = list(self._entries)
        return sum(self.abort(run_id, reason) for run_id in run_ids)

    def unregister(self, run_id: str, controller: Controller | None = None) -> bool:
        """The run is over. With ``controller`` only if it is still that one: whoever comes late takes nobody else's away.

        Returns whether it was taken away.
        """
        with self._lock:
            entry = self._entries.get(run_id)
            if entry is None or (controller is not None and entry.controller is not controller):
                return False
            del self._entries[run_id]
            return True

    def is_aborted(self, run_id: str) -> bool:
        """Whether somebody has aborted it; False where it is not registered (any more)."""
        with self._lock:
            entry = self._entries.get(run_id)
            return entry is not None and (entry.aborted or bool(getattr(entry.controller, "aborted", False)))

    def __contains__(self, run_id: object) -> bool:
        return run_id in self._entries

    def __repr__(self) -> str:
        return f"<cancellation registry: {len(self._entries)} runs>"


def create_cancellation_registry() -> CancellationRegistry:
    """A registry of its own, for ``run(..., cancellation=)``."""
    return CancellationRegistry()


cancellation_registry: CancellationRegistry = once("cancellation registry", CancellationRegistry)
"""Of this process; the same one when this is loaded again."""


def _over(registry: CancellationRegistry, run_id: str, parent: str | None, scope: CancelScope, _: object) -> None:
    """A run rests."""
    registry.unregister(run_id, scope)
    if parent is not None:
        registry.unregister_child(parent, scope)


class Cancelling:
    """The scopes of one runtime's executions. On the loop thread."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._chosen: dict[str, CancellationRegistry] = {}

    def choose(self, run_id: str, registry: CancellationRegistry) -> None:
        """That run, and its children, are registered there instead."""
        self._chosen[run_id] = registry

    def begun(self, execution: Execution) -> None:
        """An execution begins here: it can be aborted until it rests."""
        run_id, created = execution.run_id, execution.history.created
        parent = created.parent_run_id if created is not None else None
        if parent in self._chosen:
            self._chosen.setdefault(run_id, self._chosen[parent])
        registry = self._chosen.get(run_id, cancellation_registry)
        scope = CancelScope()
        scope.on_abort(partial(self._soon, execution))
        registry.register(run_id, scope)
        child = execution.nested and parent is not None and parent in registry
        if child:
            registry.register_child(str(parent), scope)
        execution.result.add_done_callback(partial(_over, registry, run_id, str(parent) if child else None, scope))

    def obey(self, execution: Execution, signal: Any) -> None:
        """Kill the execution when the signal says so; at once, where it has said so already."""
        if isinstance(signal, CancelScope):
            remove = signal.on_abort(lambda reason: self._soon(execution, reason))
            execution.result.add_done_callback(lambda _: remove())
            return
        if _is_set(signal):
            kill(execution, getattr(signal, "reason", None))
            return
        engine = self._runtime.engine
        waiting = asyncio.get_running_loop().create_task(_wait_for(signal, execution), context=engine.context)
        execution.result.add_done_callback(lambda _: waiting.cancel())

    def _soon(self, execution: Execution, reason: Any) -> None:
        if self._runtime.loop.inside:
            kill(execution, reason)
        else:
            self._runtime.loop.loop.call_soon_threadsafe(kill, execution, reason)


def kill(execution: Execution, reason: Any) -> None:
    """End it for good, unless it is ending otherwise."""
    execution.end(cancelled(ev.CancelRequested(reason=str(reason) if reason else "aborted", kill=True)))


def check_signal(signal: Any) -> None:
    """Raises: DefinitionError when it is nothing that says "stop"."""
    if not isinstance(signal, (CancelScope, CancelToken)) and not callable(getattr(signal, "is_set", None)):
        raise DefinitionError(
            f"run(signal=...): a CancelScope, ctx.cancelled, or an event with is_set() is needed, not a {type(signal).__name__}"
        )


def _is_set(signal: Any) -> bool:
    return bool(signal) if isinstance(signal, CancelToken) else bool(signal.is_set())


async def _wait_for(signal: Any, execution: Execution) -> None:
    """An event belongs to a loop or to threads that are not ours: it is looked at, never waited for."""
    if isinstance(signal, CancelToken):
        kill(execution, await signal.wait())
        return
    while not signal.is_set():  # noqa: ASYNC110
        await asyncio.sleep(LOOK_S)
    kill(execution, None)
