"""``loom export``, ``gc``, ``rm``, ``doctor`` and what ``loom sql`` prints, on real journals."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from loom_kernel import events
from loom_kernel.cli.main import main
from loom_kernel.clock import SystemClock
from loom_kernel.ids import HolderId, RunId
from loom_kernel.journal.abc import Append, LeaseAcquired, RunJournal
from loom_kernel.journal.duckdb_store import DuckDBRunJournal
from loom_kernel.journal.liveness import this_process
from loom_kernel.journal.sql_views import COLUMNS

pytestmark = pytest.mark.timeout(90)

DAY = 86_400.0
Loom = Callable[..., tuple[int, str, str]]


class LongAgo(SystemClock):
    """A clock that was set back."""

    def __init__(self, days: float) -> None:
        self._back = days * DAY

    def time(self) -> float:
        return super().time() - self._back


@pytest.fixture
def loom(project: Path, capsys: pytest.CaptureFixture[str]) -> Loom:
    """Runs a command in this process: its status, stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            status = main(arguments)
        except SystemExit as exit:
            status = int(exit.code or 0)
        out, err = capsys.readouterr()
        return status, out, err

    return run


def write(project: Path, days: float, fill: Callable[[RunJournal], Any]) -> None:
    """Write to the project's journal as it was so many days ago, without a hub."""

    async def body() -> None:
        async with await DuckDBRunJournal.open(project / ".loom", LongAgo(days)) as journal:
            await fill(journal)

    asyncio.run(body())


async def make(journal: RunJournal, run_id: str, last: events.Event | None, **header: Any) -> None:
    """A run whose last event is ``last``; without one it is interrupted."""
    holder = this_process(HolderId("me"))
    got = await journal.start_run(RunId(run_id), events.RunCreated(workflow="work", **header), holder)
    assert isinstance(got, LeaseAcquired)
    appends = [events.RunStarted(worker="me"), *([last] if last is not None else [])]
    await journal.append(got.lease, [Append(event) for event in appends])
    await journal.release(got.lease)


DONE = events.RunEnded(status="completed", result=Raw(b"1"))
FAILED = events.RunEnded(status="failed", resumable=True)


async def family(journal: RunJournal) -> None:
    """What a project leaves behind in a while."""
    await make(journal, "done", DONE)
    await make(journal, "failed", FAILED)
    await make(journal, "paused", events.RunPaused(reason="stopped"))
    await make(journal, "open", None)
    await make(journal, "parent", DONE)
    await make(journal, "child", DONE, parent_run_id="parent", root_run_id="parent")
    await make(journal, "waiting", events.RunPaused(reason="stopped"))
    await make(journal, "finished-child", DONE, parent_run_id="waiting", root_run_id="waiting")
    await make(journal, "source", DONE)
    await make(journal, "fork", events.RunPaused(reason="stopped"), forked_from="source")
    await journal.create_run(RunId("pending"), events.RunCreated(workflow="work", for_worker=True))


def test_gc_removes_what_nobody_can_resume_and_nothing_else(project: Path, loom: Loom) -> None:
    """Nor ancestors, children and fork sources of what can; a dry run shows and removes nothing."""
    write(project, 40, family)
    write(project, 1, lambda journal: make(journal, "young", DONE))
    status, out, _ = loom("gc", "--older-than", "30d", "--dry-run")
    assert status == 0
    assert {line.split()[0] for line in out.splitlines()[1:4]} == {"done", "parent", "child"}
    assert "8 runs as old as that can still resume, or belong to one that can, and stay" in out
    assert "would remove 3 runs" in out
    assert len(json.loads(loom("runs", "--json")[1])) == 10
    report = json.loads(loom("gc", "--older-than", "30d", "--json")[1])
    assert (report["dryRun"], report["runs"], sorted(report["runIds"])) == (False, 3, ["child", "done", "parent"])
    left = {row["run_id"] for row in json.loads(loom("sql", "select run_id from runs", "--json")[1])}
    assert left == {
        "failed", "paused", "open", "waiting", "finished-child", "source", "fork", "pending", "young",
    }  # fmt: skip
    assert "removed 0 runs" in loom("gc", "--older-than", "30d")[1]
    assert loom("gc")[0] == 0
    assert loom("doctor")[0] == 0


def test_gc_asks_where_somebody_sits_at_the_terminal(project: Path) -> None:
    """And does nothing unless the answer is yes; ``--yes`` answers beforehand."""
    write(project, 40, family)

    def typed(answer: str, *options: str) -> tuple[int, str]:
        import pty

        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "loom_kernel.cli.main", "gc", "--older-than", "30d", *options],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(p) for p in sys.path if p)},
        )
        os.write(ours, answer.encode())
        out, _ = process.communicate(timeout=60)
        os.close(ours)
        os.close(theirs)
        return process.returncode, out

    status, out = typed("n\n")
    assert (status, "Remove 3 runs for good? [y/N]" in out, "nothing was removed" in out) == (1, True, True)
    status, out = typed("y\n")
    assert (status, "removed 3 runs" in out) == (0, True)
    assert typed("", "--yes")[0] == 0


@pytest.mark.parametrize("age", ["30", "d", "-1d", "1 year", "30days"])
def test_an_age_is_a_number_and_a_unit(age: str, loom: Loom) -> None:
    """The error shows how it is written."""
    status, _, err = loom("gc", f"--older-than={age}")
    assert (status, "such as 30d" in err) == (2, True)


def test_rm_removes_named_runs(project: Path, loom: Loom) -> None:
    """Also a failed one, which ``gc`` leaves alone; not one that goes on."""
    write(project, 1, family)
    status, out, _ = loom("rm", "failed", "done")
    assert (status, out.splitlines()) == (0, ["removed run failed of work", "removed run done of work"])
    status, _, err = loom("rm", "pending")
    assert (status, "is pending; cancel it before deleting it" in err) == (1, True)
    assert loom("rm", "nothing")[0] == 1


def test_export_writes_every_view(project: Path, loom: Loom) -> None:
    """As Parquet that others can read, with the documented columns."""
    import pyarrow.parquet as pq

    write(project, 1, family)
    status, out, _ = loom("export", "--parquet", "out/tables")
    assert status == 0
    assert len(out.splitlines()) == len(COLUMNS) + 1
    for view, columns in COLUMNS.items():
        table = pq.read_table(project / "out" / "tables" / f"{view}.parquet")
        assert tuple(table.column_names) == columns
    assert pq.read_table("out/tables/runs.parquet").num_rows == 11
    written = json.loads(loom("export", "--parquet", "out/tables", "--json")[1])
    assert [w["view"] for w in written] == list(COLUMNS)
    assert not list((project / ".loom" / "tmp").glob("*.parquet"))
    (project / "file").write_text("")
    status, _, err = loom("export", "--parquet", "file/x")
    assert (status, err.startswith("loom: cannot write to file/x")) == (1, True)


def test_sql_prints_csv_and_points_at_mistakes(project: Path, loom: Loom) -> None:
    """All rows of it, as other programs read them."""
    status, out, _ = loom("sql", "select i, [i] as l, null as n, 'a,b' as t, now() as at from range(150) r(i)", "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert (status, len(rows)) == (0, 150)
    assert (rows[7]["i"], rows[7]["l"], rows[7]["n"], rows[7]["t"]) == ("7", "[7]", "", "a,b")
    assert rows[7]["at"][:2] == "20"
    assert len(loom("sql", "select * from range(9)", "--csv", "--limit", "3")[1].splitlines()) == 4
    assert len(loom("sql", "select * from range(150)")[1].splitlines()) == 101
    status, _, err = loom("sql", "select from where")
    assert (status, "syntax error" in err, "^" in err.splitlines()[-1]) == (1, True, True)
    assert loom("sql", "select 1", "--csv", "--json")[0] == 1


def test_the_doctor_names_what_waits_for_somebody(project: Path, loom: Loom) -> None:
    """An interrupted run, a timer nobody fires, an open question; none of them is an error."""

    async def fill(journal: RunJournal) -> None:
        holder = this_process(HolderId("me"))
        got = await journal.start_run(RunId("late"), events.RunCreated(workflow="work"), holder)
        assert isinstance(got, LeaseAcquired)
        asks = events.PromptOpened(prompt="go", kind="confirm", message="Go?")
        sleeps = events.NodeStarted(name="nap", kind="sleep", wake_at=time.time() - DAY)
        await journal.append(
            got.lease,
            [
                Append(events.RunStarted(worker="me")),
                Append(sleeps, "sleep:nap:#1", "sleep:nap:#1:start:1:1"),
                Append(asks, "prompt:go:#1"),
            ],
        )
        await journal.release(got.lease)
        await journal.put_blobs([("0" * 64, b"x" * 1000)])

    assert loom("doctor")[0] == 0, "an empty folder is no trouble"
    write(project, 2, fill)
    blob = project / ".loom" / "blobs" / "00" / ("0" * 64)
    if blob.exists():
        os.utime(blob, (time.time() - 3 * DAY,) * 2)
    status, out, _ = loom("doctor")
    assert status == 0
    assert "✓ events: numbered without a gap, every key once" in out
    assert "! leases: 1 run whose holder is gone" in out
    assert "late (work)" in out
    assert "! timers: 1 timer overdue" in out
    assert "nap of late, 1 d 0 h late" in out
    assert "! questions: 1 question unanswered: go of late, since 2 d 0 h" in out
    checks = {c["check"]: c for c in json.loads(loom("doctor", "--json")[1])["checks"]}
    assert (checks["events"]["ok"], checks["leases"]["ok"], checks["leases"]["broken"]) == (True, False, False)
    assert "1 value of 0.0 MiB that nothing refers to" in checks["values"]["text"]
    assert "removed 0 runs and 1 value" in loom("gc")[1]
    assert "✓ values" in loom("doctor")[1]


def test_the_doctor_finds_a_gap(project: Path, loom: Loom) -> None:
    """Which no program of ours writes: it is an error, and the run is named."""
    import duckdb

    write(project, 1, family)
    assert loom("doctor")[0] == 0
    assert loom("hub", "stop")[0] == 0
    with duckdb.connect(str(project / ".loom" / "loom.duckdb")) as connection:
        connection.execute("delete from store.events where run_id = 'done' and seq = 2")
    status, out, _ = loom("doctor")
    assert status == 1
    assert "✗ events: 1 run with gaps or repeated keys; restore the journal from a copy: done" in out


def test_the_hub_of_the_configured_journal_is_meant(project: Path, loom: Loom, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not of another folder; a journal in memory has none."""
    monkeypatch.setenv("LOOM_JOURNAL", str(project / "elsewhere"))
    assert loom("runs")[0] == 0
    status = json.loads(loom("hub", "status", "--json")[1])
    assert (status["running"], status["folder"]) == (True, str(project / "elsewhere"))
    assert loom("hub", "stop")[1] == "stopped\n"
    monkeypatch.setenv("LOOM_JOURNAL", "memory")
    status_, _, err = loom("hub", "status")
    assert (status_, "has no hub" in err) == (1, True)
    monkeypatch.setenv("LOOM_JOURNAL", "memry")
    status_, out, _ = loom("doctor")
    assert (status_, "LOOM_JOURNAL='memry'" in out) == (1, True)
