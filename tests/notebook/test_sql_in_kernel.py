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


def test_variables_in_braces_are_bound(ran: Kernel) -> None:
    """In lines and cells, for the journal and for frames; a text that looks like SQL is a text."""
    pytest.importorskip("pandas")
    ran.ok("name, least, evil = 'one', 2, \"x' or 1=1 --\"\nnames = ['one', 'two']")
    assert ran.ok("%loomsql select count(*) as n from runs where workflow = {name}").text.split()[-1] == "3"
    assert ran.ok("%%loomsql\nselect count(*) as n from runs where workflow = {evil}").text.split()[-1] == "0"
    assert ran.ok("%%loomsql\nselect '{name}' as a, list_contains({names}, 'two') as b").text.split()[-2:] == [
        "{name}",
        "true",
    ]
    cell = ran.run("%%loomsql\nselect workflow\nfrom runs where nofield = {name}")
    assert cell.error is not None and cell.error.rstrip().endswith("^^^^^^^") and "nofield = {name}" in cell.error
    cell = ran.run("%loomsql select {nmae}")
    assert cell.error is not None and "Did you mean name" in cell.error
    ran.ok("import pandas as pd\nframe = pd.DataFrame({'n': [1, 2, 3]})")
    assert ran.ok("%loomsql select sum(n) as s from frame where n >= {least}").text.split()[-1].startswith("5")
    cell = ran.run("%loomsql select {frame}")
    assert cell.error is not None and "without the braces" in cell.error


def test_a_result_is_drawn(ran: Kernel) -> None:
    """``--plot`` shows an image and keeps the table as text; without numbers it says so."""
    cell = ran.ok("%%loomsql --plot\nselect workflow, count(*) as n from runs group by 1")
    assert cell.text.split()[-1] == "3" and '<img alt="bar chart of n"' in cell.html
    cell = ran.run("%loomsql --plot select workflow from runs")
    assert cell.error is not None and "no column holds numbers" in cell.error


def test_kept_tables_and_figures(ran: Kernel) -> None:
    """A table that was put is read by its name; a figure comes back as a picture that shows itself."""
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib")
    ran.ok(
        "import pandas as pd\nfrom loom_kernel import workflow, step\n"
        "@step\ndef plot(n: int):\n    import matplotlib.pyplot as plt\n    plt.plot(range(n))\n    plt.show()\n"
        "    plt.plot(range(n))\n    return plt.gcf()\n"
        "@workflow\nasync def keeper(ctx, n: int):\n    await ctx.put('cleaned', pd.DataFrame({'n': range(n)}))\n"
        "    return await plot(n)\n"
        "k = keeper.options(show=False).start(n=4)\nk.wait()\nNone"
    )
    assert ran.ok("%loomsql select sum(n) as s, count(*) as c from artifact('cleaned')").text.split()[-2:] == ["6", "4"]
    cell = ran.ok("%loomsql select name, revision, kind, source from artifacts order by global_seq")
    assert [line.split() for line in cell.text.splitlines()[2:]] == [
        ["cleaned", "1", "table", "put"],
        ["plot", "1", "figure", "shown"],
        ["plot", "2", "figure", "result"],
    ]
    assert ran.complete("%loomsql from artifact('cl") == ["cleaned"]
    shown = ran.ok("k.value").outputs
    assert [o["type"] for o in shown] == ["execute_result"] and "image/png" in shown[0]["data"]
    assert "text/html" not in shown[0]["data"] and shown[0]["data"]["text/plain"].startswith("Image(matplotlib")
