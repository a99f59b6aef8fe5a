"""A world with models: scripted ones, on a clock that jumps, in a journal that may die at any write."""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from loom_kernel.agents.asking import RetrySettings
from loom_kernel.agents.doors import Doors
from loom_kernel.agents.home import Agents
from loom_kernel.clock import Clock, VirtualClock
from loom_kernel.journal.memory_store import MemoryRunJournal
from tests.engine.harness import World, engine_on

T = TypeVar("T")

LITELLM_WARNS = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning:litellm.*", "ignore::ResourceWarning", "ignore:.*ReadOnly.*:UserWarning"
)
"""Warnings of litellm about itself, which are errors in our tests."""


class ModelWorld(World):
    """A world whose runs may ask models.

    Args:
        home: what the stages share, beside the doors.
    """

    def __init__(self, clock: Clock | None = None, journal: MemoryRunJournal | None = None, **home: Any) -> None:
        super().__init__(clock or VirtualClock(), journal)
        self._home = {"model": lambda: "scripted/demo", "retry": RetrySettings(base_s=1.0), **home}
        self.events: list[tuple[str, str, dict[str, Any]]] = []
        self._plug_in()

    def _plug_in(self) -> None:
        self.agents = Agents(doors=Doors(sleep=self.clock.sleep), **self._home)
        self.engine = engine_on(self.journal, self.clock, models=self.agents.for_run)
        self.engine.session_listeners.append(lambda run, node, event: self.events.append((run, node, dict(event))))

    async def restart(self) -> None:
        await self.engine.close()
        self._plug_in()


_runner: asyncio.Runner | None = None


def on_one_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run on the loop of all tests that ask litellm: it keeps clients by their loop's address, which another may get."""
    global _runner
    if _runner is None:
        _runner = asyncio.Runner()
        atexit.register(_runner.close)
    return _runner.run(work)
