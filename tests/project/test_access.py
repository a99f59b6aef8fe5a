"""The project's folder: what is refused, how a command ends."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from loom_kernel.project.access import ProjectAccess, ProjectError


@pytest.fixture
def access(tmp_path: Path) -> ProjectAccess:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("one\ntwo\n")
    return ProjectAccess(tmp_path)


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("", "no path"),
        ("../x", "goes up"),
        ("src/../../x", "goes up"),
        ("src\\..\\..\\x", "goes up"),
        ("/etc/passwd", "outside"),
        ("C:\\x", "outside"),
        (".git/config", "closed"),
        ("a/.git/b", "closed"),
        (".env", "closed"),
        (".ENV", "closed"),
        (".Git/config", "closed"),
        ("src\0/a.py", "no path"),
        (".env.local", "closed"),
        (".loom/loom.duckdb", "closed"),
        (".dev.vars", "closed"),
        ("src", "is a folder"),
        ("nothing.py", "there is no file"),
    ],
)
def test_paths_that_are_refused(access: ProjectAccess, path: str, sentence: str) -> None:
    """One sentence each, and nothing is read."""
    with pytest.raises(ProjectError, match=sentence):
        access.read(path)


def test_what_stays_within_is_allowed(access: ProjectAccess) -> None:
    """Relative, with dots, absolute within the root; ``.envrc`` is no ``.env``."""
    for path in ("src/a.py", "./src/./a.py", "src\\a.py", str(access.root / "src" / "a.py")):
        assert access.read(path) == "one\ntwo\n"
    access.write(".envrc", "x")
    access.write("new/deep/b.txt", "y")
    assert sorted(access.snapshot()) == [".envrc", "new/deep/b.txt", "src/a.py"]
    access.remove("new/deep/b.txt")
    with pytest.raises(ProjectError, match="no file"):
        access.remove("new/deep/b.txt")


def test_links_are_not_followed(access: ProjectAccess, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Neither to read nor to write, wherever on the way they stand; a snapshot refuses them."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret").write_text("s")
    os.symlink(outside, access.root / "link")
    for do in (lambda: access.read("link/secret"), lambda: access.write("link/new", "x"), access.snapshot):
        with pytest.raises(ProjectError, match="symbolic link"):
            do()
    assert [access.relative(p) for p in access.walk()] == ["src/a.py"]
    assert not (outside / "new").exists()


def test_texts_have_a_size_and_are_texts(access: ProjectAccess) -> None:
    """A mebibyte; no bytes that are no UTF-8."""
    with pytest.raises(ProjectError, match="1 MiB"):
        access.write("big", "x" * ((1 << 20) + 1))
    access.write("full", "x" * (1 << 20))
    assert len(access.read("full")) == 1 << 20
    (access.root / "big").write_bytes(b"x" * ((1 << 20) + 1))
    (access.root / "bytes").write_bytes(b"\xff\xfe")
    (access.root / "zeros").write_bytes(b"PK\0\0")
    for name, sentence in (("big", "1 MiB"), ("bytes", "no text"), ("zeros", "no text")):
        with pytest.raises(ProjectError, match=sentence):
            access.read(name)


def test_what_is_no_file_is_passed_over(access: ProjectAccess) -> None:
    """A pipe would be waited at for ever."""
    os.mkfifo(access.root / "pipe")
    assert [access.relative(p) for p in access.walk()] == list(access.snapshot()) == ["src/a.py"]
    with pytest.raises(ProjectError, match="there is no file"):
        access.read("pipe")


def test_writing_replaces_all_or_nothing_and_keeps_the_mode(access: ProjectAccess) -> None:
    """Line ends stay what they are; nothing is left beside the file, and what cannot be written is one sentence."""
    script = access.root / "src" / "a.py"
    script.chmod(0o755)
    access.write("src/a.py", "new\r\n")
    assert script.read_bytes() == b"new\r\n"
    assert access.read("src/a.py") == "new\r\n"
    assert script.stat().st_mode & 0o777 == 0o755
    for path, text, sentence in (
        ("src/a.py/under", "x", "cannot be written"),
        ("src", "x", "is a folder"),
        ("src/a.py", "\ud800", "half a character"),
    ):
        with pytest.raises(ProjectError, match=sentence):
            access.write(path, text)
    assert os.listdir(access.root / "src") == ["a.py"]
    assert script.read_bytes() == b"new\r\n"


def test_a_command_gives_what_it_said(access: ProjectAccess) -> None:
    """Both streams, the code, no shell, nothing to read; long output is cut and says so."""
    done = asyncio.run(access.run(["sh", "-c", "cat; echo out; echo err >&2; exit 3"], cwd="src"))
    assert (done.exit_code, done.stdout, done.stderr, done.timed_out, done.truncated) == (
        3,
        "out\n",
        "err\n",
        False,
        False,
    )
    long = asyncio.run(access.run(["sh", "-c", "head -c 1500000 /dev/zero | tr '\\0' x"]))
    assert (len(long.stdout), long.truncated) == (1 << 20, True)
    with pytest.raises(ProjectError, match="could not be started"):
        asyncio.run(access.run(["no-such-program"]))
    with pytest.raises(ProjectError, match="timeout_s=301"):
        asyncio.run(access.run(["true"], timeout_s=301))


def test_a_command_past_its_time_is_killed_with_all_that_it_started(access: ProjectAccess) -> None:
    """Also a child in the background that would hold the pipes."""
    began = time.monotonic()
    done = asyncio.run(access.run(["sh", "-c", "sleep 60 & echo $!; sleep 60"], timeout_s=0.5))
    assert done.timed_out
    assert done.exit_code is None
    assert time.monotonic() - began < 10
    child = int(done.stdout)
    state = Path(f"/proc/{child}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


def test_what_a_command_said_is_kept_though_one_that_left_its_group_holds_the_pipe(access: ProjectAccess) -> None:
    """It is not waited for."""
    command = "echo begun; setsid sh -c 'echo $$ > pid; exec sleep 60' & while [ ! -s pid ]; do :; done; echo done"
    began = time.monotonic()
    done = asyncio.run(access.run(["sh", "-c", command]))
    assert (done.exit_code, done.stdout, done.timed_out) == (0, "begun\ndone\n", False)
    assert time.monotonic() - began < 10
    os.kill(int((access.root / "pid").read_text()), signal.SIGKILL)


def test_cancelling_kills_it(access: ProjectAccess) -> None:
    """The group ends before the call does."""

    async def main() -> int:
        task = asyncio.ensure_future(access.run(["sh", "-c", "echo $$ > pid; sleep 60"]))
        pid = access.root / "pid"
        async with asyncio.timeout(10):
            while not pid.exists() or not pid.read_text().strip():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return int(pid.read_text())

    process = asyncio.run(main())
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
