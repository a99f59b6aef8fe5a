"""Threads that nobody may lose unheard: one that ends by an error tells its owner."""

from __future__ import annotations

import threading
from collections.abc import Callable


class ThreadDied(Exception):
    """A thread of the store ended by an error; the process cannot do its work any more."""


class WatchedThread(threading.Thread):
    """Args:
    name: shown to people.
    body: what it does.
    died: called on this thread with the reason when ``body`` raises, whatever it is.
    """

    def __init__(self, name: str, body: Callable[[], None], died: Callable[[Exception], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._body, self._died = body, died

    def run(self) -> None:
        try:
            self._body()
        except BaseException as error:
            reason = ThreadDied(f"the thread {self.name} has died: {type(error).__name__}: {error}")
            reason.__cause__ = error
            self._died(reason)
