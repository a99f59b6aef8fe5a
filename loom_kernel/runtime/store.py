"""The process's own store: the runs that this process executes, and what was noticed of them.

It is made when somebody first asks for it, and stays the same when the package is loaded again.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING

from loom_kernel import once
from loom_kernel.runtime.feeding import STORE
from loom_kernel.views.store import create_store

if TYPE_CHECKING:
    from loom_kernel.runtime.core import Runtime


def _look_around() -> None:
    """Let it know what is there already."""
    runtimes: weakref.WeakSet[Runtime] | None = once.known("runtimes")
    for runtime in list(runtimes or ()):
        runtime.feed(store)


def _after_fork() -> None:
    """Another thread may have held the lock, which does not run in the child."""
    store._lock = threading.RLock()


store = once.once(STORE, create_store)
"""Runs that are executed here from the moment the store is first used, and those of before that somebody holds."""

_look_around()
os.register_at_fork(after_in_child=_after_fork)

__all__ = ["store"]
