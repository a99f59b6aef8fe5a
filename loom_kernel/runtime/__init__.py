"""The composition root: journal, engine, people, host. The only place that wires; it decides nothing.

May know everything below it. It executes only what was started or resumed here, and shows nothing: what people see is
the host's affair.
"""

from __future__ import annotations

import atexit
import os
import threading

from loom_kernel.authoring import launcher as launcher_slot
from loom_kernel.authoring.launcher import Options
from loom_kernel.engine.plan import StartPlan
from loom_kernel.runtime.core import Runtime
from loom_kernel.runtime.host import Host, Place, ScriptHost
from loom_kernel.runtime.run import Run
from loom_kernel.runtime.runs import RunList

_runtime: Runtime | None = globals().get("_runtime")  # loading this module anew leaves runs and handles where they are
_lock = threading.Lock()
_left_behind: list[Runtime] = []


def get_runtime() -> Runtime:
    """The runtime of this process, made when first asked for. It opens nothing before something is needed."""
    global _runtime
    with _lock:
        if _runtime is None:
            make_host = launcher_slot.host_maker
            _runtime = Runtime(host=make_host() if make_host is not None else None)
            launcher_slot.launcher = _runtime
        elif launcher_slot.launcher is None:
            launcher_slot.launcher = _runtime  # that module was loaded anew
        return _runtime


def close() -> None:
    """Close the runtime of this process: runs are interrupted and can be resumed. A later call makes a new one."""
    global _runtime
    with _lock:
        runtime, _runtime = _runtime, None
        launcher_slot.launcher = None
    if runtime is not None:
        runtime.close()


def set_host(host: Host) -> None:
    """Say where the person works; the notebook does so when its extension is loaded."""
    get_runtime().host = host


def _after_fork() -> None:
    """A child of a fork has neither the thread nor the right to the connection: it starts without a runtime.

    The old one is kept alive unused, since closing it would unregister the parent's sockets.
    """
    global _runtime, _lock
    _lock = threading.Lock()
    if _runtime is not None:
        _left_behind.append(_runtime)
        _runtime._closed = True
    _runtime = None
    launcher_slot.launcher = None


os.register_at_fork(after_in_child=_after_fork)
atexit.register(close)

__all__ = [
    "Host",
    "Options",
    "Place",
    "Run",
    "RunList",
    "Runtime",
    "ScriptHost",
    "StartPlan",
    "close",
    "get_runtime",
    "set_host",
]
