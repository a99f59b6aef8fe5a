"""A question's own widget: made when it is asked, shown while it is open, heard once."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Raw

from loom_kernel import codec
from loom_kernel import events as ev
from loom_kernel.authoring.people import Question
from loom_kernel.engine.calls import Call
from loom_kernel.errors import AnswerError, LoomError

if TYPE_CHECKING:
    from loom_kernel.engine.execution import Execution


class Mounts(Protocol):
    """Where widgets can be shown: the capability ``widgets`` gives one, or None where nobody would see them."""

    def check(self, widget: Any) -> None:
        """Raise LoomError where it is no widget that can be shown."""
        ...

    def open(self, run_id: str, widget: Any) -> Callable[[], None]:
        """Show a widget below the run, on the loop thread; returns what removes it."""
        ...


class OwnWidget:
    """The widget of one question.

    Args:
        x: the run's execution.
        question: what is asked.
        mounts: where it is shown.
    """

    def __init__(self, x: Execution, question: Question, mounts: Mounts) -> None:
        self._x, self._question, self._mounts = x, question, mounts
        self._future: asyncio.Future[ev.PromptAnswered] | None = None
        self._generation = 1
        self._value: Raw | None = None
        self._over = False
        self._remove: Callable[[], None] | None = None
        self._widget: Any = None

    async def make(self) -> None:
        """Call the author's factory.

        Raises:
            LoomError: it made no widget.
        """
        assert self._question.factory is not None
        made = self._question.factory(self.done)
        self._widget = await made if inspect.isawaitable(made) else made
        self._mounts.check(self._widget)

    def done(self, value: Any) -> None:
        """What the author's widget calls, on any thread.

        Raises:
            AnswerError: the value is not JSON, or the question is not open any more and was not answered here.
        """
        if self._over:
            if self._value is None:
                raise AnswerError(f"the question {self._question.name!r} is not open any more")
            return
        self._question.parse(value)
        raw = Raw(codec.encode(value, path="answer", allow_nan=False).json)
        try:
            self._x.loop.call_soon_threadsafe(self._take, raw)
        except RuntimeError:
            raise AnswerError(f"the run that asks {self._question.name!r} is not executed here any more") from None

    def show(self, future: asyncio.Future[ev.PromptAnswered], generation: int) -> None:
        """The question is open: from now on the widget is shown, and its answer sets ``future``."""
        self._future, self._generation = future, generation
        if self._value is not None:  # the factory was done at once
            self._answer(self._value)
        elif self._remove is None:
            self._remove = self._mounts.open(self._x.run_id, self._widget)

    def remove(self) -> None:
        """The question is open no longer."""
        self._over = True
        if self._remove is not None:
            self._remove()
            self._remove = None

    def _take(self, raw: Raw) -> None:
        if self._value is None and not self._over:
            self._value = raw
            self._answer(raw)

    def _answer(self, raw: Raw) -> None:
        if self._future is not None and not self._future.done():
            by = self._x.engine.holder.label
            self._future.set_result(ev.PromptAnswered(generation=self._generation, value=raw, by=by))


@asynccontextmanager
async def made(x: Execution, call: Call, question: Question) -> AsyncIterator[OwnWidget]:
    """The question's widget, gone at the end.

    Raises:
        LoomError: nobody would see it here, or the factory made none.
    """
    find = x.engine.capabilities.get("widgets")
    mounts: Mounts | None = find() if find is not None else None
    try:
        if mounts is None:
            raise LoomError(
                f"ctx.ui.custom({question.message!r}) needs an interactive notebook to show its widget, and there is none here"
            )
        widget = OwnWidget(x, question, mounts)
        await widget.make()
    except asyncio.CancelledError as cancel:
        x.settled(call, "cancelled")
        raise x.interruption(call, cancel) from None
    except Exception:
        x.settled(call, "failed")
        raise
    try:
        yield widget
    finally:
        widget.remove()
