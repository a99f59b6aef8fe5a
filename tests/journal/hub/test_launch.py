"""Starting a hub: once, detached, with a sentence where it cannot; and leaving when nobody needs it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from loom_kernel.errors import StorageUnavailableError
from loom_kernel.ids import RunId
from loom_kernel.journal.hub import launch, paths, protocol
from loom_kernel.journal.hub.client import HubJournal
from loom_kernel.journal.hub.launch import ensure_hub, hub_status, start_hub, stop_hub
from tests.journal.hub.conftest import hub_pids
from tests.journal.hub.parts import created, done, history, hub_pid, kill_hub, me, started

ROOT = Path(__file__).parents[3]


def wait_until(true, timeout_s: float = 10.0) -> None:
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def python(code: str, *args: str) -> subprocess.Popen[str]:
    """A Python process of its own, with its output to read."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", code, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
    )


OPEN = """
import asyncio, sys
from loom_kernel.journal.hub.client import HubJournal
async def main():
    async with await HubJournal.open(sys.argv[1]) as journal:
        print((await journal.hub())["pid"], flush=True)
        await asyncio.to_thread(sys.stdin.readline) if len(sys.argv) > 2 else None
asyncio.run(main())
"""


def test_twenty_processes_at_once_get_one_hub(folder: Path) -> None:
    """Whoever comes first starts it, everybody else finds it."""
    processes = [python(OPEN, str(folder)) for _ in range(20)]
    said = [process.communicate(timeout=60)[0].strip() for process in processes]

    assert len(set(said)) == 1, said
    assert said[0] == str(hub_pid(folder))
    assert [hub_pid(folder)] == hub_pids(folder)


def test_a_hub_is_detached_from_its_starter(folder: Path, tmp_path: Path) -> None:
    """Nobody's child, in a session of its own, in the root folder, without the starter's files and secrets."""
    secret = tmp_path / "open-in-the-starter"
    env = {"OPENAI_API_KEY": "sk-secret", "PYTHONPATH": str(ROOT)}
    code = (
        f"open({str(secret)!r}, 'w').write('x'); import os; os.set_inheritable((f := open({str(secret)!r})).fileno(), True)\n"
        + OPEN
    )
    process = subprocess.run(
        [sys.executable, "-c", code, str(folder)], env={**os.environ, **env}, check=True, timeout=60
    )
    pid = hub_pid(folder)
    stat = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()

    assert process.returncode == 0
    assert int(stat[1]) != os.getpid()  # parent
    assert int(stat[3]) != os.getsid(0)
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert b"sk-secret" not in Path(f"/proc/{pid}/environ").read_bytes()
    assert str(secret) not in {os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.is_symlink()}


def test_a_relative_folder_is_the_same_journal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths are made absolute and real before anything is started."""
    folder.parent.mkdir(exist_ok=True)
    monkeypatch.chdir(folder.parent)
    link = folder.parent / "link"
    link.symlink_to(folder.parent, target_is_directory=True)
    ensure_hub(paths.journal_path(".loom"))

    pids = [(hub_status(path) or {}).get("pid") for path in (folder, link / ".loom", ".loom")]

    assert [hub_pid(folder)] * 3 == pids
    assert [hub_pid(folder)] == hub_pids(folder)


def test_a_new_folder_is_its_owners_only_and_not_for_git(folder: Path) -> None:
    """Mode 0700 and a .gitignore of everything."""
    ensure_hub(paths.journal_path(folder))

    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / ".gitignore").read_text() == "*\n"


def test_a_stale_socket_is_no_obstacle(folder: Path) -> None:
    """After SIGKILL the socket and hub.json lie there still; the next client gets one new hub."""
    ensure_hub(paths.journal_path(folder))
    first = kill_hub(folder)
    wait_until(lambda: not launch.connectable(paths.journal_path(folder)))
    assert paths.socket_path(paths.journal_path(folder)).exists()
    ensure_hub(paths.journal_path(folder))

    assert first != hub_pid(folder)
    assert len(hub_pids(folder)) == 1


def test_a_folder_that_cannot_be_written_gets_a_sentence(tmp_path: Path) -> None:
    """The person reads which folder, why, and what to do."""
    (tmp_path / "file").write_text("")
    for bad in (tmp_path / "file" / ".loom", Path("/proc/loom")):
        with pytest.raises(StorageUnavailableError, match=r"cannot open the journal in .*loom: .*LOOM_HOME"):
            asyncio.run(HubJournal.open(bad))


def test_a_read_only_folder_gets_a_sentence(folder: Path) -> None:
    """A folder on which nothing can be written is not an empty journal."""
    folder.mkdir(mode=0o700)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting needs root")
    try:
        with pytest.raises(StorageUnavailableError, match="Read-only file system"):
            asyncio.run(HubJournal.open(folder))
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_journal_that_cannot_be_read_tells_why_through_the_pipe(folder: Path) -> None:
    """The hub's own sentence reaches the person who ran the cell."""
    folder.mkdir(mode=0o700)
    (folder / "loom.duckdb").write_bytes(b"this is no database" * 1000)
    with pytest.raises(StorageUnavailableError, match=r"loom\.duckdb|journal in") as caught:
        asyncio.run(HubJournal.open(folder))

    assert str(folder) in str(caught.value)
    wait_until(lambda: not hub_pids(folder))


def test_a_hub_that_dies_before_it_serves_is_told_with_its_last_words(folder: Path) -> None:
    """An interpreter that cannot run the hub gives its own error, not silence."""
    root = paths.journal_path(folder)
    paths.make_folder(root)
    with pytest.raises(StorageUnavailableError, match="ended before it served"):
        start_hub(root, env={"PYTHONPATH": "/nowhere", "PYTHONHOME": "/nowhere"})


def test_an_idle_hub_leaves_and_leaves_nothing_undone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without clients it applies what it has, removes its socket and hub.json, and goes; the next one knows everything."""
    monkeypatch.setenv("LOOM_HUB_IDLE_S", "0.3")

    async def write() -> None:
        async with await HubJournal.open(folder, holder := me()) as journal:
            lease = (await started(journal, holder)).lease
            await asyncio.gather(*(journal.append(lease, [done(n)]) for n in range(100)))
            await asyncio.sleep(1)
            assert hub_pids(folder), "it left under its client"

    asyncio.run(write())
    wait_until(lambda: not hub_pids(folder))

    assert not (folder / "hub.json").exists()
    assert not paths.socket_path(paths.journal_path(folder)).exists()

    async def look() -> int:
        async with await HubJournal.open(folder) as journal:
            return len(await history(journal))

    assert asyncio.run(look()) == 102


def test_connecting_into_the_idle_exit_works(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that comes at the very moment of leaving gets an answer, from this hub or the next."""
    monkeypatch.setenv("LOOM_HUB_IDLE_S", "0.05")

    async def once() -> None:
        async with await HubJournal.open(folder) as journal:
            assert await journal.list_runs() == []

    for n in range(12):
        asyncio.run(once())
        time.sleep(0.04 + n * 0.004)


def test_status_and_stop(folder: Path) -> None:
    """``hub_status`` starts nothing; ``stop_hub`` ends the hub in good order."""
    assert hub_status(folder) is None
    assert stop_hub(folder) is False
    ensure_hub(paths.journal_path(folder))
    status = hub_status(folder)
    assert status is not None
    assert hub_pid(folder) == status["pid"]
    assert status["protocol"] == protocol.PROTOCOL
    assert stop_hub(folder) is True
    assert hub_status(folder) is None
    wait_until(lambda: not hub_pids(folder))


def test_sigterm_is_a_stop_in_good_order(folder: Path) -> None:
    """Whoever shuts the machine down loses nothing and leaves no stale files."""
    ensure_hub(paths.journal_path(folder))
    os.kill(hub_pid(folder), signal.SIGTERM)
    wait_until(lambda: not hub_pids(folder))

    assert not (folder / "hub.json").exists()


def test_a_client_goes_on_after_the_hub_was_stopped(folder: Path) -> None:
    """A stop is no end for those who still need the journal: their next call starts it again."""

    async def body() -> None:
        async with await HubJournal.open(folder, holder := me()) as journal:
            lease = (await started(journal, holder)).lease
            assert await asyncio.to_thread(stop_hub, folder)
            await journal.append(lease, [done(1)])

            assert len(await history(journal)) == 3

    asyncio.run(body())


def test_another_machines_hub_is_refused_by_name(folder: Path) -> None:
    """Two machines on one folder would ruin it; a silent one is taken for dead."""
    root = paths.journal_path(folder)
    paths.make_folder(root)
    info = paths.HubInfo(
        pid=1,
        pid_started=1,
        boot_id="x",
        host="far-away",
        address="/run/x.sock",
        protocol=1,
        schema=1,
        version="1",
        started_at=1,
    )
    paths.write_info(root, info)
    with pytest.raises(StorageUnavailableError, match=r"another machine: far-away \(hub process 1\)"):
        asyncio.run(HubJournal.open(folder))
    os.utime(root / "hub.json", (time.time() - 3600, time.time() - 3600))
    ensure_hub(root)

    assert json.loads((root / "hub.json").read_text())["host"] != "far-away"


OTHER_VERSION = """
import sys
from loom_kernel.journal.hub import protocol
protocol.PROTOCOL, protocol.OLDEST_PROTOCOL = int(sys.argv[2]), int(sys.argv[3])
from loom_kernel.journal.hub.__main__ import main
sys.exit(main([sys.argv[1]]))
"""


def other_version(folder: Path, protocol_version: int, oldest: int) -> subprocess.Popen[str]:
    process = python(OTHER_VERSION, str(folder), str(protocol_version), str(oldest))
    wait_until(lambda: process.poll() is not None or launch.connectable(paths.journal_path(folder)))
    assert process.poll() is None, process.communicate()[0]
    return process


def test_an_idle_hub_of_an_older_version_makes_room(folder: Path) -> None:
    """The newer client asks it to go and starts its own."""
    old = other_version(folder, 0, 0)

    async def body() -> dict:
        async with await HubJournal.open(folder) as journal:
            return await journal.hub()

    status = asyncio.run(body())

    old.communicate(timeout=10)

    assert old.returncode == 0
    assert status["protocol"] == protocol.PROTOCOL
    assert old.pid != status["pid"]


def test_an_older_hub_with_live_runs_stays_and_its_kernels_are_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody's run is broken off; the newcomer reads which kernel to restart."""
    old = other_version(folder, 0, 0)

    async def body() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(protocol, "PROTOCOL", 0)
            patch.setattr(protocol, "OLDEST_PROTOCOL", 0)
            journal = await HubJournal.open(folder, holder := me("digest.ipynb"))
            lease = (await started(journal, holder)).lease
        with pytest.raises(
            StorageUnavailableError, match=rf"runs are live in digest.ipynb \(pid {os.getpid()}\). Restart that kernel"
        ):
            await HubJournal.open(folder)
        await journal.append(lease, [done(1)])
        await journal.close()

    asyncio.run(body())
    old.send_signal(signal.SIGTERM)
    old.communicate(timeout=10)


def test_a_hub_of_a_newer_version_says_so(folder: Path) -> None:
    """An old kernel is told to restart, and leaves the newer hub alone."""
    new = other_version(folder, 7, 7)
    with pytest.raises(StorageUnavailableError, match=r"newer than this process's .* Restart this kernel"):
        asyncio.run(HubJournal.open(folder))

    assert new.poll() is None
    new.send_signal(signal.SIGTERM)
    new.communicate(timeout=10)


def test_a_folder_for_sockets_that_others_may_enter_is_refused(folder: Path, sockets: Path) -> None:
    """A socket that somebody else could have placed is not spoken to."""
    (sockets / "loom").mkdir(mode=0o755)
    (sockets / "loom").chmod(0o755)
    with pytest.raises(StorageUnavailableError, match="only you can enter"):
        asyncio.run(HubJournal.open(folder))


def test_a_long_path_makes_no_long_socket_name(tmp_path: Path, sockets: Path) -> None:
    """The journal may lie deeper than a socket's name can be long."""
    deep = tmp_path.joinpath(*["a-folder-with-a-long-name"] * 8) / ".loom"
    ensure_hub(paths.journal_path(deep))
    try:
        assert len(str(deep)) > 150
        assert len(str(paths.socket_path(paths.journal_path(deep)))) < 104
        assert hub_status(deep) is not None
    finally:
        stop_hub(deep)


def test_a_hub_whose_folder_is_removed_leaves(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deleted project keeps no process alive."""
    import shutil

    monkeypatch.setenv("LOOM_HUB_IDLE_S", "0.3")
    ensure_hub(paths.journal_path(folder))
    shutil.rmtree(folder)
    wait_until(lambda: not hub_pids(folder))


def test_a_removed_folder_is_never_written_to_again(folder: Path) -> None:
    """Who comes after ``rm -rf .loom`` gets a hub of the new folder, at once and for good."""
    import shutil

    async def body() -> None:
        async with await HubJournal.open(folder, a := me()) as journal:
            await started(journal, a, "old")
            shutil.rmtree(folder)
            async with await HubJournal.open(folder, b := me()) as another:
                await started(another, b, "new")
        wait_until(lambda: len(hub_pids(folder)) == 1)
        async with await HubJournal.open(folder, me()) as journal:
            assert [run.run_id for run in await journal.list_runs()] == ["new"]
        assert paths.read_info(paths.journal_path(folder)) is not None

    asyncio.run(body())


def test_a_hub_that_is_killed_while_it_starts_is_started_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever needs it does not hear of it, unless it happens again and again."""
    root = paths.journal_path(folder)
    real, deaths = launch.start_hub, [1, 1]

    def start(*args: Any, **options: Any) -> bool:
        if deaths:
            deaths.pop()
            try:
                return real(*args, env={"LOOM_HUB_CRASH": "starting:1"}, **options)
            finally:
                time.sleep(0.1)  # a dying process closes its pipe before its socket
        return real(*args, **options)

    monkeypatch.setattr(launch, "start_hub", start)
    ensure_hub(root)
    assert launch.hub_status(root) is not None
    launch.stop_hub(root)
    deaths[:] = [1] * 10
    with pytest.raises(StorageUnavailableError, match="ended before it served"):
        ensure_hub(root)
    assert len(deaths) == 7


def test_a_network_file_system_warns_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks there are not what they promise; once is enough to say so."""
    monkeypatch.setattr(paths, "network_file_system", lambda folder: "nfs4")

    async def look() -> None:
        async with await HubJournal.open(folder):
            pass

    with pytest.warns(RuntimeWarning, match=r"network file system \(nfs4\)"):
        asyncio.run(look())
    asyncio.run(look())  # warnings are errors here


def test_the_log_is_turned_over(folder: Path) -> None:
    """A long log becomes the old piece; there are never more than two."""
    root = paths.journal_path(folder)
    paths.make_folder(root)
    (root / "hub.log").write_bytes(b"x" * (2 << 20))
    ensure_hub(root)
    stop_hub(root)

    assert (root / "hub.log.1").stat().st_size > 1 << 20
    assert (root / "hub.log").stat().st_size < 10_000


def test_a_hub_imports_nothing_that_it_does_not_need(folder: Path) -> None:
    """No IPython, no model library, no web framework, no tables: it must start in a fifth of a second."""
    code = """
import sys, asyncio, pathlib
from loom_kernel.journal.hub import __main__ as hub, server
before = server.Hub.serve
async def serve(self, ready):
    self.stop()
    await before(self, ready)
server.Hub.serve = serve
assert hub.main([sys.argv[1]]) == 0
heavy = {"IPython", "litellm", "tornado", "pandas", "pyarrow", "polars", "numpy", "anywidget", "pydantic", "networkx", "jsonschema"}
print(sorted(heavy & set(sys.modules)))
"""
    said, _ = python(code, str(folder)).communicate(timeout=60)

    assert said.strip().splitlines()[-1] == "[]", said


def test_the_client_imports_no_duckdb() -> None:
    """A kernel that only talks to the hub does not pay for the database."""
    code = "import sys, loom_kernel.journal.hub.client; print(sorted({'duckdb', 'pandas', 'numpy', 'pydantic', 'IPython'} & set(sys.modules)))"
    said, _ = python(code).communicate(timeout=60)

    assert said.strip() == "[]"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_drops_the_connection(folder: Path) -> None:
    """Its parent's connection goes on; its own calls say what to do."""

    async def body() -> None:
        async with await HubJournal.open(folder, holder := me()) as journal:
            lease = (await started(journal, holder)).lease
            read, write = os.pipe()
            child = os.fork()
            if child == 0:  # pragma: no cover
                try:
                    future = journal._link.call("status", ())
                    os.write(write, str(future.exception()).encode())
                finally:
                    os._exit(0)
            os.close(write)
            os.waitpid(child, 0)
            said = os.read(read, 4096).decode()
            os.close(read)
            await journal.append(lease, [done(1)])

            assert "forked" in said
            assert len(await history(journal)) == 3

    asyncio.run(body())


def test_a_child_keeps_no_dead_holder_alive(folder: Path) -> None:
    """A forked child that outlives its parent does not hold the parent's leases."""
    code = """
import asyncio, os, sys, time
from loom_kernel.journal.hub.client import HubJournal
from tests.journal.hub.parts import me, started
async def main():
    journal = await HubJournal.open(sys.argv[1], holder := me())
    await started(journal, holder)
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    print("child", child, flush=True)
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""
    process = python(code, str(folder))
    assert process.stdout is not None
    child = int(process.stdout.readline().split()[1])
    process.wait(10)

    async def take() -> float:
        async with await HubJournal.open(folder, holder := me()) as journal:
            begin = time.monotonic()
            got = await journal.acquire(RunId("run1"), holder)
            assert hasattr(got, "lease"), got
            return time.monotonic() - begin

    try:
        assert asyncio.run(take()) < 1.0
    finally:
        os.kill(child, signal.SIGKILL)
        process.stdout.close()


def test_open_failures_leave_nothing_behind(folder: Path) -> None:
    """After an error the same call works once the reason is gone."""
    folder.mkdir(mode=0o700)
    (folder / "loom.duckdb").write_bytes(b"no database" * 1000)
    with pytest.raises(StorageUnavailableError):
        asyncio.run(HubJournal.open(folder))
    (folder / "loom.duckdb").unlink()

    async def write() -> str:
        async with await HubJournal.open(folder, me()) as journal:
            return await journal.create_run(RunId("run1"), created())

    assert asyncio.run(write()) == "created"


def test_another_user_is_not_served(folder: Path, sockets: Path) -> None:
    """Even where the file system lets them through, the hub looks who it is."""
    if os.getuid() != 0:
        pytest.skip("becoming another user needs root")
    ensure_hub(paths.journal_path(folder))
    path = paths.socket_path(paths.journal_path(folder))
    for part in (sockets, path.parent):
        part.chmod(0o755)
    path.chmod(0o666)
    code = """
import os, socket, sys
sock = socket.socket(socket.AF_UNIX)
os.setuid(65534)
sock.settimeout(5)
sock.connect(sys.argv[1])
try:
    print(repr(sock.recv(10)))
except ConnectionResetError:
    print(b"")
"""
    said, _ = python(code, str(path)).communicate(timeout=30)

    assert said.strip() == "b''"
    assert "refused a connection of user 65534" in (folder / "hub.log").read_text()


def test_a_full_log_device_stops_nobody(folder: Path) -> None:
    """The hub's own words may be lost; its work is not."""
    root = paths.journal_path(folder)
    paths.make_folder(root)
    (root / "hub.log").symlink_to("/dev/full")
    ensure_hub(root)

    async def body() -> None:
        async with await HubJournal.open(folder, holder := me()) as journal:
            lease = (await started(journal, holder)).lease
            with launch._connect(root, 5.0) as sock:  # type: ignore[union-attr]
                sock.sendall(b"\xff" * 100)  # something to complain about
                sock.recv(100)
            await journal.append(lease, [done(1)])

            assert len(await history(journal)) == 3

    asyncio.run(body())


def test_a_hub_whose_socket_was_tidied_away_listens_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session's runtime folder may vanish under a running hub; its clients go on and newcomers find it again."""
    monkeypatch.setenv("LOOM_HUB_IDLE_S", "1")

    async def body() -> None:
        async with await HubJournal.open(folder, holder := me()) as journal:
            lease = (await started(journal, holder)).lease
            pid = hub_pid(folder)
            paths.socket_path(paths.journal_path(folder)).unlink()
            async with await HubJournal.open(folder) as second:
                await journal.append(lease, [done(1)])

                assert len(await history(second)) == 3
            assert pid == hub_pid(folder)

    asyncio.run(body())
