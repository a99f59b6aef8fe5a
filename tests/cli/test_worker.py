"""``loom worker`` in processes of its own: what it claims, how it ends, who has a run when two want it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loom_kernel.cli.files import load
from loom_kernel.cli.main import main
from loom_kernel.errors import InputError, ResumeError
from loom_kernel.runtime import get_runtime
from loom_kernel.runtime.api import get_run, resume, runs
from loom_kernel.runtime.run import Run

pytestmark = pytest.mark.timeout(90)

FLOWS = """
import asyncio, dataclasses, os, signal, time
from pydantic import SecretStr
from loom_kernel import Context, step, workflow

def effect(line):
    with open("effects.txt", "a") as file:
        file.write(line + "\\n")

@dataclasses.dataclass
class Point:
    x: int
    y: int

@step
def move(p: Point, by: int) -> Point:
    effect(f"move {p.x} {by}")
    return Point(p.x + by, p.y)

@step
def slow(i: int, seconds: float) -> int:
    effect(f"begin {i}")
    time.sleep(seconds)
    effect(f"end {i}")
    return i

@step
def deadly() -> None:
    effect("deadly")
    time.sleep(0.2)  # its start is written within a few milliseconds
    os.kill(os.getpid(), signal.SIGKILL)

@workflow
async def walk(ctx: Context, x: int = 1) -> Point:
    return await move(await move(Point(x, 0), 2), 3)

@workflow
async def long(ctx: Context, n: int = 5, seconds: float = 0.2) -> int:
    return sum([await slow(i, seconds) for i in range(n)])

@workflow
async def asking(ctx: Context) -> str:
    await move(Point(0, 0), 1)
    return "went" if await ctx.ui.confirm("Go on?", name="go") else "stayed"

@workflow
async def parent(ctx: Context) -> str:
    return (await ctx.workflow(asking)).result

@workflow
async def dies(ctx: Context) -> None:
    await deadly()

@workflow
async def secret(ctx: Context, token: SecretStr) -> None:
    pass
"""


class Workers:
    """Worker processes of one test."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[str]] = []

    def __call__(self, *arguments: str, ready: bool = True) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "loom_kernel.cli.main", "worker", *(arguments or ("flows.py",))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(p) for p in sys.path if p)},
        )
        self.processes.append(process)
        if ready:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert "waiting for runs of" in line, (line, process.communicate(timeout=10))
        return process


@pytest.fixture
def worker() -> Iterator[Workers]:
    """Starts ``loom worker``; all of them are killed at the end."""
    made = Workers()
    yield made
    for process in made.processes:
        process.kill()
        process.communicate()


@pytest.fixture
def flows(project: Path) -> Path:
    """The workflows, defined here too; nothing of them is executed here."""
    path = project / "flows.py"
    path.write_text(FLOWS)
    return path


@pytest.fixture
def define(flows: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The definitions by name."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    return {d.name: d for d in load(flows)}


def until(holds: Callable[[], Any], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def effects() -> list[str]:
    return Path("effects.txt").read_text().splitlines() if Path("effects.txt").exists() else []


def end(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> str:
    """Tell it to end; what it printed."""
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    return out


def test_a_run_left_to_a_worker_waits_for_it_and_is_followed(define: dict[str, Any], worker: Workers) -> None:
    """Started here, executed there: nothing runs in this process, and the value comes back as the class it was."""
    run = define["walk"].options(worker=True).start(x=4)
    assert (run.status, run.live) == ("pending", False)
    assert "waiting for a worker" in repr(run._repr_mimebundle_())
    time.sleep(0.2)
    assert effects() == []
    process = worker()
    result = run.wait(timeout=20)
    assert (type(result.result).__name__, result.result.x, result.result.y) == ("Point", 9, 0)
    assert effects() == ["move 4 2", "move 6 3"]
    again = define["walk"].options(worker=True).start(x=5)
    assert again.wait(timeout=20).result.x == 10
    out = end(process)
    assert f"walk  {run.id}  completed in" in out
    lines = [line for line in out.splitlines() if not line.startswith("finishing")]
    assert [line.split()[1:4] for line in lines] == [["walk", r.id, "completed"] for r in (run, again)]


def test_loom_run_detach_prints_the_id(
    flows: Path, worker: Workers, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And returns at once."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert main(["run", "flows.py:walk", "x=7", "--detach", "--quiet"]) == 0
    run_id = capsys.readouterr().out.strip()
    assert get_run(run_id).status == "pending"
    worker()
    assert get_run(run_id).wait(timeout=20).result.x == 12


def test_what_a_worker_cannot_have_is_refused_at_the_start(define: dict[str, Any]) -> None:
    """Before a run is made."""
    with pytest.raises(InputError, match="a secret input is not stored"):
        define["secret"].options(worker=True).start(token="x")
    with pytest.raises(InputError, match=r"--answers FILE"):
        define["asking"].options(worker=True, answers={"go": True}).start()
    assert list(runs()) == []


def test_a_pending_run_is_cancelled_without_a_worker(define: dict[str, Any], worker: Workers) -> None:
    """Nobody would hear a request, so its end is written here; no worker takes it up."""
    run = define["walk"].options(worker=True).start()
    run.cancel(reason="not needed")
    assert run.status == "cancelled"
    process = worker()
    time.sleep(0.3)
    assert effects() == []
    end(process)


def test_a_drained_worker_finishes_its_step_and_another_goes_on(define: dict[str, Any], worker: Workers) -> None:
    """SIGTERM: the step at work is kept, the next does not begin, no step is repeated."""
    first = worker()
    run = define["long"].options(worker=True).start(n=4, seconds=0.6)
    until(lambda: "begin 1" in effects())
    out = end(first)
    assert "finishing what is at work in 1 run(s)" in out
    assert f"long  {run.id}  given back" in out
    assert effects() == ["begin 0", "end 0", "begin 1", "end 1"]
    assert run.status == "interrupted"
    worker()
    assert run.wait(timeout=20).result == 6
    assert [line for line in effects() if line.startswith("begin")] == [f"begin {i}" for i in range(4)]


def test_a_drained_worker_gives_a_waiting_run_back_at_once(define: dict[str, Any], worker: Workers) -> None:
    """A question stays open, also a child's; the next worker takes the answer."""
    first = worker()
    run = define["parent"].options(worker=True).start()
    until(lambda: run.prompts())
    begin = time.monotonic()
    end(first, signal.SIGINT)
    assert time.monotonic() - begin < 5
    worker()
    until(lambda: run.status != "interrupted")
    until(lambda: run.prompts())
    run.answer("yes")
    assert run.wait(timeout=20).result == "went"
    assert effects() == ["move 0 1"]


def test_the_second_signal_ends_a_worker_at_once(define: dict[str, Any], worker: Workers) -> None:
    """The step that was at work runs again elsewhere."""
    first = worker()
    run = define["long"].options(worker=True).start(n=1, seconds=20)
    until(lambda: "begin 0" in effects())
    first.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert first.poll() is None
    begin = time.monotonic()
    end(first)
    assert time.monotonic() - begin < 6
    assert run.status == "interrupted"


def test_the_grace_time_ends_a_drain(define: dict[str, Any], worker: Workers) -> None:
    """Nobody waits for ever for a step that hangs."""
    first = worker("flows.py", "--grace", "0.5")
    define["long"].options(worker=True).start(n=1, seconds=30)
    until(lambda: "begin 0" in effects())
    begin = time.monotonic()
    assert "given back" in end(first)
    assert time.monotonic() - begin < 6


def test_a_killed_workers_run_goes_on_in_the_next(define: dict[str, Any], worker: Workers) -> None:
    """At once, without the step that was finished."""
    first, second = worker(), worker()
    run = define["asking"].options(worker=True).start()
    until(lambda: run.prompts())
    pid = run.events()[1].event.pid  # type: ignore[attr-defined]
    killed = next(p for p in (first, second) if p.pid == pid)
    killed.kill()
    begin = time.monotonic()
    until(lambda: [e for e in run.events() if e.type == "run.started" and e.event.resumed])  # type: ignore[attr-defined]
    assert time.monotonic() - begin < 3
    until(lambda: run.status == "awaiting_input")
    run.answer("no")
    assert run.wait(timeout=20).result == "stayed"
    assert effects() == ["move 0 1"]


def test_a_run_that_kills_every_worker_is_set_aside(define: dict[str, Any], worker: Workers) -> None:
    """After three of them it is paused and says where they died."""
    run = define["dies"].options(worker=True).start()
    for _ in range(4):
        process = worker(ready=False)
        until(lambda p=process: p.poll() is not None or run.status == "paused")
    assert effects() == ["deadly"] * 3
    assert (run.status, run.reason) == ("paused", "crashes")
    assert "3 workers in a row died over it at 'deadly'" in run.view.message


def test_only_the_same_version_is_claimed(define: dict[str, Any], worker: Workers, flows: Path) -> None:
    """A worker with other code leaves the run for one that has its own."""
    run = define["walk"].options(worker=True).start()
    flows.write_text(FLOWS.replace("Point(x, 0), 2", "Point(x, 0), 20"))
    other = worker()
    time.sleep(0.5)
    assert run.status == "pending"
    end(other)
    flows.write_text(FLOWS + "\n# a comment changes nothing\n")
    worker()
    assert run.wait(timeout=20).result.x == 6


def test_a_worker_executes_no_more_than_it_may_at_once(define: dict[str, Any], worker: Workers) -> None:
    """The rest waits, and comes to its turn."""
    started = [define["long"].options(worker=True).start(n=1, seconds=0.3) for _ in range(4)]
    worker("flows.py", "--at-once", "2")
    for run in started:
        assert run.wait(timeout=20).result == 0
    open_at_once = most = 0
    for line in effects():
        open_at_once += 1 if line.startswith("begin") else -1
        most = max(most, open_at_once)
    assert most == 2


def test_a_person_takes_a_run_from_a_living_worker(
    define: dict[str, Any], worker: Workers, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its child; the worker says who has it now, and goes on with other runs."""
    process = worker()
    run = define["parent"].options(worker=True).start()
    until(lambda: run.prompts())
    assert run.held_by == "worker flows.py"
    assert "Held by worker flows.py now" in run._repr_mimebundle_()["text/plain"]
    assert main(["show", run.id]) == 0
    assert "Held by worker flows.py now; it goes on there." in capsys.readouterr().out
    run = get_run(run.id)  # `main` closed the runtime that the first handle belonged to
    with pytest.raises(ResumeError, match=r"worker flows\.py"):
        resume(run.id)
    taken = resume(run.id, take=True)
    assert taken is run
    until(lambda: run.live and run.prompts())
    assert run.held_by == ""
    run.answer("yes")
    assert run.wait(timeout=20).result == "went"
    assert effects() == ["move 0 1"]
    assert define["walk"].options(worker=True).start().wait(timeout=20).result.x == 6
    out = end(process)
    assert f"parent  {run.id}  taken by" in out


def test_a_worker_says_where_its_run_went(define: dict[str, Any], worker: Workers, project: Path) -> None:
    """The process that a run was taken from sees in its own view who has it."""
    run: Run[Any] = define["asking"].start()
    until(lambda: run.prompts())
    (project / "taker.py").write_text(
        "from loom_kernel.cli.files import load\nfrom pathlib import Path\nload(Path('flows.py'))\n"
        f"import time, loom_kernel\nloom_kernel.resume({run.id!r}, take=True)\nprint('has it', flush=True)\ntime.sleep(60)\n"
    )
    taker = subprocess.Popen(
        [sys.executable, "taker.py"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(p) for p in sys.path if p)},
    )
    try:
        assert taker.stdout is not None
        assert taker.stdout.readline() == "has it\n"
        until(lambda: not run.live)
        until(lambda: run.held_by == "taker.py")
        assert "Held by taker.py now; it goes on there." in run._repr_mimebundle_()["text/plain"]
        run.answer("yes")
        assert run.wait(timeout=20).result == "went"
        assert run.held_by == ""
    finally:
        taker.kill()
        taker.communicate()


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (["nowhere.py"], "there is no file 'nowhere.py'"),
        (["empty.py"], "empty.py defines no workflow"),
        (["tour.ipynb"], "tour.ipynb is a notebook"),
        (["flows.py", "twin.py"], "both define the workflow"),
        (["broken.py"], "broken.py cannot be executed: ZeroDivisionError"),
    ],
)
def test_a_file_that_is_no_good_is_a_sentence(
    flows: Path, files: list[str], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is claimed."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("empty.py").write_text("x = 1\n")
    Path("broken.py").write_text("1 / 0\n")
    Path("tour.ipynb").write_text("{}")
    Path("twin.py").write_text(FLOWS)
    assert main(["worker", *files]) == 1
    assert says in capsys.readouterr().err


def test_a_worker_needs_a_journal_that_others_reach(
    flows: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One in memory is nobody else's."""
    monkeypatch.setenv("LOOM_JOURNAL", "memory")
    assert main(["worker", "flows.py"]) == 1
    assert "this one is in memory" in capsys.readouterr().err
    assert not get_runtime().is_open
