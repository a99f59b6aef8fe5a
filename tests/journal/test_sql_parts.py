"""SQL on the person's side, in its parts: kept tables by name, parameters, and where an error is."""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import uuid
from typing import Any

import pytest
from msgspec import Raw

from loom_kernel import codec, events
from loom_kernel.errors import SqlError
from loom_kernel.events import RunCreated
from loom_kernel.ids import HolderId, RunId
from loom_kernel.journal.abc import Append, LeaseAcquired
from loom_kernel.journal.artifact_tables import rewritten
from loom_kernel.journal.liveness import this_process
from loom_kernel.journal.memory_store import MemoryRunJournal
from loom_kernel.journal.parameters import pack, plain, unpack
from loom_kernel.journal.places import pointed
from loom_kernel.journal.results import answer, parse

pytestmark = pytest.mark.timeout(60)
pd = pytest.importorskip("pandas")


async def keep(journal: MemoryRunJournal, run_id: str, *kept: tuple[str, int, str, str, Any, list[Any]]) -> None:
    """A run with artifacts: name, revision, kind, source, the value they are in, and where in it."""
    lease = await journal.start_run(RunId(run_id), RunCreated(workflow="w"), this_process(HolderId("h")))
    assert isinstance(lease, LeaseAcquired)
    for n, (name, revision, kind, source, value, path) in enumerate(kept):
        encoded = codec.encode(value)
        await journal.put_blobs(encoded.blobs)
        node = f"put:{name}:#{n}" if source == "put" else f"step:{name}:#{n}"
        holds: events.Event = (
            events.ValueRecorded(kind="put", name=name, value=Raw(encoded.json))
            if source == "put"
            else events.NodeCompleted(result=Raw(encoded.json))
        )
        event = events.ArtifactKept(name=name, revision=revision, kind=kind, source=source, path=path)
        await journal.append(lease.lease, [Append(holds, node, f"v{n}"), Append(event, node, f"a{n}")])


def asked(sql: str, frames: dict[str, Any] | None = None, **parameters: Any) -> list[tuple[Any, ...]]:
    """The answer over a journal in which two runs kept tables."""

    async def main() -> Any:
        journal = MemoryRunJournal()
        big = pd.DataFrame({"n": range(50_000)}, index=pd.Index(range(50_000), name="key"))
        await keep(
            journal,
            "first",
            ("cleaned", 1, "table", "put", pd.DataFrame({"a": [1]}), []),
            ("cleaned", 2, "table", "put", pd.DataFrame({"a": [1, 2]}), []),
            ("only here", 1, "table", "put", pd.DataFrame({"é": ["x'y"]}), []),
        )
        await keep(
            journal,
            "second",
            ("cleaned", 1, "table", "put", pd.DataFrame({"a": [7]}), []),
            ("big", 1, "table", "result", {"deep": [big]}, ["deep", 0]),
            ("note", 1, "text", "put", "hello", []),
        )
        found = await answer(sql, frames or {}, journal.query, parameters=parameters, get_blob=journal.get_blob)
        return found.fetchall()

    rows: list[tuple[Any, ...]] = asyncio.run(main())
    return rows


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("from artifact('cleaned')", [(7,)]),
        ("select a.a from Artifact ( 'cleaned', run => 'first' ) a order by 1", [(1,), (2,)]),
        ("select artifact.a from artifact('cleaned', run => 'first', revision => 1)", [(1,)]),
        ("select \"é\" from /* é artifact('x') */ artifact('only here') -- artifact('y')", [("x'y",)]),
        ("select count(*), max(key), max(n) from artifact('big')", [(50_000, 49_999, 49_999)]),
        (
            "with c as (from artifact('cleaned')) select c.a, d.b, (select count(*) from runs) "
            "from c join df d on true, artifact('cleaned', run => 'first', revision => 1) e where e.a = 1",
            [(7, 5, 2)],
        ),
    ],
)
def test_a_kept_table_is_read_by_its_name(sql: str, rows: list[Any]) -> None:
    """Its newest revision in the newest run that has one, or the one that is asked for, wherever a table can stand."""
    assert asked(sql, {"df": pd.DataFrame({"b": [5]})}) == rows


@pytest.mark.parametrize(
    ("sql", "sentence"),
    [
        ("from artifact('clened')", "there is no artifact 'clened'. Did you mean 'cleaned'? Tables kept: big, cleaned"),
        ("from artifact('note')", "the artifact 'note' is a text, not a table"),
        ("from artifact('cleaned', run => 'third')", "there is no artifact 'cleaned' in run third"),
        ("from artifact('cleaned', revision => 9)", "of revision 9"),
        ("from artifact('x'' or 1=1 --')", 'there is no artifact "x\' or 1=1 --"'),
        ("from artifact(cleaned)", "a name in quotes"),
        ("from artifact()", "needs the name"),
        ("from artifact('a', path => '/etc/passwd')", "takes a name in quotes, and run => 'id'"),
        ("from artifact('a', 'b')", "takes a name in quotes"),
    ],
)
def test_a_name_that_leads_nowhere_is_answered_with_a_sentence(sql: str, sentence: str) -> None:
    """It says what there is; nothing of it is taken for a path or for SQL."""
    with pytest.raises(SqlError) as caught:
        asked(sql)
    assert sentence in str(caught.value)


def test_a_call_is_taken_out_of_its_query_alone() -> None:
    """Quotes, comments and parentheses around and in it stay what they are."""
    sql = "select ')' as \"(\" from artifact('it''s (1)') where x = 'artifact(''y'')'"
    calls = parse(sql).artifacts
    assert [call.name for call in calls] == ["it's (1)"]
    assert rewritten(sql, calls)[0] == "select ')' as \"(\" from __artifact_1 as artifact where x = 'artifact(''y'')'"


VALUES: list[Any] = [
    None,
    True,
    3,
    2**70,
    1.5,
    float("inf"),
    "'; drop table runs; --",
    dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC),
    dt.datetime(2026, 1, 2),
    dt.date(2026, 1, 2),
    dt.time(3, 4),
    dt.timedelta(days=1, microseconds=5),
    decimal.Decimal("1.10"),
    uuid.UUID(int=5),
    b"\x00\xff",
    [1, 2, 3],
    ["a'b", "c"],
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_parameter_travels_and_is_bound_as_what_it_is(value: Any) -> None:
    """The value arrives at the hub as it left, and DuckDB compares it as that."""
    assert unpack(pack({"x": value})) == {"x": value}
    [(same,)] = asked("select $x is not distinct from $x", x=value)
    assert same is True


def test_parameters_are_never_sql() -> None:
    """A text stays a text, in the journal's queries and in those that name something local."""
    evil = "w' union select 'broken"
    assert asked("select count(*) from runs where workflow = $x", x=evil) == [(0,)]
    assert asked("select count(*) from df where b = $x", {"df": pd.DataFrame({"b": [evil, "c"]})}, x=evil) == [(1,)]
    assert asked("select run_id from runs where list_contains($x, run_id)", x=["first", "z"]) == [("first",)]


def test_scalars_of_libraries_are_plain_values() -> None:
    """numpy's and pandas' numbers and times; a table as a parameter says how it is meant."""
    np = pytest.importorskip("numpy")
    assert plain("x", np.int64(4)) == 4 and type(plain("x", np.float32(0.5))) is float
    assert plain("x", pd.Timestamp("2026-01-02", tz="UTC")) == dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
    assert plain("x", pd.NaT) is None and plain("x", np.array([1, 2])) == [1, 2]
    with pytest.raises(SqlError, match="without the braces"):
        plain("frame", pd.DataFrame())
    with pytest.raises(SqlError, match="a parameter is a number"):
        plain("thing", object())


@pytest.mark.parametrize(
    ("sql", "under"),
    [
        ("select wrokflow from runs", "wrokflow"),
        ("select run_id\nfrom rusn", "rusn"),
        ("selct 1", "selct"),
        ("select 'nope'\nfrom runs\nwhere staus = 'nope'", "staus"),
        ("select run_id, from_ from (select 1 as run_id)", "from_"),
        ("select nofunction(run_id) from runs", "nofunction"),
        ("select b, nope from df join runs on true", "nope"),
        ("select\n  b + from df", "from"),
        ("from artifact('clened')", "clened"),
    ],
)
def test_a_caret_stands_under_the_place(sql: str, under: str) -> None:
    """In the person's own line, with its number, whoever answered and whatever stood around the query."""
    with pytest.raises(SqlError) as caught:
        asked(sql, {"df": pd.DataFrame({"b": [5]})})
    *_, line, carets = str(caught.value).split("\n")
    number = int(line.split(":")[0].removeprefix("LINE "))
    assert line.partition(": ")[2] == sql.split("\n")[number - 1]
    start = carets.index("^")
    assert line[start : start + carets.count("^")] == under


def test_long_lines_are_shown_around_the_place() -> None:
    """Bounded, with the caret where it belongs."""
    sql = "select " + ", ".join(f"column_{n}" for n in range(60)) + ", here from t"
    shown = pointed('Referenced column "here" not found', sql).split("\n")
    assert len(shown[-2]) < 130 and shown[-2][shown[-1].index("^") :].startswith("here")
    assert pointed("something else is wrong", sql) == "something else is wrong"
