"""What a process has once, also where this package is loaded again: reloaded, or imported a second time.

Modules that are loaded anew have new globals. What others hold handles of (the registry, the store) must stay the one
that they hold, so it lies where loading does not reach.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar, cast

T = TypeVar("T")

_PLACE = "_loom_kernel_once"

_place = sys.modules.setdefault(_PLACE, ModuleType(_PLACE, "What loom_kernel has once in this process."))
_things: dict[str, Any] = _place.__dict__.setdefault("things", {})
_lock = _place.__dict__.setdefault("lock", threading.RLock())


def once(name: str, make: Callable[[], T]) -> T:
    """The thing of that name, made by whoever asks first."""
    with _lock:
        if name not in _things:
            _things[name] = make()
        return cast(T, _things[name])


def known(name: str) -> Any:
    """The thing of that name; None while nobody has asked for it."""
    return _things.get(name)
