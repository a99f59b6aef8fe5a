"""What SQL shows of runs that rest is kept in tables; it is what folding all events would show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loom_kernel import events as ev
from loom_kernel.journal import database, sql_times, tables
from loom_kernel.journal.abc import JournalEntry
from loom_kernel.journal.core import DELETED
from loom_kernel.journal.sql_views import FOLD
from tests.bench.generated import entries, run_id

VIEWS = ("runs", "nodes", "attempts", "prompts")


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[database.Opened]:
    """A journal of forty runs, nothing folded."""
    opened = database.open_folder(tmp_path / ".loom")
    opened.tables.apply(list(entries(4_000, 40)))
    yield opened
    opened.close(everything_applied=True)


def shown(opened: database.Opened) -> dict[str, list[Any]]:
    """All rows of all views."""
    return {view: opened.tables._rows(f"select * from {view} order by all") for view in VIEWS}


def folded(opened: database.Opened) -> int:
    """How many runs are."""
    return int(opened.tables._column("select count(*) from store.folded_runs")[0])


def unfold(opened: database.Opened) -> None:
    """Have everything folded by the views."""
    for table in ("store.folded_runs", *FOLD, *sql_times.FOLD):
        opened.tables._rows(f"delete from {table}")


def test_folded_runs_look_the_same(opened: database.Opened) -> None:
    """Every column of every row, while some are folded and when all are."""
    before = shown(opened)
    assert folded(opened) == 0
    assert len(before["nodes"]) > 1_500
    while opened.tables.fold_resting():
        assert shown(opened) == before
    assert folded(opened) == 40, "runs that rest, and those of whom nothing was heard for long"
    assert shown(opened) == before
    unfold(opened)
    assert shown(opened) == before


def test_some_at_a_time(opened: database.Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database is never busy with it for long."""
    monkeypatch.setattr(tables, "_FOLDABLE", tables._FOLDABLE.replace(str(tables.FOLD_EVENTS), "500"))
    monkeypatch.setattr(tables, "FOLD_EVENTS", 500)
    before = shown(opened)
    rounds = 1
    while opened.tables.fold_resting():
        rounds += 1
        assert shown(opened) == before
    assert 5 < rounds < 15
    assert folded(opened) == 40


def test_a_run_that_goes_on_is_folded_anew(opened: database.Opened) -> None:
    """What is kept of it does not count any more from its next event on."""
    opened.tables.fold_resting()
    run = run_id(13)  # it failed
    [last] = opened.tables.heads([run])
    node = "step:store:0123456789abcdef#1"
    again = [
        ev.RunStarted(worker="w" * 12, resumed=True),
        ev.NodeStarted(name="store", kind="step"),
        ev.NodeCompleted(duration_s=1.0),
        ev.RunEnded(status="completed"),
    ]
    for i, event in enumerate(again, start=1):
        node_id = node if event.type.startswith("node") else None
        payload = ev.encode(event)
        at = opened.tables.position + 1
        entry = JournalEntry(at, run, last.last_seq + i, None, event.type, node_id, payload, last.updated_at + i)
        opened.tables.apply([entry])
        kept = shown(opened)
        rows = opened.tables._rows(
            "select status, from_journal from nodes where run_id = ? and node_id = ?", [run, node]
        )
        assert rows == [[], [("running", False)], [("completed", False)], [("completed", False)]][i - 1]
        journalled = "select count(*) from nodes where run_id = ? and from_journal"
        assert opened.tables._column(journalled, [run])[0] > 10
        opened.tables.fold_resting()
        assert shown(opened) == kept
    assert folded(opened) == 40
    unfold(opened)
    assert shown(opened) == kept


def test_a_deleted_run_is_gone_there_too(opened: database.Opened) -> None:
    """From the views and from what is kept."""
    opened.tables.fold_resting()
    run = run_id(7)
    position = opened.tables.position
    opened.tables.apply([JournalEntry(position + 1, run, 0, None, DELETED, None, b"1", 0)])
    for view in VIEWS:
        assert opened.tables._column(f"select count(*) from {view} where run_id = ?", [run]) == [0]
    for table in ("store.folded_runs", *FOLD, *sql_times.FOLD):
        assert opened.tables._column(f"select count(*) from {table} where run_id = ?", [run]) == [0]


@pytest.mark.parametrize("view", sorted(sql_times.COLUMNS))
def test_where_the_time_went_is_kept_of_runs_that_have_ended(opened: database.Opened, view: str) -> None:
    """The same before and after; of a run that rests nothing is kept, since its rest grows; one that goes on is asked anew."""
    ended = f"select * from {view} where run_id in (select run_id from runs where ended_at is not null) order by all"
    before = opened.tables._rows(ended)
    assert len(before) > 30
    opened.tables.fold_resting()
    [(kept,)] = opened.tables._rows(f"select count(distinct run_id) from store.folded_{view}")
    [(over,)] = opened.tables._rows("select count(*) from runs where ended_at is not null and started_at is not null")
    assert kept == over
    assert opened.tables._rows(ended) == before
    run = run_id(13)
    [last] = opened.tables.heads([run])
    event = ev.RunStarted(worker="w" * 12, resumed=True)
    entry = JournalEntry(
        opened.tables.position + 1,
        run,
        last.last_seq + 1,
        None,
        event.type,
        None,
        ev.encode(event),
        last.updated_at + 1,
    )
    opened.tables.apply([entry])
    after = opened.tables._rows(f"select * from {view} where run_id = ? order by all", [run])
    unfold(opened)
    again = opened.tables._rows(f"select * from {view} where run_id = ? order by all", [run])
    if view == "critical_path":  # the other one has an end that is now
        assert after == again
    assert [row[:2] for row in after] == [row[:2] for row in again]
