"""A project's folder with limits: which paths may be touched, how large a text may be, how long a command may take.

Not a sandbox: a command can touch whatever this process can. Source: intloom's ProjectAccess.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
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

_CLOSED = frozenset({".git", ".loom", ".intloom", "intloom", "node_modules", "dist", "coverage", ".turbo"})
_SECRET = re.compile(r"^(\.env(\..*)?|.dev.vars.*|intloom\.yaml|intloom\.config\.yaml)$")


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
        if not parts or parts == [""]:
            raise ProjectError(f"{given!r} is no path; give one within the project, such as src/main.py")
        absolute = PurePosixPath(given).is_absolute() or re.match(r"^[A-Za-z]:", given)
        if absolute:
            inside = self._inside(given)
            if inside is None:
                raise ProjectError(f"{given!r} is outside of the project; paths are relative to {self.root}")
            parts = list(inside.parts)
        if ".." in parts:
            raise ProjectError(f"{given!r} goes up; paths stay within the project")
        closed = next((part for part in parts if part in _CLOSED or _SECRET.match(part)), None)
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
        """The files that may be touched, by path; links are passed over."""
        for folder, folders, files in os.walk(self.root):
            folders[:] = sorted(
                f for f in folders if f not in _CLOSED and not _SECRET.match(f) and not (Path(folder) / f).is_symlink()
            )
            for name in sorted(files):
                path = Path(folder) / name
                if not _SECRET.match(name) and name not in _CLOSED and not path.is_symlink():
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
            folders[:] = sorted(f for f in folders if f not in _CLOSED and not _SECRET.match(f))
            for name in [*folders, *files]:
                if (Path(folder) / name).is_symlink():
                    raise ProjectError(
                        f"{self.relative(Path(folder) / name)!r} is a symbolic link; links are not followed"
                    )
            for name in sorted(files):
                if name in _CLOSED or _SECRET.match(name):
                    continue
                path = Path(folder) / name
                if len(found) >= SNAPSHOT_FILES:
                    raise ProjectError(f"the project has more than {SNAPSHOT_FILES:,} files")
                if path.stat().st_size > FILE_BYTES:
                    raise ProjectError(f"{self.relative(path)!r} is larger than 16 MiB")
                with open(path, "rb") as file:
                    found[self.relative(path)] = hashlib.file_digest(file, "sha256").hexdigest()
        return found

    def read(self, given: str) -> str:
        """A file's text.

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
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise ProjectError(f"{given!r} is no text") from None

    def write(self, given: str, text: str) -> Path:
        """Write a text, making the folders on the way.

        Raises:
            ProjectError: the path is refused, a folder stands there, or the text is above 1 MiB.
        """
        path = self.path(given)
        if len(text.encode()) > TEXT_BYTES:
            raise ProjectError(f"the text for {given!r} is larger than 1 MiB")
        if path.is_dir():
            raise ProjectError(f"{given!r} is a folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
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
            process = await asyncio.create_subprocess_exec(
                *command,
                cwd=folder,
                env=None if env is None else dict(env),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise ProjectError(f"{command[0] if command else ''!r} could not be started: {error}") from None
        assert process.stdout is not None
        assert process.stderr is not None
        reading = asyncio.ensure_future(asyncio.gather(_limited(process.stdout), _limited(process.stderr)))
        timed_out = False
        try:
            async with asyncio.timeout(timeout_s):
                await process.wait()
        except TimeoutError:
            timed_out = True
        finally:
            # Also after a good end: what it left running in its group ends with it, or it would hold the pipes.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            if process.returncode is None:
                await process.wait()
            try:
                async with asyncio.timeout(5):
                    (out, out_cut), (err, err_cut) = await reading
            except TimeoutError:
                out, err, out_cut, err_cut = b"", b"", True, True
        return CommandResult(
            command=tuple(command),
            exit_code=None if timed_out else process.returncode,
            stdout=out.decode(errors="replace"),
            stderr=err.decode(errors="replace"),
            timed_out=timed_out,
            truncated=out_cut or err_cut,
        )


async def _limited(stream: asyncio.StreamReader) -> tuple[bytes, bool]:
    """What a stream says, cut at the limit; read to its end, so that nobody waits for a full pipe."""
    kept = bytearray()
    cut = False
    while chunk := await stream.read(65_536):
        room = TEXT_BYTES - len(kept)
        kept += chunk[:room]
        cut = cut or len(chunk) > room
    return bytes(kept), cut
