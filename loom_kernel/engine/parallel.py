"""``ctx.parallel`` and ``ctx.map``: branches side by side, at most so many at once, drawn below one frontier."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from loom_kernel.engine.frontier import Branch
from loom_kernel.errors import DefinitionError, ParallelFailure, WorkflowBudgetExceededError

if TYPE_CHECKING:
    from loom_kernel.engine.execution import Execution


def check(items: Sequence[Any], concurrency: int | None) -> None:
    """Raises: DefinitionError when an item cannot be awaited, or the number is none."""
    if concurrency is not None and (
        isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1
    ):
        raise DefinitionError(f"concurrency={concurrency!r}: a whole number of at least 1 is needed")
    for i, item in enumerate(items):
        if not inspect.isawaitable(item):
            raise DefinitionError(
                f"ctx.parallel: item {i} is a {type(item).__name__}; the items are calls, such as `fetch(url)`"
            )


def check_names(names: Any) -> None:
    """Raises: DefinitionError when ``possible_stage_names`` is anything else than some names."""
    if names is None:
        return
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) and name.strip() for name in names):
        raise DefinitionError(
            f'ctx.parallel: possible_stage_names={names!r}: a list of names is needed, such as ["plan", "review-*"]'
        )


class Parallel:
    """One set of branches. ``await Parallel(...).run()`` gives their results in order."""

    def __init__(
        self,
        x: Execution,
        items: Sequence[Awaitable[Any]],
        branches: Sequence[Branch],
        concurrency: int | None,
        fail_fast: bool,
        names: Sequence[str] = (),
    ) -> None:
        self._names = names
        self._x, self._items, self._branches, self._fail_fast = x, items, branches, fail_fast
        self._at_once = len(items) if concurrency is None else concurrency
        self._next = 0
        self._settled = 0
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        self._begun: set[int] = set()
        self._results: list[Any] = [None] * len(items)
        self._errors: dict[int, BaseException] = {}
        self._over: asyncio.Future[None]

    async def run(self) -> list[Any]:
        """See ``Context.parallel``."""
        self._over = asyncio.get_running_loop().create_future()
        announced = 0
        try:
            self._x.gate()
            if self._names and self._branches:
                announced = self._x.announce(self._names, self._branches[0].frontier())
            while self._next < min(self._at_once, len(self._items)):
                self._start()
            if self._items:
                await self._over
        finally:
            self._over.cancel()
            await self._end()
            if announced:
                self._x.announced_over(announced)
        if self._errors:
            spent = [e for e in self._errors.values() if isinstance(e, WorkflowBudgetExceededError)]
            if len(spent) == len(self._items):  # each branch kept its result: the run is stopped, nothing has failed
                raise spent[0]
            raise ParallelFailure([self._errors[i] for i in sorted(self._errors)], self._results)
        return self._results

    def _start(self) -> None:
        i = self._next
        self._next += 1
        task = asyncio.ensure_future(self._branch(i))
        self._tasks[i] = task
        task.add_done_callback(functools.partial(self._done, i))

    async def _branch(self, i: int) -> Any:
        self._begun.add(i)
        self._x.start_branch(self._branches[i])
        return await self._items[i]

    def _done(self, i: int, task: asyncio.Task[Any]) -> None:
        del self._tasks[i]
        error: BaseException | None = asyncio.CancelledError() if task.cancelled() else task.exception()
        if self._over.done():
            return
        if error is None:
            self._results[i] = task.result()
        elif self._fail_fast or not isinstance(error, Exception):  # an exit ends the set whatever was asked for
            self._over.set_exception(error)
            return
        else:
            self._errors[i] = error
        self._settled += 1
        if self._settled == len(self._items):
            self._over.set_result(None)
        elif self._next < len(self._items):
            self._start()

    async def _end(self) -> None:
        """Siblings that are still at work are cancelled and awaited; what was not begun never is."""
        for task in self._tasks.values():
            task.cancel()
        try:
            if self._tasks:
                await asyncio.wait(tuple(self._tasks.values()))
        finally:
            drop(item for i, item in enumerate(self._items) if i not in self._begun)


def drop(items: Iterable[Any]) -> None:
    """Close calls that will never be awaited, so that nobody warns of them."""
    for item in items:
        close = getattr(item, "close", None)
        if close is not None:
            close()
