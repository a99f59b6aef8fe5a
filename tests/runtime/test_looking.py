"""Looking at runs: their difference, a moment of them, why they are as they are, and tables of nodes."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from loom_kernel.authoring.context import Context
from loom_kernel.authoring.step import step
from loom_kernel.authoring.workflow import WorkflowDefinition, workflow
from loom_kernel.errors import LoomError, RunError
from loom_kernel.policies import Retry
from loom_kernel.runtime import Run, Runtime
from loom_kernel.runtime.looking import seconds
from tests.runtime.test_run import until


@pytest.fixture
def poem(runtime: Runtime) -> WorkflowDefinition[Any, Any]:
    """fetch → lines (× 3) → write, and one more with ``extra``."""

    @step
    def fetch(url: str) -> str:
        return f"<b>{url}</b>"

    @step
    def line(n: int) -> str:
        return f"line {n}"

    @step
    def write(lines: list[str], ending: str) -> str:
        return "\n".join([*lines, ending])

    @step
    def extra() -> int:
        return 1

    @workflow
    async def poem(ctx: Context, url: str = "a", ending: str = "the end", more: bool = False) -> str:
        await fetch(url)
        lines = await ctx.map(line, range(3))
        if more:
            await extra()
        return await write(lines, ending)

    return poem


def done(run: Run[Any]) -> Run[Any]:
    run.wait(timeout=20)
    return run


# ---------------------------------------------------------------- diff


def test_two_runs_that_are_the_same(poem: WorkflowDefinition[Any, Any]) -> None:
    """Times do not count."""
    found = done(poem.start()).diff(done(poem.options(fresh=True).start()))
    assert found.same
    assert found.counts == {"same": 5, "changed": 0, "only_a": 0, "only_b": 0}
    assert repr(found) == "poem: A and B are the same"


def test_what_differs_is_told_per_call(poem: WorkflowDefinition[Any, Any]) -> None:
    """Inputs, results as lines of text, arguments, calls that only one of them made."""
    a, b = done(poem.start()), done(poem.start(url="c", ending="fin", more=True))
    found = a.diff(b)
    assert found.counts == {"same": 3, "changed": 2, "only_a": 0, "only_b": 1}
    assert found["fetch"].what == ("arguments", "result")
    assert found["extra"].change == "only_b"
    text = found.text(times=False)
    assert text.splitlines()[0] == "poem: A and B differ in 3 calls, the inputs and the result"
    assert "    - the end\n    + fin" in text
    assert "  ≠ write: other arguments and result" in text
    assert "  + extra: only in B" in text
    assert "time" not in text
    html = found._repr_mimebundle_()["text/html"]
    assert "<b>c</b>" not in html and "&lt;b&gt;c&lt;/b&gt;" in html
    assert "data:image/svg+xml;base64," in html
    assert found.to_svg().startswith("<svg") and "only in B" in found.to_svg()
    assert found.to_json()["nodes"][0]["what"] == ["arguments", "result"]


def test_the_same_in_sql(make_runtime: Callable[..., Runtime], tmp_path: Any) -> None:
    """``diff.sql`` gives a row a call, paired as the picture has them."""
    from loom_kernel.journal.duckdb_store import DuckDBRunJournal

    async def open_file() -> Any:
        return await DuckDBRunJournal.open(tmp_path / ".loom")

    make_runtime(journal=open_file)

    @step
    def one(n: int) -> int:
        return n

    @step
    def two(n: int) -> int:
        return n

    @workflow
    async def pair(ctx: Context, n: int = 1, more: bool = False) -> int:
        await one(5)
        await one(n)
        if more:
            await two(1)
        return n

    a, b = done(pair.start()), done(pair.start(n=2, more=True))
    found = a.diff(b)
    rows = [(name, change) for name, _, change, *_ in found.table().fetchall()]
    assert rows == [("one", "same"), ("one", "changed"), ("two", "only_b")]
    assert sorted(change for _, change in rows) == sorted(p.change for p in found.nodes)


def test_a_fork_beside_what_it_was_forked_from(poem: WorkflowDefinition[Any, Any]) -> None:
    """The source is A when nothing else is named."""
    a = done(poem.start())
    b = done(a.fork(inputs={"ending": "fin"}))
    found = b.diff()
    assert (found.a.id, found.b.id) == (a.id, b.id)
    assert [p.node.name for p in found.nodes if p.change != "same"] == ["write"]
    with pytest.raises(RunError, match="is no fork"):
        a.diff()


def test_tables_are_compared_line_by_line(runtime: Runtime) -> None:
    """A frame is kept as bytes; what a person sees of the difference are its rows."""
    pd = pytest.importorskip("pandas")

    @step
    def load(n: int) -> Any:
        return pd.DataFrame({"wind": [1, 2, n]})

    @workflow
    async def tables(ctx: Context, n: int = 3) -> int:
        return len(await load(n))

    found = done(tables.start()).diff(done(tables.start(n=4)))
    assert [f"{line.sign}{line.text}" for line in found["load"].result] == [
        "…2 lines alike",
        " 1",
        " 2",
        "-3",
        "+4",
    ] or [f"{line.sign}{line.text}" for line in found["load"].result][-2:] == ["-3", "+4"]


# ---------------------------------------------------------------- at


def test_a_run_as_it_was(runtime: Runtime) -> None:
    """Folded from what was recorded until then; a moment before it is one sentence."""

    @step
    def first() -> int:
        return 1

    @workflow
    async def asking(ctx: Context) -> bool:
        await first()
        return await ctx.ui.confirm("Go?", name="go")

    run = asking.start()
    until(run.prompts)
    then = time.time()
    time.sleep(0.02)
    run.answer(True)
    done(run)
    was = run.at(then)
    assert (was.status, [p.prompt for p in was.prompts()]) == ("awaiting_input", ["go"])
    assert was["first"].value == 1 and was["go"].status == "waiting"
    assert run.at(datetime.fromtimestamp(then, UTC)).status == "awaiting_input"
    assert run.at(timedelta(hours=1)).status == run.status == "completed"
    assert "waiting for an answer" in was._repr_mimebundle_()["text/plain"]
    assert repr(was) == "<run of asking then: awaiting_input, 1 of 1 steps>"
    with pytest.raises(LoomError, match="did not exist then"):
        run.at(then - 3600)
    with pytest.raises(KeyError, match="there was no node 'x' then"):
        was["x"]


def test_moments_are_read_as_people_write_them() -> None:
    """A time of day is on the day of the run, its whole minute or second included."""
    made = time.mktime((2026, 5, 1, 14, 0, 10, 0, 0, -1))
    assert seconds("14:03", made, made) == pytest.approx(made + 170 - 10 + 60 - 10 + 20, abs=60)
    assert time.localtime(seconds("14:03", made, made))[:5] == (2026, 5, 1, 14, 3)
    assert time.localtime(seconds("14:03:20", made, made))[:6] == (2026, 5, 1, 14, 3, 20)
    assert time.localtime(seconds("00:10", made, made))[:5] == (2026, 5, 2, 0, 10)
    assert seconds(timedelta(seconds=5), made, made + 1) == made + 6
    assert seconds("2026-05-01 14:03:20", made, made) == made + 190
    for wrong in ("noon", "99", True, None):
        with pytest.raises(LoomError, match="moment"):
            seconds(wrong, made, made)  # type: ignore[arg-type]


# ---------------------------------------------------------------- why


def test_why_a_node_failed(runtime: Runtime) -> None:
    """The error with the person's line, the tries before it, what it was called with and after what."""

    @step(retry=Retry(max_attempts=2, interval_s=0.01))
    def burst(n: int) -> int:
        raise ValueError(f"no {n}")

    @step
    def before() -> int:
        return 3

    @workflow
    async def failing(ctx: Context) -> None:
        await burst(await before())

    run = failing.start()
    run.settle(timeout=20)
    text = str(run.why("burst"))
    assert text.splitlines()[0] == "burst"
    for part in (
        "and the run with it",
        "ValueError: no 3",
        "try 1 failed",
        "raise ValueError",
        "with n=3",
        "came after before",
    ):
        assert part in text, part
    assert "it ended with the failure of burst" in str(run.why())
    assert "1 call came after it" in str(run.why("before"))
    assert "<li" in run.why("burst")._repr_mimebundle_()["text/html"]


def test_why_a_node_ran_again_in_a_fork(poem: WorkflowDefinition[Any, Any]) -> None:
    """Since it comes after the point, or since its arguments are others."""
    a = done(poem.start())
    b = done(a.fork(inputs={"ending": "fin"}))
    assert "answered from there" in str(b.why("fetch"))
    why = str(b.why("write"))
    assert "its arguments are others" in why and '+ "ending": "fin"' in why
    c = done(a.fork(from_node="write", fresh=True))
    assert "it ran again, since the fork goes on from write" in str(c.why("write"))
    assert "5 calls answered from there" not in str(c.why()) and "4 calls answered from there" in str(c.why())


def test_why_a_question_is_open(runtime: Runtime) -> None:
    """It says what is asked and how to answer."""

    @workflow
    async def asking(ctx: Context) -> bool:
        return await ctx.ui.confirm("Go?", name="go")

    run = asking.start()
    until(run.prompts)
    assert "it asks: Go? (answer with %loom answer go" in str(run.why())
    assert "waits for an answer" in str(run.why("go"))
    run.cancel()


# ---------------------------------------------------------------- tables


def test_nodes_of_one_name_are_a_table(poem: WorkflowDefinition[Any, Any]) -> None:
    """``r["line"].table`` has a row for each, with its arguments; one of them is asked for by number."""
    run = done(poem.start())
    group = run["line"]
    table = group.table
    assert table.columns == ["node", "n", "status", "tries", "time_s", "result", "error"]
    assert [row[:4] for row in table.rows] == [
        ("line#1", 0, "completed", 1), ("line#2", 1, "completed", 1), ("line#3", 2, "completed", 1),
    ]  # fmt: skip
    assert list(table.df()["result"]) == ["line 0", "line 1", "line 2"]
    assert group.values == ["line 0", "line 1", "line 2"] and group.status == "completed" and len(group) == 3
    assert group[1].value == "line 1" and group[1].path == "line#2"
    assert repr(group) == "<3 nodes named line: 3 completed>"
    assert "<table>" in group._repr_mimebundle_()["text/html"]
    assert run["fetch"].table.rows[0][:3] == ("fetch", "a", "completed")
    with pytest.raises(LoomError, match=r"line#1 \.\.\. line#3"):
        run.fork(from_node=group)  # type: ignore[arg-type]
    with pytest.raises(LoomError, match=r"ask about one of line#1"):
        run.why("line")
