"""SQL in cells: over the journal, joined with the notebook's frames, refused with a sentence."""

from __future__ import annotations

import pytest

from tests.notebook.kernel import Kernel

pytestmark = pytest.mark.timeout(120)

ONE = "%%workflow one --input n:int\nreturn await ctx.step('count', lambda: n)"


@pytest.fixture
def ran(headless: Kernel) -> Kernel:
    headless.ok(ONE)
    headless.ok("for n in (1, 2, 3):\n    one.options(show=False).start(n=n).wait()")
    return headless


def test_results_are_tables_and_relations(ran: Kernel) -> None:
    """Shown as a bounded table; kept under a name it is a DuckDB relation."""
    cell = ran.ok("%%loomsql\nselect workflow, status, count(*) as n from runs group by all;")
    assert (
        cell.text == "workflow  status     n\n--------  ---------  -\none       completed  3" and "<table>" in cell.html
    )
    assert ran.ok("%%loomsql kept <<\nselect name, status from nodes").outputs == []
    assert ran.ok("kept.aggregate('count(*)').fetchall()").text == "[(3,)]"
    assert ran.ok("%loomsql --limit 2 select name from nodes").text.endswith("and more rows than the 2 shown")
    assert ran.ok("found = %loomsql select 1 << 2 as shifted\nfound.fetchall()").text == "[(4,)]"


def test_local_frames_join_by_their_name(ran: Kernel) -> None:
    """A pandas frame is a table under its variable's name."""
    pytest.importorskip("pandas")
    ran.ok("import pandas as pd\nprices = pd.DataFrame({'workflow': ['one'], 'price': [0.5]})")
    cell = ran.ok("%loomsql select workflow, sum(price) as cost from runs join prices using (workflow) group by all")
    assert cell.text.splitlines()[-1].split() == ["one", "1.5"]
    assert ran.ok("import loom_kernel\nloom_kernel.sql('select price from prices').fetchall()").text == "[(0.5,)]"


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("delete from runs", ["SqlError", "select"]),
        ("select 1; select 2", ["SqlError", "one"]),
        ("select * from rusn", ["SqlError", "rusn", "runs", "nodes", "prompts"]),
        ("select nme from nodes", ["SqlError", "nme", "name"]),
        ("select 1 +", ["SqlError"]),
    ],
)
def test_what_is_refused_is_a_sentence(ran: Kernel, query: str, words: list[str]) -> None:
    """Writes, two statements, unknown names: a real error that says what there is, and the next query works."""
    cell = ran.run(f"%%loomsql\n{query}")
    assert cell.error is not None and all(w.lower() in cell.error.lower() for w in words), cell.error
    assert "loom_kernel/" not in cell.traceback
    assert ran.ok("%loomsql select 1 as one").text.splitlines()[-1] == "1".rjust(3)
