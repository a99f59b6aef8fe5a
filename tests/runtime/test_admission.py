"""Starting while the journal does not answer: an error within seconds, and no run that stands there without a node."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loom_kernel.authoring.context import Context
from loom_kernel.authoring.step import step
from loom_kernel.authoring.workflow import WorkflowDefinition, workflow
from loom_kernel.engine.admission import ADMISSION_S
from loom_kernel.errors import StorageUnavailableError, is_retryable_workflow_error
from loom_kernel.journal.memory_store import MemoryRunJournal
from loom_kernel.runtime import Runtime, get_runtime
from tests.runtime.test_run import until

done: list[int] = []


@step
def one(n: int) -> int:
    done.append(n)
    return n


@pytest.fixture
def job() -> WorkflowDefinition[Any, Any]:
    """One step."""
    done.clear()

    @workflow
    async def job(ctx: Context, n: int) -> int:
        return await one(n)

    return job


class SlowJournal(MemoryRunJournal):
    """Does what it is asked for, and answers when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.let = threading.Event()
        self.let.set()
        self.asked: list[str] = []
        self.within = False

    async def _later(self, what: str) -> None:
        self.asked.append(what)
        while not self.let.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.005)

    async def start_run(self, *args: Any) -> Any:
        self.within = True  # it creates the run by the method below
        answer = await super().start_run(*args)
        self.within = False
        await self._later("start_run")
        return answer

    async def create_run(self, *args: Any) -> Any:
        answer = await super().create_run(*args)
        if not self.within:
            await self._later("create_run")
        return answer

    async def list_runs(self, **filters: Any) -> Any:
        await self._later("list_runs")
        return await super().list_runs(**filters)


@pytest.fixture
def slow() -> Iterator[SlowJournal]:
    """A journal that answers late while ``let`` is not set."""
    journal = SlowJournal()
    yield journal
    journal.let.set()


@pytest.fixture
def patient(make_runtime: Callable[..., Runtime], slow: SlowJournal) -> Runtime:
    """A runtime on it that waits a moment only."""

    async def open_it() -> SlowJournal:
        return slow

    runtime = make_runtime(journal=open_it)
    assert list(runtime.runs()) == []
    assert runtime.engine.admission.seconds == ADMISSION_S == 10.0
    runtime.engine.admission.seconds = 0.1
    slow.asked.clear()
    return runtime


def count(runtime: Runtime, journal: SlowJournal) -> int:
    """Runs that the journal has, whatever it lets us ask."""

    async def ask() -> int:
        return len(await MemoryRunJournal.list_runs(journal))

    return runtime.loop.submit(ask()).result(timeout=10)


@pytest.mark.parametrize(
    ("options", "asked"),
    [({"fresh": True}, "start_run"), ({"fresh": True, "worker": True}, "create_run"), ({}, "list_runs")],
    ids=["start", "left to a worker", "looking for an unfinished one"],
)
def test_a_journal_that_does_not_answer_is_an_error_and_leaves_no_run(
    patient: Runtime, slow: SlowJournal, job: WorkflowDefinition[Any, Any], options: dict[str, Any], asked: str
) -> None:
    """# spec 5.53: told within seconds, as something to try again; what the journal did meanwhile is undone."""
    job.options(fresh=True).start(n=0).wait(timeout=20)  # what a kernel looks up once is looked up
    slow.asked.clear()
    slow.let.clear()
    with pytest.raises(StorageUnavailableError, match=r"has not answered for 0.1 s, so no run was started") as error:
        job.options(**options).start(n=1)
    assert is_retryable_workflow_error(error.value) and slow.asked == [asked]
    slow.let.set()
    until(lambda: count(patient, slow) == 1)
    assert not patient.live() and done == [0]
    assert job.options(fresh=True).start(n=2).wait(timeout=20).result == 2 and done == [0, 2]


def test_a_start_that_is_interrupted_while_it_waits_leaves_no_run(
    patient: Runtime, slow: SlowJournal, job: WorkflowDefinition[Any, Any]
) -> None:
    """The same where the person does not wait that long."""
    patient.engine.admission.seconds = 60.0
    job.options(fresh=True).start(n=0).wait(timeout=20)
    slow.asked.clear()
    slow.let.clear()

    async def start() -> None:
        waiting = asyncio.ensure_future(job.options(fresh=True).start_async(n=1))
        while slow.asked != ["start_run"]:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(start())
    slow.let.set()
    until(lambda: count(patient, slow) == 1)
    assert not patient.live() and done == [0]


def test_a_hub_that_is_suspended_is_an_error_and_the_run_is_not_there_when_it_wakes(
    project: Path, job: WorkflowDefinition[Any, Any]
) -> None:
    """# spec 5.53: with a real hub, which does what it was sent before it slept once it is awake."""
    assert job.start(n=1).wait(timeout=30).result == 1
    runtime = get_runtime()
    runtime.engine.admission.seconds = 0.3
    hub = int(json.loads((project / ".loom" / "hub.json").read_text())["pid"])
    os.kill(hub, signal.SIGSTOP)
    try:
        with pytest.raises(StorageUnavailableError, match=r"has not answered for 0.3 s"):
            job.start(n=2)
    finally:
        os.kill(hub, signal.SIGCONT)
    runtime.engine.admission.seconds = ADMISSION_S
    assert job.start(n=3).wait(timeout=30).result == 3
    until(lambda: [run.inputs["n"] for run in runtime.runs()] == [3, 1])
    assert done == [1, 3]
