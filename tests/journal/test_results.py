"""SQL on the person's side: relations that join, local names, and who answers what."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import duckdb
import pytest

from loom_kernel.errors import SqlError
from loom_kernel.events import RunCreated
from loom_kernel.ids import HolderId, RunId
from loom_kernel.journal import results
from loom_kernel.journal.liveness import this_process
from loom_kernel.journal.memory_store import MemoryRunJournal
from loom_kernel.journal.results import answer, table_names

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("from runs", {"runs"}),
        ("select * from main.runs join df using (run_id)", {"runs", "df"}),
        ("with a as (from nodes) from a", {"nodes"}),
        ("with runs as (from runs) from runs", {"runs"}),
        ("from 'x.csv'", {"x.csv"}),
        ("from read_csv('x.csv'), range(3)", {"read_csv()"}),
        ("select * from events where run_id in (select run_id from mine)", {"events", "mine"}),
        ("describe prompts", {"prompts"}),
        ("select 1", set()),
        ("from other.runs", {"other.runs"}),
    ],
)
def test_the_names_in_a_query(sql: str, names: set[str]) -> None:
    """Tables and files, but not what the query defines itself."""
    assert table_names(sql) == names


def answers(*questions: tuple[str, dict[str, Any]]) -> list[Any]:
    """The relations, asked over a journal of three runs."""

    async def main() -> list[Any]:
        journal = MemoryRunJournal()
        for i in range(3):
            header = RunCreated(workflow=f"w{i % 2}")
            await journal.start_run(RunId(f"run{i}"), header, this_process(HolderId("h")))
        return [await answer(sql, frames, journal.query) for sql, frames in questions]

    return asyncio.run(main())


def test_relations_join_each_other_and_local_frames() -> None:
    """All live on DuckDB's default connection, whoever answered."""
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    owners = pandas.DataFrame({"workflow": ["w0", "w1"], "owner": ["ann", "bob"]})
    [counts] = answers(("select workflow, count(*) as n from runs group by 1", {}))
    teams = polars.DataFrame({"owner": ["ann"], "team": ["blue"]})
    sql = "select owner, n, team from counts join owners using (workflow) left join teams using (owner) order by n"
    [joined] = answers((sql, {"counts": counts, "owners": owners, "teams": teams, "unused": object()}))
    assert joined.fetchall() == [("bob", 1, None), ("ann", 2, "blue")]
    assert joined.filter("n > 1").fetchall() == [("ann", 2, "blue")]


def test_views_and_local_names_meet() -> None:
    """The views come over as Parquet; the person's own connection is left as it was."""
    pandas = pytest.importorskip("pandas")
    mine = pandas.DataFrame({"run_id": ["run1", "run2"]})
    before = duckdb.sql("select count(*) from duckdb_views()").fetchall()
    sql = "select run_id, workflow from runs join mine using (run_id) order by run_id desc; -- newest first"
    [found] = answers((sql, {"mine": mine}))
    assert found.fetchall() == [("run2", "w0"), ("run1", "w1")]
    assert duckdb.sql("select count(*) from duckdb_views()").fetchall() == before


def test_tables_of_the_person_are_found() -> None:
    """What they made with ``duckdb.sql`` joins too."""
    duckdb.sql("create or replace temp table mine_t as select 'run0' as run_id")
    try:
        [found] = answers(("select workflow from runs join mine_t using (run_id)", {}))
        assert found.fetchall() == [("w0",)]
    finally:
        duckdb.sql("drop table mine_t")


def test_local_files_are_read_here(tmp_path: Path) -> None:
    """The journal itself reads none."""
    (tmp_path / "x.csv").write_text("run_id,mark\nrun1,good\n")
    [found] = answers((f"select workflow, mark from runs join '{tmp_path / 'x.csv'}' using (run_id)", {}))
    assert found.fetchall() == [("w1", "good")]


def test_an_order_is_kept() -> None:
    """Though the query is wrapped in another one."""
    pandas = pytest.importorskip("pandas")
    many = pandas.DataFrame({"n": range(50_000)})
    [found] = answers(("select n from many, (select count(*) from runs) order by n desc", {"many": many}))
    assert [n for (n,) in found.fetchall()] == list(range(49_999, -1, -1))


@pytest.mark.parametrize(
    ("sql", "sentence"),
    [
        (
            "from nope",
            "messages, times, critical_path; frames here: df",
        ),
        ("from runs, nope", "there is no table 'nope'"),
        ("drop table df", "only SELECT"),
        ("create table t as from df", "only SELECT"),
        ("from df; from df", "one SELECT at a time"),
        ("select zz from df", "zz"),
    ],
)
def test_a_wrong_query_is_answered_with_a_sentence(sql: str, sentence: str) -> None:
    """It names the tables there are, and the frames."""
    pandas = pytest.importorskip("pandas")
    with pytest.raises(SqlError) as caught:
        answers((sql, {"df": pandas.DataFrame({"a": [1]})}))
    assert sentence in str(caught.value)


def test_result_files_end_with_the_process(tmp_path: Path) -> None:
    """A relation is lazy: its file lives as long as somebody may read it, and no longer."""
    program = """
        import sys, duckdb
        from pathlib import Path
        from loom_kernel.journal.results import relation
        path = Path(sys.argv[1]) / "q1.parquet"
        duckdb.sql("select 42 as n").write_parquet(str(path))
        found = relation(path)
        assert not path.exists() and len(list(path.parent.glob("*.parquet"))) == 1
        assert found.fetchall() == [(42,)] and found.fetchall() == [(42,)]
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program), str(tmp_path)], check=True, timeout=30)
    assert list(tmp_path.iterdir()) == []


def test_the_documented_views_are_ours() -> None:
    """The names that mean the journal."""
    assert {"runs", "nodes", "attempts", "events", "prompts"} <= results.VIEWS


@pytest.mark.parametrize(
    "sql",
    [
        "from read_text('{}')",
        "from '{}'",
        "select * from mine, read_csv('{}')",
        "select * from runs, read_csv('{}')",
        "select * from query('from read_csv(''{}'')')",
        "select * from mine where (select count(*) from glob('{}')) > 0",
    ],
)
def test_without_files_none_is_read_whatever_the_text_says(tmp_path: Path, sql: str) -> None:
    """The same text reads it where files are allowed, or is refused there, too."""
    pandas = pytest.importorskip("pandas")
    secret = tmp_path / "secret.csv"
    secret.write_text("word\nhunter2\n")
    with pytest.raises(SqlError, match=r"reads no files|there is no table"):
        closed(sql.format(secret), {"mine": pandas.DataFrame({"a": [1]})})


def closed(sql: str, frames: dict[str, Any]) -> list[Any]:
    """The rows of an answer for which no file may be read, over a journal of one run."""

    async def main() -> list[Any]:
        journal = MemoryRunJournal()
        await journal.start_run(RunId("run0"), RunCreated(workflow="w0"), this_process(HolderId("h")))
        return (await answer(sql, frames, journal.query, files=False)).fetchall()

    return asyncio.run(main())


def test_without_files_views_and_frames_still_meet() -> None:
    """Frames of all kinds; what the query could have set is locked."""
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    frames = {
        "first": pandas.DataFrame({"workflow": ["w0"], "owner": ["ann"]}),
        "second": polars.DataFrame({"owner": ["ann"], "team": ["blue"]}),
        "third": duckdb.sql("select 'blue' as team, 3 as size"),
    }
    sql = "select run_id, owner, size from runs join first using (workflow) join second using (owner) join third using (team)"
    assert closed(sql, frames) == [("run0", "ann", 3)]
    assert closed("select workflow from runs", {}) == [("w0",)]
    with pytest.raises(SqlError, match="only SELECT"):
        closed("set enable_external_access = true", {})
