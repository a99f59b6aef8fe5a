"""A project's folder with limits: which paths may be touched, how large a text may be, how long a command may take.

Not a sandbox: a command can touch whatever this process can. Source: intloom's ProjectAccess.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import secrets
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from loom_kernel.errors import LoomError

TEXT_BYTES = 1 << 20
"""Of a text that is read or written, and of what a command prints."""

SNAPSHOT_FILES = 10_000
FILE_BYTES = 16 << 20
MAX_TIMEOUT_S = 300.0
TIMEOUT_S = 60.0

HELD_S = 1.0
"""How long a command's output is waited for after its end, where a process that left its group holds it open."""

_CLOSED = frozenset({".git", ".loom", ".intloom", "intloom", "node_modules", "dist", "coverage", ".turbo"})
_SECRET = re.compile(r"^(\.env(\..*)?|.dev.vars.*|intloom\.yaml|intloom\.config\.yaml)$")


def is_closed(name: str) -> bool:
    """Whether no tool may touch what has this name. Names with a dot are compared without case, as some disks do."""
    if name.startswith("."):
        name = name.casefold()
    return name in _CLOSED or _SECRET.match(name) is not None


class ProjectError(LoomError, OSError):
    """A project's path or command is refused, or does not work; one sentence."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


@dataclass(frozen=True, kw_only=True)
class CommandResult:
    """What a command did.

    Attributes:
        exit_code: None where it was killed.
        truncated: what it printed was cut at 1 MiB a stream.
    """

    command: tuple[str, ...]
    exit_code: int | None
    stdout: str
    stderr: str
    timed_out: bool = False
    truncated: bool = False


class ProjectAccess:
    """Reading, writing and running within one folder.

    Args:
        root: the folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def path(self, given: str) -> Path:
        """The file that a relative path names.

        Raises:
            ProjectError: the path is empty, absolute, goes up, is closed, or leads over a symbolic link.
        """
        parts = [part for part in re.split(r"[\\/]+", given) if part != "."] if isinstance(given, str) else []
        if not parts or parts == [""] or "\0" in given:
            raise ProjectError(f"{given!r} is no path; give one within the project, such as src/main.py")
        absolute = PurePosixPath(given).is_absolute() or re.match(r"^[A-Za-z]:", given)
        if absolute:
            inside = self._inside(given)
            if inside is None:
                raise ProjectError(f"{given!r} is outside of the project; paths are relative to {self.root}")
            parts = list(inside.parts)
        if ".." in parts:
            raise ProjectError(f"{given!r} goes up; paths stay within the project")
        closed = next((part for part in parts if is_closed(part)), None)
        if closed is not None:
            raise ProjectError(f"{given!r}: {closed} is closed to tools")
        at = self.root
        for part in parts:
            at = at / part
            if at.is_symlink():
                raise ProjectError(f"{given!r}: {part} is a symbolic link; links are not followed")
        return at

    def _inside(self, given: str) -> Path | None:
        try:
            return Path(given).relative_to(self.root)
        except ValueError:
            return None

    def walk(self) -> Iterator[Path]:
        """The files that may be touched, by path; links, pipes and sockets are passed over."""
        for folder, folders, files in os.walk(self.root):
            folders[:] = sorted(f for f in folders if not is_closed(f) and not (Path(folder) / f).is_symlink())
            for name in sorted(files):
                path = Path(folder) / name
                if not is_closed(name) and not path.is_symlink() and path.is_file():
                    yield path

    def relative(self, path: Path) -> str:
        """A file's path as tools say it."""
        return path.relative_to(self.root).as_posix()

    def snapshot(self) -> dict[str, str]:
        """SHA-256 of every file by its path.

        Raises:
            ProjectError: a link, more than 10,000 files, or one above 16 MiB.
        """
        found: dict[str, str] = {}
        for folder, folders, files in os.walk(self.root):
            folders[:] = sorted(f for f in folders if not is_closed(f))
            for name in [*folders, *files]:
                if (Path(folder) / name).is_symlink():
                    raise ProjectError(
                        f"{self.relative(Path(folder) / name)!r} is a symbolic link; links are not followed"
                    )
            for name in sorted(files):
                path = Path(folder) / name
                if is_closed(name) or not path.is_file():
                    continue
                if len(found) >= SNAPSHOT_FILES:
                    raise ProjectError(f"the project has more than {SNAPSHOT_FILES:,} files")
                if path.stat().st_size > FILE_BYTES:
                    raise ProjectError(f"{self.relative(path)!r} is larger than 16 MiB")
                with open(path, "rb") as file:
                    found[self.relative(path)] = hashlib.file_digest(file, "sha256").hexdigest()
        return found

    def read(self, given: str) -> str:
        """A file's text, with its own line ends.

        Raises:
            ProjectError: no such file, a folder, no text, or above 1 MiB.
        """
        path = self.path(given)
        if path.is_dir():
            raise ProjectError(f"{given!r} is a folder")
        if not path.is_file():
            raise ProjectError(f"there is no file {given!r}")
        if path.stat().st_size > TEXT_BYTES:
            raise ProjectError(f"{given!r} is larger than 1 MiB")
        try:
            text = path.read_bytes().decode()
        except UnicodeDecodeError:
            raise ProjectError(f"{given!r} is no text") from None
        except OSError as error:
            raise ProjectError(f"{given!r} cannot be read: {error.strerror}") from None
        if "\0" in text:
            raise ProjectError(f"{given!r} is no text")
        return text

    def write(self, given: str, text: str) -> Path:
        """Write a text, making the folders on the way. What stood there is there until all of the new text is.

        Raises:
            ProjectError: the path is refused, a folder stands there, the text is above 1 MiB, or the disk refuses it.
        """
        path = self.path(given)
        try:
            data = text.encode()
        except UnicodeEncodeError:
            raise ProjectError(f"the text for {given!r} has half a character, which no file can keep") from None
        if len(data) > TEXT_BYTES:
            raise ProjectError(f"the text for {given!r} is larger than 1 MiB")
        if path.is_dir():
            raise ProjectError(f"{given!r} is a folder")
        if path.exists() and not os.access(path, os.W_OK):
            raise ProjectError(f"{given!r} may not be written")
        part = path.with_name(f".{secrets.token_hex(6)}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with open(part, "xb") as file:
                    file.write(data)
                if path.exists():
                    shutil.copymode(path, part)
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)
        except OSError as error:
            raise ProjectError(f"{given!r} cannot be written: {error.strerror}") from None
        return path

    def remove(self, given: str) -> None:
        """Remove one file.

        Raises:
            ProjectError: the path is refused, or no file stands there.
        """
        path = self.path(given)
        if not path.is_file():
            raise ProjectError(f"there is no file {given!r}")
        path.unlink()

    async def run(
        self,
        command: Sequence[str],
        *,
        cwd: str | None = None,
        timeout_s: float = TIMEOUT_S,
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """Run a command without a shell, with nothing to read, in a process group of its own.

        Past its time, or when the caller is cancelled, all of the group is killed.

        Raises:
            ProjectError: it cannot be started, or the folder or the time is refused.
        """
        if not 0 < timeout_s <= MAX_TIMEOUT_S:
            raise ProjectError(f"timeout_s={timeout_s!r}: seconds above 0 and at most {MAX_TIMEOUT_S:g} are needed")
        folder = self.root if cwd in (None, "", ".") else self.path(str(cwd))
        try:
            transport, said = await asyncio.get_running_loop().subprocess_exec(
                _Said,
                *command,
                cwd=folder,
                env=None if env is None else dict(env),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError, TypeError) as error:
            raise ProjectError(f"{command[0] if command else ''!r} could not be started: {error}") from None
        timed_out = False
        try:
            async with asyncio.timeout(timeout_s):
                await said.exited.wait()
        except TimeoutError:
            timed_out = not said.exited.is_set()
        finally:
            # Also after a good end: what it left running in its group ends with it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(transport.get_pid(), signal.SIGKILL)
            try:
                await said.exited.wait()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(HELD_S):
                        await said.closed.wait()
            finally:
                transport.close()
        return CommandResult(
            command=tuple(command),
            exit_code=None if timed_out else transport.get_returncode(),
            stdout=said.text(1),
            stderr=said.text(2),
            timed_out=timed_out,
            truncated=bool(said.cut),
        )


class _Said(asyncio.SubprocessProtocol):
    """What a command prints, each stream cut at the limit. All of it is taken, so that nobody waits for a full pipe."""

    def __init__(self) -> None:
        self.exited, self.closed = asyncio.Event(), asyncio.Event()
        self.cut: set[int] = set()
        self._kept = {1: bytearray(), 2: bytearray()}

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        kept = self._kept[fd]
        room = TEXT_BYTES - len(kept)
        kept += data[:room]
        if len(data) > room:
            self.cut.add(fd)

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()

    def text(self, fd: int) -> str:
        """What a stream said, up to now."""
        return self._kept[fd].decode(errors="replace")
