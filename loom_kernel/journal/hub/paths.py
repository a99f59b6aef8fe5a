"""Where a journal's hub is to be found: its socket, its locks and what ``hub.json`` says about it."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tempfile
from pathlib import Path

import msgspec

from loom_kernel.errors import StorageUnavailableError
from loom_kernel.journal.room import is_full

HUB_JSON = "hub.json"
HUB_LOCK = "hub.lock"
START_LOCK = "start.lock"
HUB_LOG = "hub.log"

HEARTBEAT_S = 10.0
"""How often a hub touches its ``hub.json``, for hosts that cannot see its process."""

SILENT_S = 60.0
"""A ``hub.json`` of another host that was not touched for so long belongs to a dead hub."""

_MAX_SOCKET = 103  # macOS allows 104 bytes with the final zero, Linux 108

_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "glusterfs", "beegfs", "gpfs", "fuse.sshfs", "fuse.glusterfs"}
)  # fmt: skip


class HubInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of ``hub.json``: who serves this journal, and where. Times are seconds since the epoch."""

    pid: int
    pid_started: float
    boot_id: str
    host: str
    address: str
    protocol: int
    schema: int
    version: str
    started_at: float


def journal_path(folder: str | os.PathLike[str]) -> Path:
    """The journal's folder as the one absolute, real path that everybody agrees on."""
    return Path(os.path.realpath(os.path.expanduser(folder)))


def make_folder(folder: Path) -> None:
    """Make the journal's folder where it is missing: for its owner only, and out of version control.

    Raises:
        StorageUnavailableError: it cannot be made or written to.
    """
    try:
        if not folder.is_dir():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            ignore = folder / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n")
        # Asking the folder itself: permission bits do not tell about read-only and full file systems.
        fd = os.open(folder / START_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.close(fd)
    except OSError as error:
        raise unopenable(folder, error) from None


def unopenable(folder: Path, error: OSError) -> StorageUnavailableError:
    """The sentence for a folder that cannot be used."""
    why = error.strerror or str(error)
    return StorageUnavailableError(
        f"cannot open the journal in {folder}: {why}. Make that folder writable, or name another with LOOM_HOME.",
        str(folder),
    )


def socket_folder() -> Path:
    """A folder of this user's, for nobody else, in which sockets lie.

    Raises:
        StorageUnavailableError: somebody else owns it or may write to it.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isabs(runtime) and len(os.fsencode(runtime)) < 60 and os.access(runtime, os.W_OK):
        folder = Path(runtime) / "loom"
    else:
        folder = Path(tempfile.gettempdir()) / f"loom-{os.getuid()}"
        if len(os.fsencode(folder)) > _MAX_SOCKET - 32:
            folder = Path("/tmp") / f"loom-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = os.lstat(folder)
    except OSError as error:
        raise StorageUnavailableError(
            f"cannot make the folder {folder} for the hub's socket: {error.strerror or error}. Set XDG_RUNTIME_DIR to a folder of yours.",
            str(folder),
        ) from None
    _check_owner(folder, found)
    return folder


def socket_path(folder: Path) -> Path:
    """The socket of the journal in ``folder`` (a :func:`journal_path`), short enough for every system."""
    name = hashlib.blake2b(os.fsencode(folder), digest_size=10).hexdigest()
    return socket_folder() / f"{name}.sock"


def check_socket(path: Path) -> None:
    """Refuse a socket that lies where somebody else could have put it.

    Raises:
        StorageUnavailableError
        FileNotFoundError: there is no such folder.
    """
    _check_owner(path.parent, os.lstat(path.parent))


def _check_owner(folder: Path, found: os.stat_result) -> None:
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise StorageUnavailableError(
            f"{folder} should be a folder that only you can enter (mode 0700), and it is not. "
            "Remove it, or set XDG_RUNTIME_DIR to a folder of yours.",
            str(folder),
        )


def read_info(folder: Path) -> HubInfo | None:
    """What ``hub.json`` says, None where it is missing or unreadable."""
    try:
        return msgspec.json.decode((folder / HUB_JSON).read_bytes(), type=HubInfo)
    except (OSError, msgspec.DecodeError):
        return None


def write_info(folder: Path, info: HubInfo) -> None:
    """Replace ``hub.json`` in one piece."""
    new = folder / f".{HUB_JSON}.{os.getpid()}"
    text = msgspec.json.format(msgspec.json.encode(info)) + b"\n"
    try:
        new.write_bytes(text)
    except OSError as error:
        new.unlink(missing_ok=True)
        if not is_full(error):
            raise
        return  # clients find the socket without it, and a full disk should still be readable
    os.replace(new, folder / HUB_JSON)


def silent_for(folder: Path) -> float | None:
    """Seconds since ``hub.json`` was touched, by the file system's own clock; None where there is none."""
    probe = folder / START_LOCK
    try:
        os.utime(probe)
        return os.stat(probe).st_mtime - os.stat(folder / HUB_JSON).st_mtime
    except OSError:
        return None


def network_file_system(folder: Path) -> str | None:
    """The kind of network file system that ``folder`` lies on, None for a local one or where it cannot be told."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        mounts = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return None
    best, kind = "", ""
    target = os.fspath(folder)
    for line in mounts:
        left, _, right = line.partition(" - ")
        fields, after = left.split(), right.split()
        if len(fields) < 5 or not after:
            continue
        point = fields[4].replace("\\040", " ")
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, after[0]
    return kind if kind in _NETWORK else None
