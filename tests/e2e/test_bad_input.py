"""Every wrong input of a person ends in one clear sentence: what was wrong, where, what to do."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.notebook.kernel import Cell, Kernel

pytestmark = pytest.mark.timeout(120)

DEFINE = """
%load_ext loom_kernel
import socket
from loom_kernel import Context, step, workflow

@step
def first(n: int) -> object:
    return {"rows": [1, {"conn": socket.socket()}]}

@step
def take(conn) -> int:
    return 1

@step
def grow(items: list) -> int:
    items.append(1)
    return len(items)

@workflow
async def stores(ctx: Context, n: int = 1, name: str = "x"):
    return await first(n)

@workflow
async def unhashable(ctx: Context):
    return await take(socket.socket())

@workflow
async def mutates(ctx: Context):
    return await grow([1])

@workflow
async def asks(ctx: Context):
    return await ctx.ui.confirm("Really?", name="really")
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """One headless kernel for all sentences."""
    from tests.conftest import stop_hub

    folder = tmp_path_factory.mktemp("bad")
    with Kernel(folder, interactive=False, env={"LOOM_HOME": str(folder / ".loom")}) as made:
        made.ok(DEFINE)
        yield made
    stop_hub(folder / ".loom")


def sentence(cell: Cell) -> str:
    """What the person reads; our own frames are not in it."""
    assert cell.error is not None, f"no error: {cell.text}"
    shown = cell.traceback
    assert "loom_kernel/" not in shown, shown
    return shown


@pytest.mark.parametrize(
    ("code", "parts"),
    [
        pytest.param("%loom run nothing", ["no workflow named 'nothing'", "asks", "stores"], id="unknown-workflow"),
        pytest.param("stores.start(n='3', name=4, more=1)", ["3 problems", "n", "name", "more"], id="all-wrong-inputs"),
        pytest.param("await stores.start(fresh_=1) if False else await stores.start()", ["['rows'][1]['conn']", "socket"], id="value-not-storable"),
        pytest.param("await unhashable.start()", ["'take'", "'conn'", "ignore=", "key="], id="unhashable-argument"),
        pytest.param("await mutates.start()", ["'grow'", "'items'", "Return the changed value", "mutates=True"], id="mutated-argument"),
        pytest.param("%%workflow broken\nx = 1\nif x\n    return 2", ["line 3", "if x"], id="syntax-error-in-a-cell"),
        pytest.param("%%loomsql\ndelete from runs", ["only", "SELECT"], id="sql-with-a-write"),
        pytest.param("%%loomsql\nselect * from run", ["runs", "nodes", "prompts"], id="sql-with-a-wrong-name"),
        pytest.param("%%loomsql\nselect 1; select 2", ["one"], id="two-statements"),
        pytest.param("await asks.start()", ["NeedsAnswer", "Really?", "prompt: really", "answer:"], id="nobody-to-answer"),
        pytest.param("%loom run stores n=3 --wiat", ["--wiat", "--wait"], id="a-misspelled-option"),
        pytest.param("%loom resume zzzz", ["no run 'zzzz'"], id="unknown-run"),
    ],
)  # fmt: skip
def test_a_sentence_for_each_wrong_input(kernel: Kernel, code: str, parts: list[str]) -> None:
    """The sentence names what was wrong and what to do, and no frame of ours stands in the way."""
    shown = sentence(kernel.run(code))

    for part in parts:
        assert part in shown


def loom(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command line on another journal."""
    return subprocess.run(
        [sys.executable, "-c", "import sys; from loom_kernel.cli.main import main; sys.exit(main())", *words],
        env={**os.environ, "LOOM_HOME": str(home)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_a_corrupt_journal_file(project: Path) -> None:
    """The file is named, and nothing of it is touched."""
    home = project / ".loom"
    home.mkdir(mode=0o700)
    (home / "loom.duckdb").write_bytes(b"this is no database" * 1000)
    said = loom(home, "runs")

    assert said.returncode != 0
    assert "loom.duckdb" in said.stderr and "Traceback" not in said.stderr
    assert (home / "loom.duckdb").read_bytes().startswith(b"this is no database")


def test_a_journal_of_a_newer_version(project: Path) -> None:
    """A file that a newer version wrote is refused with what to do."""
    import duckdb

    home = project / ".loom"
    assert loom(home, "runs").returncode == 0
    assert loom(home, "hub", "stop").returncode == 0
    with contextlib.closing(duckdb.connect(str(home / "loom.duckdb"))) as file:
        file.execute("insert into store.meta values (999, '')")
    said = loom(home, "runs")

    assert said.returncode != 0
    assert "newer" in said.stderr and "Traceback" not in said.stderr


def test_an_unwritable_folder(project: Path) -> None:
    """A folder that cannot be made is named, without a traceback."""
    (project / "file").write_text("in the way")
    said = loom(project / "file" / ".loom", "runs")

    assert said.returncode != 0
    assert "file" in said.stderr and "Traceback" not in said.stderr
