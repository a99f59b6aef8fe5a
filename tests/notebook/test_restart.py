"""A kernel is killed in the middle of a run; the same cells in a new kernel finish it without repeating steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.notebook.kernel import Kernel

pytestmark = pytest.mark.timeout(120)

CELLS = [
    ("a", "%load_ext loom_kernel\nimport pathlib, time\nfrom loom_kernel import step"),
    (
        "b",
        """@step
def effect(n: int) -> int:
    with open("effects.txt", "a") as f:
        f.write(f"{n}\\n")
    return n * n""",
    ),
    (
        "c",
        """%%workflow squares --input n:int
found = [await effect(i) for i in range(n)]
await ctx.ui.confirm("Sum them?", name="go")
found += [await effect(i) for i in range(n, n + 2)]
return sum(found)""",
    ),
    ("d", "r = squares.start(n=5)"),
]


def test_run_all_is_resume(project: Path) -> None:
    """Finished steps do not run again, the cell says that it continues, and the graph is the same."""
    effects = project / "effects.txt"
    with Kernel(project) as kernel:
        for cell_id, code in CELLS:
            kernel.ok(code, cell_id=cell_id)
        kernel.question()
        kernel.kill()
    assert effects.read_text().split() == list("01234")
    with Kernel(project) as kernel:
        loaded, *_, started = [kernel.ok(code, cell_id=cell_id) for cell_id, code in CELLS]
        assert "1 run was interrupted (squares)" in loaded.text
        assert "resumed the run of" in started.text and "5 of " in started.text
        kernel.question()
        kernel.answer("yes")
        assert kernel.ok("(await r).result").text.splitlines()[-1] == str(sum(i * i for i in range(7)))
        picture = kernel.ok("r").text
    assert effects.read_text().split() == list("0123456")
    assert "from journal" not in picture and picture.startswith("squares: completed, 7 of 7 steps")


def test_a_changed_cell_starts_anew(project: Path) -> None:
    """Another cell is another identity: what was started there before is not continued here."""
    with Kernel(project) as kernel:
        for cell_id, code in CELLS:
            kernel.ok(code, cell_id=cell_id)
        kernel.question()
        first = kernel.ok("print(r.id)").text
        again = kernel.ok("r2 = squares.start(n=5)\nprint(r2.id)", cell_id="other").text.splitlines()[-1]
        assert again != first
        attached = kernel.ok("r = squares.start(n=5)", cell_id="d")
        assert "attached to the run of" in attached.text
        assert kernel.ok("print(r.id)").text == first


PAIR = [
    *CELLS[:2],
    ("w", "%%workflow one --input n:int\nreturn await effect(n)"),
    *CELLS[2:3],
    ("x", "first = one.start(n=90)\n(await first).result"),
    ("y", "second = [one.start(n=n) for n in (91, 92)]\n[(await run).result for run in second]"),
    ("d", "r = squares.start(n=2)"),
]


def test_run_all_gives_back_what_the_broken_session_had_finished(project: Path) -> None:
    """Restart and Run All: finished runs are there at once, each once, the unfinished one goes on; nothing runs twice.

    After that the session is an ordinary one: a cell that is run again makes a new run.
    """
    effects = project / "effects.txt"
    with Kernel(project) as kernel:
        for cell_id, code in PAIR:
            kernel.ok(code, cell_id=cell_id)
        ids = kernel.ok("print(first.id, *[run.id for run in second], r.id)").text
        kernel.question()
        kernel.kill()
    assert effects.read_text().split() == ["90", "91", "92", "0", "1"]
    with Kernel(project) as kernel:
        cells = {cell_id: kernel.ok(code, cell_id=cell_id) for cell_id, code in PAIR}
        assert kernel.ok("print(first.id, *[run.id for run in second], r.id)").text == ids
        assert "finished by the session that this one continues" in cells["x"].text
        assert cells["x"].text.splitlines()[-1] == str(90 * 90)
        kernel.question()
        kernel.answer("yes")
        kernel.ok("await r")
        assert effects.read_text().split() == ["90", "91", "92", "0", "1", "2", "3"]
        kernel.ok(dict(PAIR)["x"], cell_id="x")
        assert effects.read_text().split()[-1] == "90"
    with Kernel(project) as kernel:
        for cell_id, code in PAIR[:-1]:
            kernel.ok(code, cell_id=cell_id)
        assert effects.read_text().split()[-3:] == ["90", "91", "92"], "that session ended well: this one is anew"
