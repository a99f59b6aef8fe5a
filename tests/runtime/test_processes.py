"""Several processes on one journal: following, answering, dying, forking, and a journal for tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from loom_kernel.authoring.context import Context
from loom_kernel.authoring.step import step
from loom_kernel.authoring.workflow import workflow
from loom_kernel.errors import AnswerError, ResumeError, RunStopped
from loom_kernel.runtime import get_runtime
from loom_kernel.runtime.api import configure, get_run, resume, runs, sql
from tests.runtime.test_run import until

WORKER = """
import sys, time
from loom_kernel import Context, step, workflow

@step
def note(n: int) -> int:
    with open("effects.txt", "a") as file:
        file.write(f"{n}\\n")
    return n

@workflow
async def job(ctx: Context, n: int = 3) -> int:
    for i in range(n):
        await note(i)
    await ctx.ui.confirm("Go on?", name="go")
    return n

if __name__ == "__main__":
    run = job.start()
    print(run.id, flush=True)
    print(run.wait().result, flush=True)
"""


@pytest.fixture
def worker(project: Path) -> Any:
    """Another process that executes ``job``, and its run's id."""
    (project / "worker.py").write_text(WORKER)
    process = subprocess.Popen(
        [sys.executable, "worker.py"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    assert process.stdout is not None
    run_id = process.stdout.readline().strip()
    assert run_id
    yield process, run_id
    process.kill()
    process.communicate()


def define_job() -> None:
    """The worker's workflow, here."""

    @step
    def note(n: int) -> int:
        with open("effects.txt", "a") as file:
            file.write(f"{n}\n")
        return n

    @workflow
    async def job(ctx: Context, n: int = 3) -> int:
        for i in range(n):
            await note(i)
        await ctx.ui.confirm("Go on?", name="go")
        return n


def test_a_run_of_another_process_is_read_followed_and_answered(worker: tuple[Any, str]) -> None:
    """The handle is the same wherever the run lives; it executes nothing here."""
    process, run_id = worker
    run = get_run(run_id)
    until(lambda: run.status == "awaiting_input", 20)
    assert not run.live
    assert [n.status for n in run.nodes()] == ["completed", "completed", "completed", "waiting"]
    assert runs()[0] is run
    seen: list[str] = []
    run.listen(lambda entry: seen.append(entry.type))
    with pytest.raises(TimeoutError):
        run.wait(timeout=0.3)
    run.answer("yes")
    assert run.wait(timeout=20).result == 3
    assert run.value == 3
    assert process.stdout.readline().strip() == "3"
    until(lambda: "run.ended" in seen)
    with pytest.raises(AnswerError):
        run.answer("no", prompt="go")
    assert sql("select status from runs").fetchall() == [("completed",)]


def test_a_live_worker_keeps_its_run(worker: tuple[Any, str]) -> None:
    """Resuming elsewhere is refused, unless it is taken on purpose; the old worker then writes no more."""
    process, run_id = worker
    define_job()
    run = get_run(run_id)
    until(lambda: run.status == "awaiting_input", 20)
    with pytest.raises(ResumeError):
        resume(run_id)
    taken = resume(run_id, take=True)
    assert taken is run
    until(lambda: run.live and run.prompts())
    run.answer("yes")
    assert run.wait(timeout=20).result == 3
    # The old worker follows its run from then on, and sees it end.
    assert process.stdout.readline().strip() == "3"
    assert Path("effects.txt").read_text().split() == ["0", "1", "2"]


def test_a_killed_workers_run_is_interrupted_and_goes_on_here(worker: tuple[Any, str]) -> None:
    """Finished steps do not run again; the question still waits."""
    process, run_id = worker
    define_job()
    run = get_run(run_id)
    until(lambda: run.status == "awaiting_input", 20)
    process.send_signal(signal.SIGKILL)
    process.wait()
    until(lambda: run.status == "interrupted", 10)
    assert [r.id for r in runs(status="interrupted")] == [run_id]
    assert resume(run_id[:6]) is run
    until(lambda: run.prompts())
    run.answer("yes")
    assert run.wait(timeout=20).result == 3
    assert Path("effects.txt").read_text().split() == ["0", "1", "2"]


def test_an_interrupted_run_can_be_cancelled(worker: tuple[Any, str]) -> None:
    """Although nobody executes it."""
    process, run_id = worker
    run = get_run(run_id)
    until(lambda: run.status == "awaiting_input", 20)
    process.kill()
    process.wait()
    until(lambda: run.status == "interrupted", 10)
    run.cancel(reason="enough")
    with pytest.raises(RunStopped, match="was cancelled: enough"):
        run.wait(timeout=10)


def test_an_interrupt_ends_a_wait_at_once_and_not_the_run(project: Path) -> None:
    """Ctrl-C in a script is felt in less than 0.3 s."""
    (project / "worker.py").write_text(
        WORKER.replace(
            "    print(run.wait().result, flush=True)",
            """    try:
        run.wait()
    except KeyboardInterrupt:
        print(time.time(), run.status, flush=True)""",
        )
    )
    process = subprocess.Popen(
        [sys.executable, "worker.py"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    assert process.stdout is not None
    run = get_run(process.stdout.readline().strip())
    until(lambda: run.status == "awaiting_input", 20)
    sent = time.time()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    felt, status = out.split()
    assert float(felt) - sent < 0.3
    assert status == "awaiting_input"


def test_a_forked_child_starts_without_a_runtime(project: Path) -> None:
    """It has neither the thread nor the right to the connection, and the parent goes on."""
    define_job()
    parent = get_runtime()
    runs()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            fresh = get_runtime() is not parent
            os.write(writing, json.dumps([fresh, get_runtime().is_open]).encode())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(writing)
    assert json.loads(os.read(reading, 100)) == [True, False]
    os.close(reading)
    assert list(runs()) == []


def test_loom_test_gives_a_fresh_journal_with_the_same_ids(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the same ids, no folder in the project, sleeps that take no time."""
    program = WORKER.replace('await ctx.ui.confirm("Go on?", name="go")', 'await ctx.sleep("long", 86400)')
    (project / "worker.py").write_text(program)
    environment = {**os.environ, "LOOM_TEST": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    del environment["LOOM_HOME"]
    outputs = [
        subprocess.run(
            [sys.executable, "worker.py"], capture_output=True, text=True, env=environment, timeout=60, check=True
        ).stdout
        for _ in range(2)
    ]
    assert outputs[0] == outputs[1]
    assert outputs[0].splitlines()[1] == "3"
    assert not (project / ".loom").exists()


def test_a_journal_in_memory_only_by_name(project: Path) -> None:
    """``configure(journal="memory")`` makes no folder."""
    configure(journal="memory")
    assert list(runs()) == []
    assert not (project / ".loom").exists()
