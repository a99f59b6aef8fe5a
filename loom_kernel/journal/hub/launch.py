"""Find a journal's hub, or start one. Everything here blocks; callers on an event loop use a thread.

Two locks keep it to one hub. ``start.lock`` is held by whoever is starting one, so that twenty starters make one
process and not twenty; ``hub.lock`` is held by the hub for its life, so that a second one is harmless.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from loom_kernel._version import __version__
from loom_kernel.errors import StorageUnavailableError
from loom_kernel.journal.hub import paths, protocol
from loom_kernel.journal.hub.paths import HubInfo
from loom_kernel.journal.hub.protocol import Hello, WireError
from loom_kernel.journal.liveness import boot_id
from loom_kernel.journal.migrations import SCHEMA

START_TIMEOUT_S = 60.0
"""How long a hub may take to open its journal (a migration, a long tail of the log)."""

_ENVIRONMENT = (
    "HOME", "LANG", "LOGNAME", "PATH", "TMPDIR", "TEMP", "TMP", "TZ", "USER", "XDG_RUNTIME_DIR",
    "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX",
    "PYTHONHOME", "PYTHONPATH", "PYTHONNOUSERSITE", "PYTHONUSERBASE", "PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE",
)  # fmt: skip


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """What a starting hub says on the pipe: it serves, another one does already, or why it cannot."""

    taken: bool = False
    error: WireError | None = None


STARTS = 3
"""How often a hub is started that ends without a word before it serves."""


class EndedSilently(StorageUnavailableError):
    """The hub ended before it served and said nothing: somebody killed it."""


def ensure_hub(folder: Path, *, timeout_s: float = START_TIMEOUT_S) -> None:
    """Return once a hub serves the journal in ``folder`` (a :func:`~.paths.journal_path`), started if need be.

    Raises:
        StorageUnavailableError: the journal cannot be opened; the sentence is the hub's own.
    """
    if sys.platform == "win32":
        raise StorageUnavailableError(
            "loom-kernel's journal needs Linux or macOS; on Windows run Jupyter inside WSL.", str(folder)
        )
    paths.make_folder(folder)
    end = time.monotonic() + timeout_s
    pause, died = 0.005, 0
    while not connectable(folder):
        refuse_other_host(folder)
        with _locked(folder / paths.START_LOCK) as mine:
            if mine and not connectable(folder):
                with _locked(folder / paths.HUB_LOCK) as free:
                    pass
                try:
                    if free and start_hub(folder, timeout_s=max(1.0, end - time.monotonic())):
                        return
                except EndedSilently:
                    died += 1  # killed in that moment, as it may be in any other: the next one serves
                    if died >= STARTS:
                        raise
        if time.monotonic() > end:
            raise silent_error(folder, timeout_s)
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)


def start_hub(folder: Path, *, env: Mapping[str, str] | None = None, timeout_s: float = START_TIMEOUT_S) -> bool:
    """Start a hub process and wait until it serves; False when another one was faster.

    Args:
        env: added to the environment that the hub gets.

    Raises:
        StorageUnavailableError: it could not open the journal.
    """
    ready, theirs = os.pipe()
    log_path = folder / paths.HUB_LOG
    try:
        log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        os.close(ready)
        os.close(theirs)
        raise paths.unopenable(folder, error) from None
    try:
        said_before = os.fstat(log).st_size
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "loom_kernel.journal.hub", os.fspath(folder), "--ready", str(theirs)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(theirs,),
            start_new_session=True,
            cwd="/",
            env={**environment(), **(env or {})},
        )
    except OSError as error:
        os.close(ready)
        raise StorageUnavailableError(
            f"cannot start the journal's hub with {sys.executable}: {error.strerror or error}", str(folder)
        ) from None
    finally:
        os.close(log)
        os.close(theirs)
    try:
        said = _read_all(ready, timeout_s)
    finally:
        os.close(ready)
    if said is None:
        raise silent_error(folder, timeout_s)
    child.wait()  # the one we started only made the hub and left
    try:
        answer = msgspec.msgpack.decode(said, type=Ready)
    except msgspec.DecodeError:
        last = _last_line(log_path, said_before)
        raise (StorageUnavailableError if last else EndedSilently)(
            f"the journal's hub for {folder} ended before it served{f': {last}' if last else ''}. More may be in {log_path}.",
            str(folder),
        ) from None
    if answer.error is not None:
        raise protocol.error_from_wire(answer.error)
    return not answer.taken


def environment() -> dict[str, str]:
    """What of our environment a hub gets: enough to run Python, no keys and tokens that happen to be there."""
    env = {
        name: value for name, value in os.environ.items() if name in _ENVIRONMENT or name.startswith(("LC_", "LOOM_"))
    }
    # Its working folder is /, so that it keeps no folder busy: what was found by a relative path must stay found.
    parts = [os.path.abspath(part) for part in env.get("PYTHONPATH", "").split(os.pathsep) if part]
    root = os.path.abspath(Path(__file__).parents[3])
    if root not in parts and root not in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        parts.append(root)
    if parts:
        env["PYTHONPATH"] = os.pathsep.join(parts)
    return env


def addresses(folder: Path) -> list[str]:
    """Sockets where a hub of this journal may listen, the likeliest first.

    Raises:
        StorageUnavailableError: the folder of sockets is not safe.
    """
    found = []
    info = paths.read_info(folder)
    if info is not None and info.host == socket.gethostname():
        found.append(info.address)  # of a hub that was started with another XDG_RUNTIME_DIR or TMPDIR
    default = os.fspath(paths.socket_path(folder))
    if default not in found:
        found.append(default)
    return found


def connectable(folder: Path) -> bool:
    """Whether a hub listens."""
    with contextlib.ExitStack() as stack:
        found = _connect(folder, timeout_s=1.0)
        if found is not None:
            stack.enter_context(found)
        return found is not None


def refuse_other_host(folder: Path) -> None:
    """Raise when a hub of another machine has the journal open.

    Raises:
        StorageUnavailableError: naming it.
    """
    info = paths.read_info(folder)
    if info is None or info.host == socket.gethostname():
        return
    silent = paths.silent_for(folder)
    if silent is not None and silent < paths.SILENT_S:
        raise StorageUnavailableError(
            f"the journal in {folder} is open on another machine: {info.host} (hub process {info.pid}). "
            "Close the notebooks that use it there, or run `loom hub stop` there, and try again.",
            str(folder),
        )


def hub_status(folder: str | os.PathLike[str]) -> dict[str, Any] | None:
    """What the running hub says of itself; None where none runs. Starts nothing.

    Returns:
        ``pid``, ``address``, ``protocol``, ``schema``, ``version``, ``started_at``, ``uptime_s``, ``idle_s``,
        ``clients`` (holders, each with the number of its connections), ``connections``, ``subscriptions`` and what the
        store counts.

    Raises:
        StorageUnavailableError: one runs and does not answer, or another machine's does.
    """
    root = paths.journal_path(folder)
    if not root.is_dir():
        return None
    refuse_other_host(root)
    return _ask(root, "status")


def stop_hub(folder: str | os.PathLike[str], *, timeout_s: float = 30.0) -> bool:
    """Ask the hub to apply what it has and end. Nothing is lost: clients that need one start it again.

    Returns:
        True once it is gone, False where none ran.

    Raises:
        StorageUnavailableError: it does not end within ``timeout_s``.
    """
    root = paths.journal_path(folder)
    if not root.is_dir():
        return False
    info = paths.read_info(root)
    if _ask(root, "stop", missing=_ABSENT) is _ABSENT:
        return False
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        with _locked(root / paths.HUB_LOCK) as free:
            pass
        now = paths.read_info(root)
        if free or (now is not None and info is not None and now.pid != info.pid):
            return True
        time.sleep(0.01)
    raise silent_error(root, timeout_s)


# ---------------------------------------------------------------- one question, blocking

_ABSENT = object()


def _connect(folder: Path, timeout_s: float) -> socket.socket | None:
    for address in addresses(folder):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(timeout_s)
        try:
            paths.check_socket(Path(address))
            sock.connect(address)
            return sock
        except OSError:
            sock.close()
        except BaseException:
            sock.close()
            raise
    return None


def _ask(folder: Path, method: str, *, missing: Any = None, timeout_s: float = 10.0) -> Any:
    """Ask without being a client for long."""
    sock = _connect(folder, timeout_s)
    if sock is None:
        return missing
    hello = Hello(protocol=protocol.PROTOCOL, oldest=protocol.OLDEST_PROTOCOL, schema=SCHEMA, version=__version__)
    with sock:
        try:
            sock.sendall(
                protocol.frame(protocol.request(1, "hello", (hello,))) + protocol.frame(protocol.request(2, method, ()))
            )
            frames = protocol.Frames()
            parts = b""
            while data := sock.recv(1 << 16):
                for body in frames.feed(data):
                    answer = protocol.answer_decoder.decode(body)
                    if answer.status == protocol.Status.ERROR and answer.id in (0, 2):
                        raise protocol.error_from_wire(protocol.error_decoder.decode(answer.value))
                    if answer.id != 2:
                        continue
                    if answer.status == protocol.Status.OK:
                        return protocol.METHODS[method].result.decode(answer.value)
                    parts += protocol.part_decoder.decode(answer.value)
                    if answer.status == protocol.Status.LAST_PART:
                        return protocol.METHODS[method].result.decode(parts)
        except TimeoutError:
            raise silent_error(folder, timeout_s) from None
        except OSError:
            pass
    return missing if method != "stop" else None


def silent_error(folder: Path, waited_s: float) -> StorageUnavailableError:
    """The sentence for a hub that is there and says nothing."""
    info: HubInfo | None = paths.read_info(folder)
    who = (
        f"process {info.pid}" if info is not None and info.boot_id in ("", boot_id()) else "a process that is not known"
    )
    return StorageUnavailableError(
        f"the hub of the journal in {folder} ({who}) did not answer within {waited_s:g} s. "
        f"If it hangs, end that process and try again: nothing that was acknowledged is lost. Its log is {folder / paths.HUB_LOG}.",
        str(folder),
    )


# ---------------------------------------------------------------- small things


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Hold a lock file, if nobody else does."""
    import fcntl  # not on Windows, where this module must still be importable

    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise paths.unopenable(path.parent, error) from None
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine = True
        except OSError:
            mine = False
        yield mine
    finally:
        os.close(fd)


def _read_all(fd: int, timeout_s: float) -> bytes | None:
    """Everything until the other side closes, None when that takes too long."""
    end = time.monotonic() + timeout_s
    said = b""
    while True:
        poll = select.poll()  # select() fails above file descriptor 1023, and kernels have many
        poll.register(fd, select.POLLIN | select.POLLHUP)
        if not poll.poll(max(0.0, end - time.monotonic()) * 1000):
            return None
        data = os.read(fd, 65536)
        if not data:
            return said
        said += data


def _last_line(path: Path, after: int) -> str:
    """The last thing in the log since ``after``."""
    try:
        with path.open("rb") as file:
            file.seek(after)
            lines = file.read(65536).decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1].strip() if lines else ""
