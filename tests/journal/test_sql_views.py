"""The documented views: their columns, their types, and what they say of a history."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from msgspec import Raw

from loom_kernel import events
from loom_kernel.events import ErrorRecord, Event
from loom_kernel.journal.abc import JournalEntry
from loom_kernel.journal.database import query_entries
from loom_kernel.journal.sql_views import COLUMNS

pytestmark = pytest.mark.timeout(60)

START = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
BOOM = ErrorRecord(type="builtins:ValueError", message="boom")


def history(*rows: tuple[float, str | None, Event], run_id: str = "run") -> list[JournalEntry]:
    """Entries of a run, each at so many seconds after the start."""
    return [
        JournalEntry(
            seq, run_id, seq, f"k{seq}", event.type, node_id, events.encode(event), int((START + at) * 1_000_000)
        )
        for seq, (at, node_id, event) in enumerate(rows, 1)
    ]


def ask(entries: list[JournalEntry], sql: str) -> list[tuple[Any, ...]]:
    path: Path = query_entries(entries, sql, 30.0)
    rows: list[tuple[Any, ...]] = duckdb.read_parquet(str(path)).fetchall()
    path.unlink()
    return rows


STORY = history(
    (0, None, events.RunCreated(workflow="digest", inputs=Raw(b'{"url":"x"}'), tags=["a", "b"], notebook="n.ipynb")),
    (0, None, events.LeaseTaken(epoch=1, holder="h", pid=7, label="n.ipynb")),
    (1, None, events.RunStarted(worker="h")),
    (1, "step:fetch:#1", events.NodeStarted(name="fetch", kind="step", attempt=1)),
    (2, "step:fetch:#1", events.NodeRetrying(attempt=1, error=BOOM, delay_s=1.0, duration_s=0.5)),
    (3, "step:fetch:#1", events.NodeStarted(name="fetch", kind="step", attempt=2)),
    (5, "step:fetch:#1", events.NodeCompleted(result=Raw(b"1"), attempts=2, duration_s=1.5)),
    (5, "step:lost:#1", events.NodeStarted(name="lost", kind="step", parents=["step:fetch:#1"])),
    (6, None, events.LeaseTaken(epoch=2, holder="i", pid=8, kind="worker")),
    (6, None, events.RunStarted(worker="i", resumed=True)),
    (7, "step:lost:#1", events.NodeStarted(name="lost", kind="step", parents=["step:fetch:#1"])),
    (8, "step:lost:#1", events.NodeFailed(error=BOOM, duration_s=0.25)),
    (9, "prompt:go:#1", events.PromptOpened(prompt="go", kind="confirm", message="Go on?", parents=["step:lost:#1"])),
    (19, "prompt:go:#1", events.PromptAnswered(generation=1, value=Raw(b"false"), by="ann")),
    (19, "prompt:go:#1", events.PromptOpened(prompt="go", kind="confirm", message="Sure?", generation=2, error="no")),
    (29, "prompt:go:#1", events.PromptAnswered(generation=2, value=Raw(b"true"), by="bob")),
    (29, "prompt:go:#1", events.NodeCompleted(result=Raw(b"true"), answered_by="bob")),
    (30, "sleep:nap:#1", events.NodeStarted(name="nap", kind="sleep", wake_at=START + 90.0)),
    (90, "sleep:nap:#1", events.NodeCompleted()),
    (100, None, events.RunEnded(status="completed", result=Raw(b'{"n":3}'))),
)


@pytest.mark.parametrize("view", COLUMNS)
def test_a_view_has_its_documented_columns(view: str) -> None:
    """In this order, of useful types, in an empty journal too."""
    path = query_entries([], f"from {view}", 30.0)
    relation = duckdb.read_parquet(str(path))
    assert tuple(relation.columns) == COLUMNS[view]
    kinds = dict(zip(relation.columns, map(str, relation.types), strict=True))
    for name, kind in kinds.items():
        if name.endswith("_at"):
            assert kind == "TIMESTAMP WITH TIME ZONE", name
        elif name.endswith("_s") or name == "cost_usd":
            assert kind == "DOUBLE", name
        elif name in ("payload", "inputs", "result", "answer", "value", "data", "path", "preview", "tool_calls"):
            assert kind == "JSON", name
    assert relation.fetchall() == []


def test_runs_tell_how_a_run_went() -> None:
    """Inputs, outcome and times; waiting for people apart."""
    [row] = ask(
        STORY,
        "select workflow, tags, notebook, status, inputs->>'url', result->>'n', error, duration_s, waited_s, tokens, "
        "epoch(created_at), epoch(ended_at) from runs",
    )
    assert row == (
        "digest", ["a", "b"], "n.ipynb", "completed", "x", "3", None, 99.0, 20.0, None, START, START + 100,
    )  # fmt: skip


def test_a_run_that_goes_on_has_not_ended() -> None:
    """Also when it ended once and was resumed."""
    failed = history(
        (0, None, events.RunCreated(workflow="w")),
        (1, None, events.RunStarted(worker="h")),
        (2, None, events.RunEnded(status="failed", error=BOOM, reason="x")),
    )
    query = "select status, reason, error, result, ended_at is null, duration_s from runs"
    assert ask(failed, query) == [("failed", "x", "boom", "null", False, 1.0)]
    resumed = [
        *failed,
        JournalEntry(4, "run", 4, None, "run.started", None, b'{"worker":"i"}', (START + 9) * 1_000_000),
    ]
    assert ask(resumed, query) == [("running", None, None, None, True, None)]


def test_nodes_tell_what_was_done() -> None:
    """Status, attempts, parents, durations, and what came from the journal when the run was resumed."""
    rows = ask(
        STORY,
        "select node_id, name, kind, status, parents, attempts, from_journal, duration_s, waited_s, error from nodes "
        "order by started_at, node_id",
    )
    assert rows == [
        ("step:fetch:#1", "fetch", "step", "completed", [], 2, True, 1.5, 0.0, None),
        ("step:lost:#1", "lost", "step", "failed", ["step:fetch:#1"], 2, False, 0.25, 0.0, "boom"),
        ("prompt:go:#1", "go", "prompt", "completed", [], 1, False, 20.0, 20.0, None),
        ("sleep:nap:#1", "nap", "sleep", "completed", [], 1, False, 60.0, 60.0, None),
    ]


def test_attempts_tell_each_try() -> None:
    """With its worker; one that a crash cut off is interrupted."""
    rows = ask(
        STORY,
        "select node_id, attempt, status, duration_s, error, worker from attempts where node_id like 'step:%' "
        "order by started_at",
    )
    assert rows == [
        ("step:fetch:#1", 1, "failed", 0.5, "boom", "n.ipynb (pid 7)"),
        ("step:fetch:#1", 2, "completed", 1.5, None, "n.ipynb (pid 7)"),
        ("step:lost:#1", 1, "interrupted", None, None, "n.ipynb (pid 7)"),
        ("step:lost:#1", 1, "failed", 0.25, "boom", "worker (pid 8)"),
    ]


def test_prompts_tell_who_answered() -> None:
    """The last answer to a question that was asked again, and the whole wait."""
    query = "select prompt, kind, message, answered_by, answer, waited_s from prompts"
    assert ask(STORY, query) == [("go", "confirm", "Sure?", "bob", "true", 20.0)]
    assert ask(STORY[:15], query) == [("go", "confirm", "Sure?", None, None, None)]
    assert ask(STORY[:14], query) == [("go", "confirm", "Go on?", "ann", "false", 10.0)]


def test_a_question_that_timed_out_has_its_default() -> None:
    """Nobody answered, and yet there is an answer."""
    story = history(
        (0, None, events.RunCreated(workflow="w")),
        (1, "prompt:go:#1", events.PromptOpened(prompt="go", kind="confirm", message="Go?")),
        (4, "prompt:go:#1", events.NodeCompleted(result=Raw(b"false"), answered_by="default")),
    )
    assert ask(story, "select answered_by, answer, waited_s from prompts") == [("default", "false", 3.0)]


def test_signals_are_the_posts() -> None:
    """Who sent what, without holding the run."""
    story = history(
        (0, None, events.RunCreated(workflow="w")),
        (1, None, events.MessagePosted(name="note", value=Raw(b'{"a":1}'), by="ann")),
        (2, None, events.CancelRequested(by="bob", reason="enough")),
    )
    rows = ask(story, "select kind, name, value->>'a', posted_by from signals order by seq")
    assert rows == [("message.posted", "note", "1", "ann"), ("run.cancel_requested", None, None, "bob")]


def test_events_are_all_there_is() -> None:
    """Payloads are JSON that can be asked."""
    rows = ask(STORY, "select type, payload->>'name' as name from events where type = 'node.started' order by seq")
    assert rows == [("node.started", name) for name in ("fetch", "fetch", "lost", "lost", "nap")]


def test_durations_of_steps_are_one_question() -> None:
    """What the tour asks."""
    rows = ask(
        STORY,
        "select name, count(*) as n, round(sum(nodes.duration_s), 2) as seconds from nodes join runs using (run_id) "
        "where workflow = 'digest' and kind = 'step' group by name order by seconds desc",
    )
    assert rows == [("fetch", 1, 1.5), ("lost", 1, 0.25)]


KEPT = [
    *history(
        (0, None, events.RunCreated(workflow="plot", definition_version="v1", source="old", description="Draws")),
        (1, None, events.RunStarted(worker="h", definition_version="v1")),
        (2, None, events.OutputReported(value=Raw(b'"a line"'))),
        (3, None, events.OutputReported(namespace="rows", index=4, value=Raw(b'{"n":1}'))),
        (
            4,
            "put:cleaned:#1",
            events.ArtifactKept(
                name="cleaned", revision=2, kind="table", source="put", size_bytes=9, sha256="ab", media_type="p"
            ),
        ),
        (9, None, events.RunStarted(worker="h", resumed=True, definition_version="v2")),
        run_id="plot",
    ),
    *[
        JournalEntry(100 + n, "storage", n, f"c{n}", event.type, None, events.encode(event), (START + n) * 1_000_000)
        for n, event in enumerate(
            [
                events.RunCreated(workflow="", mode="storage", parent_run_id="storage"),
                events.StorageCommitted(
                    number=1,
                    token="t1",
                    run_id="plot",
                    writes=[
                        events.StorageWrite(
                            op="create_artifact", id="a", flow="f", stage="s", revision=1, data=Raw(b"1"), kind="json"
                        ),
                        events.StorageWrite(op="append_record", id="r", flow="f", stage="log", data=Raw(b'{"n":1}')),
                    ],
                ),
                events.StorageCommitted(
                    number=2,
                    token="t2",
                    run_id="plot",
                    writes=[
                        events.StorageWrite(op="remove_artifact", id="a"),
                        events.StorageWrite(op="remove_record", id="r"),
                        events.StorageWrite(
                            op="create_artifact", id="b", flow="f", stage="s", revision=2, data=Raw(b"2"), kind="json"
                        ),
                    ],
                ),
            ],
            1,
        )
    ],
]


def test_what_is_kept_is_found_by_name() -> None:
    """Artifacts of runs and of the storage stand in one view, records in another; what was removed says when."""
    rows = ask(
        KEPT,
        "select run_id, name, revision, kind, source, size_bytes, removed_at is not null from artifacts order by global_seq",
    )
    assert rows == [
        ("plot", "cleaned", 2, "table", "put", 9, False),
        ("plot", "f/s", 1, "json", "storage", 0, True),
        ("plot", "f/s", 2, "json", "storage", 0, False),
    ]
    assert ask(KEPT, "select id, stage_name, data->>'n', run_id, removed_at - created_at from records") == [
        ("r", "log", "1", "plot", timedelta(seconds=1))
    ]


def test_the_stream_of_the_storage_is_no_run() -> None:
    """It has events, and no row among the runs and definitions."""
    assert ask(KEPT, "select run_id from runs") == [("plot",)]
    assert ask(KEPT, "select count(*) from events where run_id = 'storage'") == [(3,)]
    assert ask(KEPT, "select count(*) from definitions where workflow = ''") == [(0,)]


def test_chunks_are_what_bodies_reported() -> None:
    """One row a reported value, with its namespace and index."""
    assert ask(KEPT, "select namespace, index, value::varchar from chunks order by seq") == [
        ("", 0, '"a line"'),
        ("rows", 4, '{"n":1}'),
    ]


def test_definitions_are_the_versions_that_ran() -> None:
    """A version that only resumed a run is one, too; its source is not known from that."""
    rows = ask(
        KEPT,
        "select workflow, version, description, source, runs, last_seen_at - first_seen_at from definitions order by version",
    )
    assert rows == [
        ("plot", "v1", "Draws", "old", 1, timedelta(seconds=1)),
        ("plot", "v2", "", None, 1, timedelta(0)),
    ]


def test_questions_to_a_journal_in_memory_leave_nothing_behind(tmp_path: Path) -> None:
    """Their results lie in one folder of the process, which goes with it."""
    program = """
import asyncio, tempfile
from loom_kernel.journal.memory_store import MemoryRunJournal

async def main():
    journal = MemoryRunJournal()
    paths = {await journal.query("select 1") for _ in range(3)}
    assert len({path.parent for path in paths}) == 1 and len(paths) == 3

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_fork_has_its_copies_and_not_those_it_never_asked_for() -> None:
    """A copy counts as from the journal and has no attempt here; an unused one is no part of the fork."""
    fork = history(
        (0, None, events.RunCreated(workflow="digest", forked_from="other", forked_at="write")),
        (0, "step:used:#1", events.NodeStarted(name="used", kind="step")),
        (0, "step:used:#1", events.NodeCompleted(result=Raw(b"1"), duration_s=2.0)),
        (0, "step:unused:#1", events.NodeStarted(name="unused", kind="step")),
        (0, "step:unused:#1", events.NodeCompleted(result=Raw(b"1"), duration_s=2.0)),
        (0, None, events.RunForked(source="other", kept=2)),
        (1, None, events.RunStarted(worker="h")),
        (1, "step:used:#1", events.NodeRecalled(parents=["step:here:#1"])),
        (1, "step:write:#1", events.NodeStarted(name="write", kind="step", parents=["step:used:#1"])),
        (2, "step:write:#1", events.NodeCompleted(result=Raw(b"1"), duration_s=1.0)),
        (2, None, events.RunEnded(status="completed")),
    )
    rows = ask(fork, "select name, from_journal, duration_s from nodes order by name")
    assert rows == [("used", True, 2.0), ("write", False, 1.0)]
    assert ask(fork, "select parents from nodes where name = 'used'") == [(["step:here:#1"],)]
    assert ask(fork, "select node_id from attempts") == [("step:write:#1",)]
    assert ask(fork, "select forked_from from runs") == [("other",)]
