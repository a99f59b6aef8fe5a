"""``@step(executor="process")``: an attempt in a process of its own, which can really be stopped.

The child is a fresh interpreter that imports the step's module; it never runs the caller's main script again. The two
talk over the child's stdin and stdout in length-prefixed frames of pickle, which only ever come from our own child.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import pickle
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from loom_kernel.codec.classes import FILE_MODULE
from loom_kernel.errors import DefinitionError, StepFailed

_HEAD = struct.Struct(">I")


def target_of(name: str, fn: Callable[..., Any]) -> tuple[str, str]:
    """Where another process finds the function: module and qualified name.

    Raises:
        DefinitionError: it cannot be found there; the sentence says what to do.
    """
    module, qualname = fn.__module__, fn.__qualname__
    main = module == "__main__" or module.startswith(FILE_MODULE)
    if main or "<locals>" in qualname or "<lambda>" in qualname:
        where = "in a notebook cell or the main script" if main else "inside another function"
        raise DefinitionError(
            f"step {name!r} is defined {where}, so another process cannot import it. "
            'Move it to a module, or use executor="thread".'
        )
    return module, qualname


class ProcessCall:
    """One attempt in a child process; ``run`` blocks a thread, ``kill`` may be called from any other."""

    def __init__(self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._name = name
        self._target = target_of(name, fn)
        try:
            self._call = pickle.dumps((args, kwargs))
        except Exception as error:
            raise DefinitionError(
                f"step {name!r}: its arguments cannot be sent to another process ({error})"
            ) from error
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False
        self._lock = threading.Lock()

    def kill(self) -> None:
        """Stop it, whatever it does."""
        with self._lock:
            self._killed = True
            if self._process is not None:
                self._process.kill()

    def run(self, handle: Any) -> Any:
        """The function's result; what it prints goes to ``handle.write``.

        Raises:
            StepFailed: the process ended without an answer.
            Exception: what the function raised.
        """
        with self._lock:
            if self._killed:
                raise StepFailed(self._name, "stopped", "it was stopped before it began")
            self._process = process = subprocess.Popen(
                [sys.executable, "-c", "from loom_kernel.engine.process import child_main; child_main()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
        assert process.stdin is not None and process.stdout is not None
        try:
            facts = {"attempt": handle.attempt, "run_id": handle.run_id, "node_id": handle.node_id}
            _write(process.stdin, (self._target, self._call, facts))
            process.stdin.close()
            while (frame := _read(process.stdout)) is not None:
                what, value = frame
                if what == "text":
                    handle.write(value)
                elif what == "progress":
                    handle.progress(*value)
                elif what == "usage":
                    handle.usage(*value[0], **value[1])
                elif what == "result":
                    return pickle.loads(value)
                else:
                    raise pickle.loads(value)
            code = process.wait()
            raise StepFailed(self._name, "process", f"its process ended without an answer (exit code {code})")
        except BrokenPipeError:
            raise StepFailed(self._name, "process", f"its process ended at once (exit code {process.wait()})") from None
        finally:
            process.stdout.close()
            if process.poll() is None:
                process.kill()
            process.wait()


def _write(stream: Any, frame: Any) -> None:
    data = pickle.dumps(frame)
    stream.write(_HEAD.pack(len(data)) + data)
    stream.flush()


def _read(stream: Any) -> Any:
    head = stream.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    (size,) = _HEAD.unpack(head)
    data = stream.read(size)
    return pickle.loads(data) if len(data) == size else None


def child_main() -> None:
    """What the child process does."""
    from loom_kernel.authoring.context import in_step
    from loom_kernel.authoring.step import StepHandle

    # The frames leave by a copy of stdout; whatever else writes to the real one must not get between them.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    lock = threading.Lock()

    def say(what: str, value: Any) -> None:
        with lock:
            _write(out, (what, value))

    class Printed:
        encoding = "utf-8"

        def write(self, text: str) -> int:
            say("text", text)
            return len(text)

        def flush(self) -> None:
            pass

        def isatty(self) -> bool:
            return False

    class ChildHandle(StepHandle):
        def progress(self, done: float, total: float | None = None) -> None:
            say("progress", (done, total))

        def usage(self, *args: Any, **numbers: Any) -> None:
            super().usage(*args, **numbers)
            say("usage", (args, numbers))

    frame = _read(sys.stdin.buffer)
    if frame is None:
        return
    (module, qualname), call, facts = frame
    sys.stdout = sys.stderr = Printed()
    try:
        fn: Any = importlib.import_module(module)
        for part in qualname.split("."):
            fn = getattr(fn, part)
        fn = getattr(fn, "fn", fn)
        args, kwargs = pickle.loads(call)
        in_step.set(ChildHandle(idempotency_key=f"{facts['run_id']}:{facts['node_id']}", **facts))
        result = fn(*args, **kwargs)
        if inspect.iscoroutine(result):
            result = asyncio.run(result)
        answer = ("result", pickle.dumps(result))
    except BaseException as error:
        answer = ("error", _pickled_error(error))
    say(*answer)


def _pickled_error(error: BaseException) -> bytes:
    try:
        data = pickle.dumps(error)
        pickle.loads(data)
        return data
    except Exception:
        kind = f"{type(error).__module__}.{type(error).__qualname__}".replace("builtins.", "")
        return pickle.dumps(StepFailed("", kind, str(error)))
