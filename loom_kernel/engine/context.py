"""The engine's ``Context``: what a body asks for, turned into calls of its execution."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import os
import random
import sys
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, Unpack, cast
from uuid import UUID

import msgspec
from msgspec import Raw

from loom_kernel import codec
from loom_kernel import events as ev
from loom_kernel.authoring.agents import StageHandle, StageOptions, Step, TaskOptions, TaskResult, check_options
from loom_kernel.authoring.code import inline_version
from loom_kernel.authoring.context import CancelToken, Context, ExitStatus, in_step
from loom_kernel.authoring.people import People, Question
from loom_kernel.authoring.result import RunResult
from loom_kernel.authoring.source import where
from loom_kernel.authoring.step import StepCall, StepDefinition
from loom_kernel.authoring.storage import StorageAccess
from loom_kernel.authoring.workflow import WorkflowDefinition
from loom_kernel.engine import artifacts, caching, children, prompts, sleeps, steps
from loom_kernel.engine.calls import Durable
from loom_kernel.engine.executor import Work, check_executor
from loom_kernel.engine.frontier import Branch
from loom_kernel.engine.keys import identify, identify_content, identify_step
from loom_kernel.engine.parallel import Parallel, check, check_names, drop
from loom_kernel.engine.port import RunPort
from loom_kernel.engine.stages import StagePort
from loom_kernel.engine.steps import Plan
from loom_kernel.errors import DefinitionError, LoomError
from loom_kernel.ids import RunId
from loom_kernel.journal.abc import Append
from loom_kernel.policies import Budget, Retry

if TYPE_CHECKING:
    from loom_kernel.engine.execution import Execution

T = TypeVar("T")

_TOOL_MAX_INTERVAL_S = 3_600.0

_PATIENCE_S = 30.0
"""How long a thread waits for the loop to name its call."""


class RunContext(Context):
    """``ctx`` of a body. Thin: it checks what was asked for and names the call; the work is elsewhere in this room."""

    def __init__(self, execution: Execution) -> None:
        self._x = execution
        self._ui: People | None = None
        self._storage: StorageAccess | None = None
        self._models: Any = None
        self._inputs: Any = None

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """A task was made in the body's context; it ends with the body."""
        self._x.adopt(task)

    @property
    def replaying(self) -> bool:
        """Whether the body is still where it was in an earlier execution; what it prints is not printed again."""
        return self._x.replaying

    # ------------------------------------------------------------ facts

    @property
    def inputs(self) -> Any:
        if self._inputs is None:
            self._inputs = self._x.definition.inputs_object(self._x.inputs)
        return self._inputs

    @property
    def run_id(self) -> RunId:
        return self._x.run_id

    @property
    def cwd(self) -> Path:
        created = self._x.history.created
        return Path((created.cwd if created is not None else "") or os.getcwd())

    @property
    def cancelled(self) -> CancelToken:
        return self._x.cancelled

    @property
    def ui(self) -> People:
        if self._ui is None:
            make = self._x.engine.capability("ui", "questions to a person (ctx.ui)")
            self._ui = make(self._ask)
        return self._ui

    # ------------------------------------------------------------ durable work

    def _call_step(self, call: StepCall[T]) -> Coroutine[Any, Any, T]:
        definition, x = call.definition, self._x
        if not x.on_thread:
            return self._call_from_thread(call)
        x.gate()
        if definition.executor != "thread":
            check_executor(definition.name, definition.executor, definition.fn)
        arguments, args, kwargs = call.arguments, call.args, call.kwargs
        identity = identify_step(definition, arguments, args, kwargs, x.aliases)
        made = x.called("step", definition.name, identity.text, call.where)
        made.preview = lambda: _preview(arguments)
        work = Work(
            name=definition.name,
            fn=definition.fn,
            args=args,
            kwargs=kwargs,
            is_async=definition.is_async,
            identity=identity,
            timeout_s=definition.timeout_s,
            executor=definition.executor,
            store=definition.store,
        )
        plan = Plan(
            work,
            definition.retry,
            on_unknown=definition.on_unknown,
            code=x.codes.get(definition) or x.codes.setdefault(definition, definition.code),
            limit=(definition.name, definition.limit) if isinstance(definition.limit, int) else None,
            rate=definition.limit if isinstance(definition.limit, str) else None,
        )
        if definition.caching is not None:
            plan.cache = caching.wanted(x, call, identity, plan.code)
        return steps.drive(x, made, plan)

    def _call_from_thread(self, call: StepCall[T]) -> Coroutine[Any, Any, T]:
        """A call in a thread that carries the run: it gets its key on the loop, and works there."""
        loop = self._x.loop
        made: concurrent.futures.Future[Coroutine[Any, Any, T]] = concurrent.futures.Future()

        def make() -> None:
            try:
                made.set_result(self._call_step(call))
            except BaseException as error:
                made.set_exception(error)

        loop.call_soon_threadsafe(make)
        coroutine = made.result(_PATIENCE_S)

        async def work() -> T:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, loop))

        return work()

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
        x = self._x
        x.gate()
        at = where(sys._getframe(1))
        _check_name("ctx.tool", name)
        if interval_ms is not None:
            interval_s = _seconds(name, "interval_ms", interval_ms)
        if timeout_ms is not None:
            if timeout_s is not None:
                raise DefinitionError(f"ctx.tool({name!r}): timeout_s and timeout_ms are the same; give one of them")
            timeout_s = _seconds(name, "timeout_ms", timeout_ms)
        if failure_mode not in ("throw", "return"):
            raise DefinitionError(f'ctx.tool({name!r}): failure_mode={failure_mode!r} is neither "throw" nor "return"')
        if not callable(fn):
            raise DefinitionError(f"ctx.tool({name!r}): fn is a {type(fn).__name__}; a function is needed")
        _check_timeout(f"ctx.tool({name!r})", timeout_s)
        retry = Retry()
        if retries_allowed:
            try:
                retry = Retry(
                    max_attempts=max_attempts,
                    interval_s=interval_s,
                    backoff=backoff_rate,
                    max_interval_s=_TOOL_MAX_INTERVAL_S,
                    jitter=False,
                )
            except ValueError as error:
                raise DefinitionError(f"ctx.tool({name!r}): {error}") from None
        returns = failure_mode == "return"
        codec.encode(args, path=f"args of tool {name!r}", allow_nan=False)
        identity = identify(name, {"args": args, **({"failure_mode": "return"} if returns else {})})
        made = x.called("tool", name, identity.text, at)
        made.preview = lambda: codec.preview(args)
        takes = _positional(fn)
        passed = () if takes == 0 else (args,)
        work = Work(
            name=name,
            fn=fn,
            args=passed,
            kwargs={},
            is_async=inspect.iscoroutinefunction(fn),
            identity=identity,
            timeout_s=timeout_s,
            allow_nan=False,
        )
        return Durable(
            steps.drive(x, made, Plan(work, retry, code=inline_version(fn), tool=True, returns_failure=returns)),
            f"tool {name!r}",
            at,
        )

    def step(
        self, name: str, fn: Callable[[], T | Awaitable[T]], *, max_attempts: int = 3, schema: Any = None
    ) -> Coroutine[Any, Any, T]:
        x = self._x
        x.gate()
        at = where(sys._getframe(1))
        _check_name("ctx.step", name)
        if not callable(fn):
            raise DefinitionError(f"ctx.step({name!r}): fn is a {type(fn).__name__}; a function is needed")
        try:
            retry = Retry(max_attempts=max_attempts)
        except ValueError as error:
            raise DefinitionError(f"ctx.step({name!r}): {error}") from None
        finish = restore = None
        if schema is not None:
            from pydantic import TypeAdapter

            adapter = TypeAdapter(schema)
            finish = restore = adapter.validate_python
        made = x.called("inline", name, "", at)
        work = Work(name=name, fn=fn, args=(), kwargs={}, is_async=inspect.iscoroutinefunction(fn), finish=finish)
        return Durable(
            steps.drive(x, made, Plan(work, retry, code=inline_version(fn), restore=restore)), f"step {name!r}", at
        )

    def map(
        self,
        step: StepDefinition[..., T],
        items: Iterable[Any],
        *,
        concurrency: int | None = None,
        executor: str | None = None,
    ) -> Coroutine[Any, Any, list[T]]:
        self._x.gate()
        if not isinstance(step, StepDefinition):
            raise DefinitionError(f"ctx.map: the first argument is a @step, not a {type(step).__name__}")
        if executor is not None and executor != step.executor:
            step = _elsewhere(step, executor)
        calls = [step(item) for item in items]
        return self._parallel(calls, concurrency, True, f"ctx.map({step.name})", where(sys._getframe(1)))

    def parallel(
        self,
        items: Sequence[Awaitable[Any] | Step],
        *,
        concurrency: int | None = None,
        fail_fast: bool = True,
        possible_stage_names: Sequence[str] | None = None,
        **shared: Any,
    ) -> Coroutine[Any, Any, list[Any]]:
        branches = list(items)
        at = where(sys._getframe(1))
        try:
            self._x.gate()
            check_names(possible_stage_names)
            if any(isinstance(item, Step) for item in branches):
                branches = self._agents.branches(branches, shared, at)
            elif shared:
                check_options("ctx.parallel", shared, frozenset())
        except BaseException:
            drop([item for item in branches if not isinstance(item, Step)])
            raise
        names = tuple(possible_stage_names or ())
        return self._parallel(branches, concurrency, fail_fast, "ctx.parallel", at, names)

    def _parallel(
        self,
        items: list[Any],
        concurrency: int | None,
        fail_fast: bool,
        what: str,
        at: str,
        names: tuple[str, ...] = (),
    ) -> Coroutine[Any, Any, list[Any]]:
        check(items, concurrency)
        concurrency = concurrency or self._x.concurrency
        here = self._x.branch()
        # One frontier for all of them, also for those that begin when others have ended already.
        branches = [Branch(here) for _ in items]
        return Durable(Parallel(self._x, items, branches, concurrency, fail_fast, names).run(), what, at)

    def workflow(
        self,
        child: WorkflowDefinition[Any, T],
        *,
        inputs: dict[str, Any] | None = None,
        stage_name: str | None = None,
        budget: Budget | None = None,
    ) -> Coroutine[Any, Any, RunResult[T]]:
        x = self._x
        x.gate()
        at = where(sys._getframe(1))
        if not isinstance(child, WorkflowDefinition):
            raise DefinitionError(
                f"ctx.workflow takes a @workflow definition, not a {type(child).__name__}; import it and hand it over"
            )
        if stage_name is not None:
            _check_name("ctx.workflow", stage_name)
        values = child.validate_inputs(inputs or {})
        identity = identify_content(child.normalized_name, identify(child.name, values, aliases=x.aliases).text)
        made = x.called("workflow", stage_name or child.normalized_name, identity, at)
        made.preview = lambda: codec.preview(values)
        return Durable(children.drive(x, made, child, values, budget), f"workflow {child.name!r}", at)

    # ------------------------------------------------------------ models

    @property
    def _agents(self) -> Any:
        if self._models is None:
            make = self._x.engine.capability("models", "models (ctx.task, ctx.chain, ctx.stage, ctx.models)")
            self._models = make(StagePort(self._x))
        return self._models

    @property
    def models(self) -> Any:
        return self._agents.catalogue

    def task(self, name: str, **options: Unpack[TaskOptions]) -> Coroutine[Any, Any, TaskResult]:
        self._x.gate()
        _check_name("ctx.task", name)
        return self._agents.task(name, options, where(sys._getframe(1)))

    def chain(
        self,
        steps: Sequence[Step],
        *,
        task: str | None = None,
        chain_dir: str | PathLike[str] | None = None,
        **shared: Any,
    ) -> Coroutine[Any, Any, list[TaskResult]]:
        self._x.gate()
        at = where(sys._getframe(1))
        return Durable(self._agents.chain(list(steps), task, chain_dir, shared, at), "ctx.chain", at)

    def stage(self, name: str, **options: Unpack[StageOptions]) -> StageHandle:
        self._x.gate()
        _check_name("ctx.stage", name)
        return self._agents.stage(name, options, where(sys._getframe(1)))

    def sleep(
        self, label: str, duration_or_datetime: float | timedelta | datetime, *, correlation_id: str | None = None
    ) -> Coroutine[Any, Any, None]:
        x = self._x
        x.gate()
        at = where(sys._getframe(1))
        _check_name("ctx.sleep", label)
        sleeps.seconds_of(label, duration_or_datetime, 0.0)
        made = x.called("sleep", label, "", at)
        return Durable(sleeps.drive(x, made, duration_or_datetime, correlation_id), f"sleep {label!r}", at)

    def _ask(self, question: Question) -> Coroutine[Any, Any, Any]:
        """How ``ctx.ui`` puts a question: it gets its key now."""
        x = self._x
        x.gate()
        shown, shown_hash = prompts.show(x, question.show)
        shown_hash = question.identity or shown_hash
        made = x.called("prompt", question.name, "", question.where)
        return Durable(
            prompts.drive(x, made, question, shown, shown_hash), f"question {question.name!r}", question.where
        )

    # ------------------------------------------------------------ recorded values

    def now(self) -> datetime:
        return cast(datetime, self._recorded("now", lambda: datetime.fromtimestamp(self._x.engine.clock.time(), UTC)))

    def random(self) -> float:
        return cast(float, self._recorded("random", random.random))

    def uuid4(self) -> UUID:
        return cast(UUID, self._recorded("uuid4", uuid.uuid4))

    def _recorded(self, kind: str, make: Callable[[], Any]) -> Any:
        x = self._x
        x.gate()
        if in_step.get() is not None:
            raise LoomError(f"ctx.{kind}() belongs in the workflow's body; inside a step use Python's own")
        key = x.keys.key(kind, "")
        known = x.history.values.get(key)
        if known is not None:
            return codec.decode_now(bytes(known.value))
        if x.dry is not None:
            x.dry.value(kind, "", where(sys._getframe(2)))
        value = make()
        x.recorder.ride(ev.ValueRecorded(kind=kind, value=Raw(codec.encode(value).json)), key, key)
        return value

    def put(self, name: str, value: Any) -> Coroutine[Any, Any, None]:
        x = self._x
        x.gate()
        at = where(sys._getframe(1))
        _check_name("ctx.put", name)
        if in_step.get() is not None:
            raise LoomError(
                f"ctx.put({name!r}) belongs in the workflow's body; in a step return the value, or use ctx.storage.commit"
            )
        key = x.keys.key("put", name)
        known = x.history.values.get(key)
        encoded = None
        if known is None or x.history.edits:
            encoded = codec.encode(value, path=f"the value put as {name!r}")
            if known is not None and bytes(known.value) == encoded.json:
                encoded = None
        if encoded is not None and encoded.stands_in:
            value = codec.decode_now(encoded.json, dict(encoded.blobs).__getitem__)  # a picture, as after a restart

        async def keep() -> None:
            x.gate()
            if encoded is None:
                assert known is not None
                x.kept[name] = await x.decode(known.value)
                return
            if x.dry is not None:
                if known is None:
                    x.dry.value("put", name, at)
                x.kept[name] = value
                return
            await x.put_blobs(encoded)
            event = ev.ValueRecorded(kind="put", name=name, value=Raw(encoded.json))
            found = artifacts.of_put(value, encoded)
            kept = artifacts.appends(x, key, name, "put", (found,), f"{key}:artifact{x.again}")
            await x.recorder.commit([Append(event, key, f"{key}{x.again}"), *kept])
            x.kept[name] = value

        return Durable(keep(), f"put {name!r}", at)

    def get(self, name: str, default: Any = None) -> Any:
        return self._x.kept.get(name, default)

    @property
    def storage(self) -> StorageAccess:
        if self._storage is None:
            make = self._x.engine.capability("storage", "what the project keeps (ctx.storage)")
            self._storage = make(RunPort(self._x))
        return self._storage

    # ------------------------------------------------------------ output and ending

    def report(self, line: str) -> None:
        self._x.gate()
        self._x.report(line if isinstance(line, str) else str(line))

    def emit(self, namespace: str, value: Any) -> None:
        self._x.gate()
        _check_name("ctx.emit", namespace)
        self._x.report(value, namespace)

    def exit(
        self,
        status: ExitStatus = "completed",
        *,
        reason: str | None = None,
        outputs: dict[str, Any] | None = None,
        resumable: bool = False,
    ) -> NoReturn:
        self._x.exit(status, reason, outputs, resumable)


_ATOMS = frozenset({str, int, float, bool, type(None)})


def _preview(arguments: dict[str, Any]) -> bytes:
    """The arguments in short. Most are a few plain values, which need no care."""
    for value in arguments.values():
        if type(value) not in _ATOMS:
            return codec.preview(arguments)
    try:
        raw = msgspec.json.encode(arguments)
    except (OverflowError, UnicodeEncodeError):
        return codec.preview(arguments)
    return raw if len(raw) <= 500 else codec.preview(arguments)


def _check_name(what: str, name: Any) -> None:
    if not isinstance(name, str) or not name.strip() or "\n" in name or "#" in name:
        raise DefinitionError(f"{what}({name!r}): the name is a text of one line without #")


def _seconds(tool: str, name: str, milliseconds: Any) -> float:
    """Atomic's spelling of a wait.

    Raises:
        DefinitionError: it is no number.
    """
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, (int, float)):
        raise DefinitionError(f"ctx.tool({tool!r}): {name}={milliseconds!r}: a number of milliseconds is needed")
    return milliseconds / 1000


def _check_timeout(what: str, timeout_s: Any) -> None:
    if timeout_s is None:
        return
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or not 0 < timeout_s < float("inf"):
        raise DefinitionError(f"{what}: timeout_s={timeout_s!r}: seconds above zero are needed")


def _positional(fn: Callable[..., Any]) -> int:
    """How many positional arguments a callback takes."""
    try:
        parameters: Mapping[str, inspect.Parameter] = inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return 1  # a built-in that does not say
    kinds = [p.kind for p in parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return 1
    return sum(kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds)


def _elsewhere(step: StepDefinition[..., T], executor: str) -> StepDefinition[..., T]:
    """The same step, run in another place."""
    return StepDefinition(
        step.fn,
        name=step.name,
        retry=step.retry,
        timeout_s=step.timeout_s,
        executor=executor,
        cache=step.cache,
        ignore=step.ignore,
        key=step.key,
        mutates=step.mutates,
        on_unknown=step.on_unknown,
        store=step.store,
        limit=step.limit,
    )
