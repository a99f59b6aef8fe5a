"""The documented views: their columns, their types, and what they say of a history."""

from __future__ import annotations

from datetime import UTC, datetime
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
        elif name in ("payload", "inputs", "result", "answer", "value"):
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
