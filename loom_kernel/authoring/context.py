"""The context that a workflow body receives, as an interface, and which one the current call belongs to."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextvars import ContextVar
from datetime import datetime, timedelta
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, Unpack
from uuid import UUID

from loom_kernel.ids import RunId

if TYPE_CHECKING:
    from loom_kernel.authoring.agents import StageHandle, StageOptions, Step, TaskOptions, TaskResult
    from loom_kernel.authoring.people import People
    from loom_kernel.authoring.step import StepCall, StepDefinition, StepHandle
    from loom_kernel.authoring.storage import StorageAccess
    from loom_kernel.authoring.workflow import WorkflowDefinition
    from loom_kernel.policies import Budget

T = TypeVar("T")

ExitStatus = Literal["completed", "skipped", "cancelled", "blocked", "failed"]


_ASKING = threading.Lock()
"""One for all tokens: each run has one, and hardly any is ever set."""


class CancelToken:
    """Says whether somebody asked for an end. Truthy once asked; may be read from any thread."""

    def __init__(self) -> None:
        self._set = False
        self._reason: str | None = None
        self._waiters: tuple[tuple[asyncio.AbstractEventLoop, asyncio.Event], ...] = ()

    def __bool__(self) -> bool:
        return self._set

    @property
    def reason(self) -> str | None:
        """Why, or None while nobody asked."""
        return self._reason

    def raise_if_cancelled(self) -> None:
        """Raises: asyncio.CancelledError when somebody asked for an end."""
        if self._set:
            raise asyncio.CancelledError(self._reason)

    async def wait(self) -> str:
        """Return the reason as soon as somebody asks for an end."""
        event = asyncio.Event()
        with _ASKING:
            if not self._set:
                self._waiters += ((asyncio.get_running_loop(), event),)
            else:
                event.set()
        await event.wait()
        return self._reason or ""

    def set(self, reason: str = "") -> None:
        """Ask for the end. The first reason stays."""
        with _ASKING:
            if self._set:
                return
            self._reason, self._set = reason, True
            waiters, self._waiters = self._waiters, ()
        for loop, event in waiters:
            loop.call_soon_threadsafe(event.set)


class Context(ABC):
    """What a workflow body may ask for. Every durable call gets its key when it is *called*; it works when awaited."""

    # ------------------------------------------------------------ facts

    @property
    @abstractmethod
    def inputs(self) -> Any:
        """The validated inputs, read only: attributes, or the model that ``@workflow(inputs=...)`` named."""

    @property
    @abstractmethod
    def run_id(self) -> RunId:
        """The id of this run."""

    @property
    @abstractmethod
    def cwd(self) -> Path:
        """The folder the run was started in, also where it goes on from another; a child's is its parent's."""

    @property
    @abstractmethod
    def cancelled(self) -> CancelToken:
        """Whether somebody asked for this run's end, and why."""

    @property
    def signal(self) -> CancelToken:
        """Another name of :attr:`cancelled`."""
        return self.cancelled

    @property
    @abstractmethod
    def ui(self) -> People:
        """Questions to the person."""

    # ------------------------------------------------------------ durable work

    @abstractmethod
    def tool(
        self,
        name: str,
        args: Any,
        fn: Callable[..., T | Awaitable[T]],
        *,
        failure_mode: Literal["throw", "return"] = "throw",
        retries_allowed: bool = False,
        max_attempts: int = 3,
        interval_s: float = 1.0,
        backoff_rate: float = 2.0,
        timeout_s: float | None = None,
        interval_ms: float | None = None,
        timeout_ms: float | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Run ``fn(args)`` once, durably, identified by name and arguments; result and arguments are JSON.

        ``interval_ms`` and ``timeout_ms`` are the same in milliseconds, as Atomic spells them.

        With ``failure_mode="return"`` the outcome is ``{"ok": ..., "value" | "error": ..., "attempts": ..., "cached": ...}``.
        Follows Atomic's ``ctx.tool``.
        """

    @abstractmethod
    def step(
        self, name: str, fn: Callable[[], T | Awaitable[T]], *, max_attempts: int = 3, schema: Any = None
    ) -> Coroutine[Any, Any, T]:
        """Run ``fn()`` once, durably, identified by its name and occurrence only. Follows aai's ``ctx.step``."""

    @abstractmethod
    def map(
        self,
        step: StepDefinition[..., T],
        items: Iterable[Any],
        *,
        concurrency: int | None = None,
        executor: str | None = None,
    ) -> Coroutine[Any, Any, list[T]]:
        """Call ``step(item)`` for every item, at most ``concurrency`` at once; results in the order of the items."""

    @abstractmethod
    def parallel(
        self,
        items: Sequence[Awaitable[Any] | Step],
        *,
        concurrency: int | None = None,
        fail_fast: bool = True,
        possible_stage_names: Sequence[str] | None = None,
        **shared: Any,
    ) -> Coroutine[Any, Any, list[Any]]:
        """Await all branches, drawn side by side; results in their order.

        Args:
            items: anything that can be awaited, and model steps, :class:`~loom_kernel.Step`.
            concurrency: how many are at work at once; all of them when left out.
            fail_fast: the first failure ends the others and is raised; else all settle first.
            possible_stage_names: names that nodes of the branches may have, or globs (``"review-*"``). They are drawn
                as boxes to come until a node of that name is there, or the branches have settled; nothing else.
            shared: options of ``ctx.task`` for all model steps that do not say otherwise.

        Raises:
            ParallelFailure: with ``fail_fast=False``, when some branch failed; every branch has settled then.
        """

    @abstractmethod
    def workflow(
        self,
        child: WorkflowDefinition[Any, T],
        *,
        inputs: dict[str, Any] | None = None,
        stage_name: str | None = None,
        budget: Budget | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Run another workflow as part of this one and return its :class:`~loom_kernel.RunResult`.

        A child counts in the budgets of those above it, and has its own beside them: ``budget``, else its definition's.
        One whose own is spent comes back as an exit: status ``"blocked"``, ``exit_reason="budget"``.

        Raises:
            InputError: before anything runs.
            ChildWorkflowError: the child failed, was killed or was cancelled from outside.
        """

    # ------------------------------------------------------------ models

    @property
    @abstractmethod
    def models(self) -> Any:
        """Which models there are: ``current_model`` and ``list_models()``."""

    @abstractmethod
    def task(self, name: str, **options: Unpack[TaskOptions]) -> Coroutine[Any, Any, TaskResult]:
        """Give a model one task, with a session and tools of its own, and return what came of it.

        It is durable: what was said, asked and done is in the journal, and a restart goes on in the middle of the
        conversation. Identified by its name and occurrence only. Follows Atomic's ``ctx.task``; options are those of
        :class:`~loom_kernel.authoring.agents.TaskOptions`.

        Raises:
            DefinitionError: an option that does not exist or fit.
            StageFailed: no model could do it.
        """

    @abstractmethod
    def chain(
        self,
        steps: Sequence[Step],
        *,
        task: str | None = None,
        chain_dir: str | PathLike[str] | None = None,
        **shared: Any,
    ) -> Coroutine[Any, Any, list[TaskResult]]:
        """Do model steps one after the other, each with the results before it; all results in order.

        The first step without a prompt gets ``task``, later ones ``{previous}``. In prompts ``{task}`` and
        ``{previous}`` stand for these. ``shared`` are options for all steps that do not say otherwise.
        """

    @abstractmethod
    def stage(self, name: str, **options: Unpack[StageOptions]) -> StageHandle:
        """A stage whose session the body controls itself. Nothing happens before ``prompt`` or another of its methods."""

    @abstractmethod
    def sleep(
        self, label: str, duration_or_datetime: float | timedelta | datetime, *, correlation_id: str | None = None
    ) -> Coroutine[Any, Any, None]:
        """Wait durably: seconds, a timedelta, or until a moment (a naive one is local time)."""

    # ------------------------------------------------------------ recorded values

    @abstractmethod
    def now(self) -> datetime:
        """The time, UTC, recorded: a replay gets the same."""

    @abstractmethod
    def random(self) -> float:
        """A number in [0, 1), recorded."""

    @abstractmethod
    def uuid4(self) -> UUID:
        """A random UUID, recorded."""

    @abstractmethod
    def put(self, name: str, value: Any) -> Coroutine[Any, Any, None]:
        """Keep a value under a name for the rest of the run; a later ``put`` of the same name replaces it.

        It is an artifact, which SQL finds by its name: ``from artifact('name')`` where it is a table. A figure is kept
        as a picture. In the body only; a step returns what is to be kept.
        """

    @abstractmethod
    def get(self, name: str, default: Any = None) -> Any:
        """What the last ``put`` of that name kept, else ``default``."""

    @property
    @abstractmethod
    def storage(self) -> StorageAccess:
        """Artifacts and records of the project, which outlive the run."""

    # ------------------------------------------------------------ output and ending

    @abstractmethod
    def report(self, line: str) -> None:
        """Show one line in the run's view."""

    @abstractmethod
    def emit(self, namespace: str, value: Any) -> None:
        """Add a JSON value to the run's output of that namespace, which ``r.output(namespace)`` and ``chunks`` give.

        Repeated from the journal, the body emits nothing twice. The view shows lines of ``report`` only.
        """

    def writer(self, namespace: str) -> Writer:
        """``emit`` of one namespace as an object with ``write(value)``, for code that wants a stream."""
        return Writer(self, namespace)

    @abstractmethod
    def exit(
        self,
        status: ExitStatus = "completed",
        *,
        reason: str | None = None,
        outputs: dict[str, Any] | None = None,
        resumable: bool = False,
    ) -> NoReturn:
        """End the run from any depth. ``resumable`` goes with ``"failed"`` only."""

    # ------------------------------------------------------------ for the engine

    @abstractmethod
    def _call_step(self, call: StepCall[T]) -> Coroutine[Any, Any, T]:
        """Called when a ``@step`` is called: compute its key now; the coroutine works when awaited."""


class Writer:
    """Where values of one namespace go."""

    __slots__ = ("_ctx", "namespace")

    def __init__(self, ctx: Context, namespace: str) -> None:
        self._ctx, self.namespace = ctx, namespace

    def write(self, value: Any) -> None:
        """See :meth:`Context.emit`."""
        self._ctx.emit(self.namespace, value)


current: ContextVar[Context | None] = ContextVar("loom_context", default=None)
"""The run that a call belongs to."""

in_step: ContextVar[StepHandle | None] = ContextVar("loom_step", default=None)
"""Set while a step's body runs: calls of other steps are plain calls then."""
