"""``python -m loom_kernel.journal.hub FOLDER``: the hub as a process.

With ``--ready FD`` it detaches and says on that pipe whether it serves; without, it stays in the foreground, for a
person or a supervisor. Heavy imports wait until it has detached.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

_LOCK_WAIT_S = 1.0


def main(argv: list[str] | None = None) -> int:
    """Run a hub until it ends; the process's exit code."""
    args = sys.argv[1:] if argv is None else argv
    if len(args) not in (1, 3) or (len(args) == 3 and args[1] != "--ready"):
        print("usage: python -m loom_kernel.journal.hub FOLDER [--ready FD]", file=sys.stderr)
        return 2
    pipe = int(args[2]) if len(args) == 3 else None
    if pipe is not None:
        # We were started in a session of our own. The second fork makes us nobody's child, so that no kernel keeps a
        # zombie of us, and no terminal can become ours.
        os.set_inheritable(pipe, False)
        if os.fork():
            os._exit(0)
    return _run(args[0], pipe)


def _run(folder_name: str, pipe: int | None) -> int:
    from loom_kernel.journal.hub import paths
    from loom_kernel.journal.hub.logfile import say, take_over

    folder = paths.journal_path(folder_name)
    said = False

    def tell(**message: object) -> None:
        nonlocal said
        if said:
            return
        said = True
        from loom_kernel.journal.hub.launch import Ready
        from loom_kernel.journal.hub.protocol import encode

        if pipe is not None:
            try:
                os.write(pipe, encode(Ready(**message)))  # type: ignore[arg-type]
            except OSError:
                pass  # the starter is gone; whoever comes next will connect
            os.close(pipe)

    try:
        paths.make_folder(folder)
        if pipe is not None:
            take_over(folder / paths.HUB_LOG)
        lock = _lock(folder / paths.HUB_LOCK)
        if lock is None:
            tell(taken=True)
            if pipe is None:
                print(f"another hub serves the journal in {folder}", file=sys.stderr)
            return 1
        _serve(folder, lock, lambda: tell(taken=False))
    except Exception as error:
        from loom_kernel.errors import LoomError, StorageUnavailableError
        from loom_kernel.journal.hub.protocol import error_to_wire

        shown = error
        if isinstance(error, OSError):
            shown = paths.unopenable(folder, error)
        elif not isinstance(error, LoomError):
            shown = StorageUnavailableError(
                f"cannot open the journal in {folder}: {type(error).__name__}: {error}", str(folder)
            )
        say(f"ended: {shown}")
        if not said and pipe is None:
            print(shown, file=sys.stderr)
        elif said:
            import traceback

            say(traceback.format_exc())
        tell(error=error_to_wire(shown))
        return 1
    return 0


def _serve(folder: Path, lock: int, ready: Callable[[], None]) -> None:
    import asyncio
    import signal

    from loom_kernel.journal.duckdb_store import DuckDBRunJournal
    from loom_kernel.journal.hub.logfile import say
    from loom_kernel.journal.hub.server import IDLE_S, Hub

    def still_ours() -> bool:
        from loom_kernel.journal.hub import paths

        try:
            there, ours = os.stat(folder / paths.HUB_LOCK), os.fstat(lock)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)

    async def run() -> None:
        store = await DuckDBRunJournal.open(folder)
        store.on_fatal = _end_at_once
        hub = Hub(
            store, folder, idle_s=_seconds("LOOM_HUB_IDLE_S", IDLE_S), still_ours=still_ours, probe=_crash_point()
        )
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, hub.stop)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            await hub.serve(ready)
        finally:
            await store.close()
        say("left in good order")

    sys.setswitchinterval(0.0005)  # the applier must not keep an append waiting for five milliseconds
    try:
        asyncio.run(run())
    finally:
        os.close(lock)


def _lock(path: Path) -> int | None:
    """Take the hub's lock for the life of this process; None when another hub has it."""
    import fcntl

    end = time.monotonic() + _LOCK_WAIT_S  # somebody may just be looking whether it is free, or a hub be leaving
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except OSError:
            os.close(fd)
            if time.monotonic() > end:
                return None
            time.sleep(0.01)


def _end_at_once(error: Exception) -> None:
    """The disk may have lost what it said it kept, or a thread is gone: only opening it all anew helps."""
    from loom_kernel.journal.hub.logfile import say

    say(f"ending at once, clients will start another hub: {error}")
    os._exit(1)


def _seconds(name: str, default: float) -> float:
    try:
        return float(os.environ[name])
    except (KeyError, ValueError):
        return default


def _crash_point() -> Callable[[str], None] | None:
    """``LOOM_HUB_CRASH=point:n`` ends the process by SIGKILL at the n-th passing of a point; for tests of durability."""
    wanted = os.environ.get("LOOM_HUB_CRASH")
    if not wanted:
        return None
    import signal

    name, _, count = wanted.partition(":")
    left = int(count or 1)

    def probe(point: str) -> None:
        nonlocal left
        if point == name:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return probe


if __name__ == "__main__":
    sys.exit(main())
