"""``@step``: one durable thing, and the call of one as an awaitable."""

from __future__ import annotations

import inspect
import math
import sys
import threading
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from types import TracebackType
from typing import Any, Generic, Literal, NoReturn, ParamSpec, TypeVar, cast, overload

from loom_kernel.authoring import caching
from loom_kernel.authoring import launcher as launcher_slot
from loom_kernel.authoring.code import family_version
from loom_kernel.authoring.context import CancelToken, current, in_step
from loom_kernel.authoring.source import where
from loom_kernel.authoring.unknown import WORDS, CheckFn, OnUnknown
from loom_kernel.errors import DefinitionError, LoomError
from loom_kernel.policies import Retry

P = ParamSpec("P")
R = TypeVar("R")

Executor = Literal["thread", "process", "dask"]


class StepHandle:
    """What a step's body may know about itself and say while it runs; see :func:`current_step`.

    Attributes:
        attempt: which try this is, from 1.
        run_id: the run, or None outside of one.
        node_id: the call within the run, or None outside of one.
        idempotency_key: the same for every try of this call; give it to services that take one.
        cancelled: truthy once somebody asked for the end.
    """

    def __init__(
        self,
        *,
        attempt: int = 1,
        run_id: str | None = None,
        node_id: str | None = None,
        idempotency_key: str = "",
        cancelled: CancelToken | None = None,
    ) -> None:
        self.attempt = attempt
        self.run_id = run_id
        self.node_id = node_id
        self.idempotency_key = idempotency_key
        self.cancelled = cancelled or CancelToken()

    def progress(self, done: float, total: float | None = None) -> None:
        """Say how far the step is. Outside of a run nothing happens."""

    def log(self, line: str) -> None:
        """Add a line to the step's log. Outside of a run it is printed."""
        print(line)

    def usage(
        self,
        model: str = "",
        *,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cached_tokens: int = 0,
        cost_usd: float = 0.0,
    ) -> None:
        """Say what a model used that the step has asked: it counts in the run's budget and in the view ``model_calls``.

        Args:
            model: its name.
            input_tokens: tokens sent, the cached ones included.
            output_tokens: tokens received.
            cached_tokens: of those sent, how many the provider had already.
            cost_usd: US dollars.

        Outside of a run nothing is kept.

        Raises:
            ValueError: a number that cannot be: below zero, not finite, a part of a token.
        """
        for name, tokens in (("input", input_tokens), ("output", output_tokens), ("cached", cached_tokens)):
            if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:
                raise ValueError(f"usage({name}_tokens={tokens!r}): a whole number that is not negative is needed")
        if isinstance(cost_usd, bool) or not isinstance(cost_usd, (int, float)) or not 0 <= cost_usd < math.inf:
            raise ValueError(f"usage(cost_usd={cost_usd!r}): a finite number of US dollars is needed")
        if not isinstance(model, str):
            raise ValueError(f"usage(model={model!r}): the name is a text")


def current_step() -> StepHandle:
    """The step whose body is running now.

    Raises:
        LoomError: called outside of a step.
    """
    handle = in_step.get()
    if handle is None:
        raise LoomError("current_step() works inside the body of a @step only")
    return handle


class UnrecordedStepWarning(UserWarning):
    """A step was called where no run is known, so that its result is not recorded."""


class StepDefinition(Generic[P, R]):
    """A durable step. Calling it gives a :class:`StepCall`; ``.fn`` is the plain function.

    Made by :func:`step`, which documents the options.
    """

    def __init__(
        self,
        fn: Callable[P, R] | Callable[P, Awaitable[R]],
        *,
        name: str | None = None,
        retry: Retry | None = None,
        timeout_s: float | None = None,
        executor: str = "thread",
        cache: bool | str | Callable[..., Any] = False,
        ignore: Sequence[str] = (),
        key: Callable[..., Any] | None = None,
        mutates: bool = False,
        on_unknown: OnUnknown = "retry",
        store: str = "full",
        limit: int | str | None = None,
    ) -> None:
        if isinstance(fn, type) or not callable(fn):
            raise DefinitionError(f"@step stands above a function, not above a {type(fn).__name__}")
        self.name = getattr(fn, "__name__", type(fn).__name__) if name is None else name
        if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
            raise DefinitionError(
                f"step {self.name!r} is a generator; collect what it yields in a list and return that"
            )
        self.fn: Callable[P, Any] = fn
        self.signature = inspect.signature(fn)
        self.is_async = inspect.iscoroutinefunction(fn)
        self._positional = _positional(self.signature)
        self.retry = retry or Retry()
        self.timeout_s = timeout_s
        self.executor = executor
        self.cache = cache
        self.caching: caching.Caching | None = None
        self.ignore = (ignore,) if isinstance(ignore, str) else tuple(ignore)
        self.key = key
        self.mutates = mutates
        self.on_unknown = on_unknown
        self.store = store
        self.limit = limit
        self._check()
        for attribute in ("__module__", "__qualname__", "__doc__", "__wrapped__"):
            setattr(self, attribute, fn if attribute == "__wrapped__" else getattr(fn, attribute, None))
        self.__name__ = self.name

    def _check(self) -> None:
        def refuse(what: str) -> NoReturn:
            raise DefinitionError(f"step {self.name!r}: {what}")

        if not isinstance(self.name, str) or not self.name or set(self.name) & set(":#/\n"):
            refuse("the name is text without any of : # /")
        if not isinstance(self.retry, Retry):
            refuse(f"retry={self.retry!r} should be a Retry(...)")
        if self.timeout_s is not None and not (
            isinstance(self.timeout_s, (int, float)) and 0 < self.timeout_s < float("inf")
        ):
            refuse(f"timeout_s={self.timeout_s!r}: seconds above zero are needed")
        if isinstance(self.limit, str):
            if not self.limit:
                refuse('limit="": the name of a [limits.NAME] in loom.toml is needed')
        elif self.limit is not None and (
            isinstance(self.limit, bool) or not isinstance(self.limit, int) or self.limit < 1
        ):
            refuse(f"limit={self.limit!r}: a whole number of at least 1, or the name of a rate limit, is needed")
        if not callable(self.on_unknown) and self.on_unknown not in WORDS:
            refuse(f"on_unknown={self.on_unknown!r} is none of {', '.join(WORDS)}, and no function to ask")
        for option, known in (
            ("executor", ("thread", "process", "dask")),
            ("store", ("full", "digest", "pickle")),
        ):
            if getattr(self, option) not in known:
                refuse(f"{option}={getattr(self, option)!r} is none of {', '.join(known)}")
        unknown = [p for p in self.ignore if p not in self.signature.parameters]
        if unknown:
            refuse(f"ignore names {', '.join(map(repr, unknown))}, which is no parameter of it")
        try:
            self.caching = caching.read(self.cache)
        except ValueError as wrong:
            refuse(str(wrong))
        if self.caching is not None and self.store == "digest":
            refuse('cache= needs the result, of which store="digest" keeps nothing')
        if self.caching is not None and self.mutates:
            refuse("cache= would give its result without changing its arguments, as mutates=True says it does")
        if self.key is not None and not callable(self.key):
            refuse("key should be a function of the same parameters")

    @property
    def code(self) -> str:
        """Hash of what the step does now; see :func:`~loom_kernel.authoring.code.code_version`."""
        return family_version(self.fn)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> StepCall[R]:
        if in_step.get() is not None:
            # A step within a step is part of it: the plain function, whatever that returns.
            return cast("StepCall[R]", self.fn(*args, **kwargs))
        if not kwargs and self._positional is not None and len(args) == len(self._positional):
            # Most calls. Binding them the general way takes a tenth of a durable step's own time.
            return StepCall(self, dict(zip(self._positional, args, strict=True)), args, {}, where(sys._getframe(1)))
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}() {error}") from None
        bound.apply_defaults()
        return StepCall(self, bound.arguments, bound.args, bound.kwargs, where(sys._getframe(1)))

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self

        def bound(*args: Any, **kwargs: Any) -> StepCall[R]:
            return self(instance, *args, **kwargs)

        return bound

    def __repr__(self) -> str:
        return f"<step {self.name}>"


class StepCall(Coroutine[Any, Any, R]):
    """One call of a step: await it, or hand it to ``gather``, a ``TaskGroup``, ``wait_for`` and their like.

    In a workflow body it is durable: its key was computed when it was made, its work begins when it is awaited.
    Elsewhere awaiting it runs the function here, without a journal.

    Attributes:
        arguments: parameter names to values, defaults included.
        args, kwargs: the same, as the function is to be called with them.
    """

    def __init__(
        self,
        definition: StepDefinition[..., R],
        arguments: dict[str, Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        where: str = "",
    ) -> None:
        self._begun = True  # until the coroutine exists there is nothing to warn about
        self.definition = definition
        self.arguments, self.args, self.kwargs = arguments, args, kwargs
        self.where = where
        self.__name__ = definition.name
        self.__qualname__ = definition.name
        context = current.get()
        if context is None:
            _warn_if_lost(definition.name)
            self._coroutine: Coroutine[Any, Any, R] = _run_here(definition, args, kwargs)
        else:
            self._coroutine = context._call_step(self)
        self._begun = False

    def send(self, value: Any) -> Any:
        self._begun = True
        return self._coroutine.send(value)

    def throw(self, typ: Any, val: BaseException | object = None, tb: TracebackType | None = None) -> Any:
        self._begun = True
        if val is None and tb is None:
            return self._coroutine.throw(typ)
        return self._coroutine.throw(typ, val, tb)

    def close(self) -> None:
        self._begun = True
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, R]:
        self._begun = True
        return self._coroutine.__await__()

    def __del__(self) -> None:
        if self._begun:
            return
        self._begun = True
        # Closed first: otherwise Python would warn too, and name a coroutine of ours.
        self._coroutine.close()
        warnings.warn(
            f"step {self.definition.name!r} was called at {self.where} and never awaited, so it did not run",
            RuntimeWarning,
            stacklevel=2,
        )

    def __repr__(self) -> str:
        return f"<call of step {self.definition.name}>"


def _positional(signature: inspect.Signature) -> tuple[str, ...] | None:
    """The parameters' names, where all of them may be given by position."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if all(parameter.kind in kinds for parameter in signature.parameters.values()):
        return tuple(signature.parameters)
    return None


async def _run_here(definition: StepDefinition[..., R], args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
    token = in_step.set(StepHandle())
    try:
        result = definition.fn(*args, **kwargs)
        if inspect.isawaitable(result):
            result = await result
        return cast(R, result)
    finally:
        in_step.reset(token)


_warned = False


def _warn_if_lost(name: str) -> None:
    """A bare thread inside a run does not know the run; say so once, since results would silently not be kept."""
    global _warned
    live = launcher_slot.launcher
    if _warned or live is None or threading.current_thread() is threading.main_thread() or not live.live():
        return
    _warned = True
    warnings.warn(
        f"step {name!r} was called in a thread that does not know its run, so it is not recorded. Start the thread with "
        "asyncio.to_thread(...), or carry the run: ctx = contextvars.copy_context(); Thread(target=ctx.run, args=(fn,)).",
        UnrecordedStepWarning,
        stacklevel=4,
    )


@overload
def step(fn: Callable[P, Coroutine[Any, Any, R]], /) -> StepDefinition[P, R]: ...
@overload
def step(fn: Callable[P, R], /) -> StepDefinition[P, R]: ...
@overload
def step(
    name: str | None = None,
    /,
    *,
    retry: Retry | None = None,
    timeout_s: float | None = None,
    executor: Executor = "thread",
    cache: bool | str | Callable[..., Any] = False,
    ignore: Sequence[str] = (),
    key: Callable[..., Any] | None = None,
    mutates: bool = False,
    on_unknown: Literal["retry", "fail", "ask"] | CheckFn = "retry",
    store: Literal["full", "digest", "pickle"] = "full",
    limit: int | str | None = None,
) -> _StepDecorator: ...
def step(fn: Any = None, /, *, name: str | None = None, **options: Any) -> Any:
    """Make a function a durable step, identified by its name and arguments.

    Written ``@step`` or ``@step(...)``. The function may be sync (it runs in a thread) or async. It returns JSON,
    tables or arrays, which come back as they were.

    Args:
        name: its name; the function's own when left out.
        retry: how often to try again; once when left out.
        timeout_s: seconds an attempt may take.
        executor: where a sync function runs: ``"thread"``, ``"process"`` or ``"dask"``.
        cache: give the result of an earlier run of the same step with the same code and arguments, without running.
            ``True``, or how old it may be (``"90s"``, ``"15m"``, ``"12h"``, ``"7d"``), or a function of the same
            parameters whose result stands for them. A result that is gone with its run is made again.
        ignore: parameters that do not identify the call, such as a connection.
        key: function of the same parameters whose result identifies the call instead of them.
        mutates: allow the function to change its arguments in place.
        on_unknown: after a crash in the middle of an attempt: ``"retry"`` runs it again, ``"fail"`` fails it,
            ``"ask"`` asks the person. A function, sync or async, is given an :class:`UnknownAttempt` and says how far
            it came: ``Finished(value)`` with the result, or one of the three words. One that raises asks the person.
        store: ``"full"`` keeps the result, ``"digest"`` only its hash, ``"pickle"`` what nothing else can keep.
        limit: how many calls of it run at once; or the name of a rate limit in ``loom.toml``, ``[limits.NAME]``.

    Raises:
        DefinitionError: a generator, a class, or an option out of its range.
    """
    if isinstance(fn, str):
        fn, name = None, fn
    if fn is not None:
        return StepDefinition(fn, name=name, **options)
    return lambda function: StepDefinition(function, name=name, **options)


class _StepDecorator:
    """For type checkers: what ``@step(...)`` is."""

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> StepDefinition[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> StepDefinition[P, R]: ...
    def __call__(self, fn: Any, /) -> Any:
        raise NotImplementedError


__all__ = ["StepCall", "StepDefinition", "StepHandle", "UnrecordedStepWarning", "current_step", "step"]
