"""An event loop whose order is a seed's, and whose time jumps: races that can be met again."""

from __future__ import annotations

import asyncio
import random
import selectors
from collections import deque
from typing import Any


class Stuck(RuntimeError):
    """Nothing is ready, no timer runs, and no thread says anything: somebody waits for ever."""


class _Ready(deque[Any]):
    """What is ready, taken in an order that the seed chooses."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance

    def popleft(self) -> Any:
        if len(self) > 1:
            self.rotate(-self._chance.randrange(len(self)))
        return super().popleft()


class _Jumping(selectors.DefaultSelector):
    """Never waits for time: it passes at once."""

    loop: SeededLoop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            found = super().select(2.0)
            if not found:
                raise Stuck("nothing will ever happen again")
            return found
        if timeout > 0:
            self.loop.now += timeout
        return super().select(0)


class SeededLoop(asyncio.SelectorEventLoop):
    """What is ready runs in an order that ``seed`` chooses; the same seed gives the same order.

    Attributes:
        now: the loop's time, in seconds.
        complaints: what asyncio complained about, such as exceptions that were never retrieved.
    """

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.complaints: list[str] = []
        jumping = _Jumping()
        jumping.loop = self
        super().__init__(jumping)
        self._ready = _Ready(random.Random(seed))
        self.set_exception_handler(lambda _, context: self.complaints.append(str(context)))

    def time(self) -> float:
        return self.now
