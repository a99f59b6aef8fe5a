"""What must not stand in a body is told when it is defined, and nothing else is."""

# ruff: noqa: F401 - the bodies, which are texts, use the imports
from __future__ import annotations

import asyncio
import datetime as dt
import os
import random
import subprocess
import sys
import time
import types
import uuid
import warnings
from datetime import datetime
from pathlib import Path
from time import time as now
from typing import Any

import numpy as np
import pandas as pd
import pytest

from loom_kernel import Context, WorkflowLintWarning, step
from loom_kernel.authoring.registry import registry
from loom_kernel.authoring.workflow import define, workflow
from loom_kernel.notebook.workflow_cell import compile_body, remember

TAGS = {"a", "b"}
DICE = random.Random(1)
FOLDER = Path("data")


@step
async def fetch(url: Any) -> str:
    return f"{url} {time.time()}"


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test defines is forgotten."""
    monkeypatch.setattr(registry, "_definitions", {})


def found_in(body: str, **names: Any) -> list[str]:
    """What is found in a cell with that body, as it is shown after the place."""
    names = {**globals(), **names}
    fn = compile_body("digest", body, [], remember(f"%%workflow digest\n{body}"), names)
    return [str(found).split(": ", 1)[1] for found in define(fn).lint()]


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("time.time()", "use ctx.now()"),
        ("now()", "`now()` gives another time when the run is resumed; use ctx.now()"),
        ("time.perf_counter()", "use ctx.now()"),
        ("datetime.now(dt.timezone.utc)", "use ctx.now()"),
        ("dt.datetime.utcnow()", "use ctx.now()"),
        ("dt.date.today()", "use ctx.now()"),
        ("pd.Timestamp.now()", "use ctx.now()"),
        ("time.strftime('%Y')", "use ctx.now()"),
        ("random.randint(1, 6)", "use ctx.random()"),
        ("DICE.random()", "use ctx.random()"),
        ("random.Random()", "use ctx.random()"),
        ("np.random.rand(3)", "use ctx.random()"),
        ("np.random.default_rng()", "use ctx.random()"),
        ("os.urandom(3)", "use ctx.random()"),
        ("uuid.uuid4()", "use ctx.uuid4()"),
        ("open('x').read()", "put it in a @step"),
        ("Path('x').read_text()", "put it in a @step"),
        ("(FOLDER / 'x').write_text('y')", "put it in a @step"),
        ("(ctx.cwd / 'x').exists()", "put it in a @step"),
        ("FOLDER.parent.read_bytes()", "put it in a @step"),
        ("pd.read_csv('x')", "put it in a @step"),
        ("subprocess.run(['ls'])", "put it in a @step"),
        ("os.remove('x')", "put it in a @step"),
        ("os.path.exists('x')", "put it in a @step"),
        ("sorted(os.listdir())", "in no fixed order"),
        ("list(FOLDER.glob('*'))", "in no fixed order"),
        ("os.environ['HOME']", "make it an input"),
        ("os.environ.get('HOME')", "make it an input"),
        ("os.getenv('HOME')", "make it an input"),
        ("os.getcwd()", "use ctx.cwd"),
        ("input('?')", "use await ctx.ui.input(...)"),
        ("time.sleep(3)", "use await ctx.sleep(label, seconds)"),
        ("await asyncio.sleep(3)", "use await ctx.sleep(label, seconds)"),
        ("[await fetch(t) for t in TAGS]", "go through sorted(...)"),
        ("list(set(rows))", "go through sorted(...)"),
        ("await ctx.map(fetch, {*rows})", "go through sorted(...)"),
        ("','.join(TAGS - {'a'})", "go through sorted(...)"),
        ("fetch('x')", "step `fetch()` is called and never awaited, so it does not run; write await fetch(...)"),
        ("asyncio.create_task(other())", "the run may end before it; await it"),
        ("ctx.sleep('a', 3)", "nothing is done; write await ctx.sleep(...)"),
        ("await fetch(time.time())", "use ctx.now()"),
        ("sorted(rows, key=lambda row: random.random())", "use ctx.random()"),
    ],
)
def test_what_does_not_belong_is_found(code: str, says: str) -> None:
    """Once, under whatever name, as a statement and as a value."""
    found = found_in(code)
    assert len(found) == 1 and says in found[0], found
    if "await it" not in says and "nothing" not in says and "does not run" not in says:
        assert len(found_in(f"value = {code}\nreturn value")) == 1


@pytest.mark.parametrize(
    "body",
    [
        "print(1)\nreturn ctx.now(), ctx.random(), ctx.uuid4()",
        "await ctx.tool('x', {}, lambda args: time.time())",
        "def stamp():\n    return time.time()\nreturn await ctx.step('stamp', stamp)",
        "@step\ndef inner():\n    return open('x').read()\nreturn await inner()",
        "time = rows\nreturn time.time()",
        "for time in rows:\n    time.sleep()",
        "await asyncio.sleep(0)",
        "dice = random.Random(3)\nreturn dice.random()",
        "rng = np.random.default_rng(3)\nreturn rng.random()",
        "return await asyncio.gather(*(fetch(t) for t in sorted(TAGS)))",
        "return len(set(rows)), sorted(t for t in TAGS), sorted(list(set(rows))), {t for t in TAGS}, 'a' in TAGS",
        "calls = [fetch(i) for i in range(3)]\nreturn await asyncio.gather(*calls)",
        "call = fetch(1)\nreturn await call",
        "task = asyncio.create_task(fetch(1))\nreturn await task",
        "return datetime(2024, 1, 1), dt.datetime.fromtimestamp(3), time.strftime('%Y', (0,) * 9)",
        "return Path('a') / 'b', FOLDER.name, FOLDER.with_suffix('.x'), os.path.join('a', 'b'), os.sep",
        "return 'a'.replace('a', 'b'), {'get': 1}.get('get'), pd.DataFrame().sort_values('a')",
        "return await asyncio.to_thread(time.sleep, 1)",
        "for number in {1, 2, 3}:\n    print(number)",
        "return unknown.time(), unknown()",
    ],
)
def test_nothing_else_is(body: str) -> None:
    """Steps, callbacks, names of the body's own and what is the same each time."""
    assert found_in(body) == []


def test_names_of_the_body_count() -> None:
    """Imports and variables within it, and functions that it calls itself."""
    assert len(found_in("import time as t\nfrom datetime import datetime as d\nreturn t.time(), d.now()")) == 2
    assert len(found_in("path = Path('x')\nreturn path.read_text()")) == 1
    assert len(found_in("unique = set(rows)\nunique |= {rows[0]}\nfor row in unique:\n    await fetch(row)")) == 1
    assert len(found_in("def stamp():\n    return time.time()\nreturn stamp(), stamp()")) == 1


def test_places_are_the_files_and_the_cells() -> None:
    """A function's line is that of its file, a cell's that of the cell, strings over several lines or not."""

    async def late(ctx: Context, where: Path, names: set[str]) -> None:
        where.read_text()
        [await fetch(name) for name in names]

    first, second = define(late).lint()
    line = late.__code__.co_firstlineno
    assert (first.line, second.line) == (line + 1, line + 2)
    assert str(first).startswith(f"test_lint.py, line {line + 1}: `where.read_text()`")
    body = 'text = """a\nb"""\n\nreturn time.time()'
    fn = compile_body("digest", body, [], remember(f"# above\n%%workflow digest\n{body}", above=1), globals())
    assert [found.line for found in define(fn).lint()] == [6]


def test_a_line_a_workflow_and_a_class_can_be_silenced() -> None:
    """By a comment on it, by ``lint=False``, by a filter; otherwise each definition warns once."""

    async def late(ctx: Context) -> float:
        fine = time.time()  # loom: ok
        also = max(
            time.time(),
            fine,
        )  # loom: ok
        return time.time() + also

    assert len(define(late).lint()) == 1
    for _ in range(2):
        with pytest.warns(WorkflowLintWarning, match=r"test_lint.py, line \d+: .*use ctx.now") as told:
            definition = workflow(late)
        assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert workflow(lint=False)(late).lint() == definition.lint()
        warnings.simplefilter("ignore", WorkflowLintWarning)
        workflow(late)


def test_nothing_is_called_or_loaded() -> None:
    """A lazy module stays unloaded, an object is not asked; a body without a text is passed over."""

    class Touchy:
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(name)

    class Lazy(types.ModuleType):
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(name)

    assert found_in("lazy.load()\nreturn touchy.time, touchy()", lazy=Lazy("lazy"), touchy=Touchy()) == []
    names: dict[str, Any] = {"time": time}
    exec("async def bare(ctx):\n    return time.time()", names)
    assert define(names["bare"]).lint() == []
    before = set(sys.modules)
    found_in("import this\nthis.that()\nreturn time.time()")
    assert set(sys.modules) == before


def test_defining_stays_fast() -> None:
    """A body of thirty lines costs well under 5 ms of work; what other processes do meanwhile does not count."""
    body = "\n".join(f"v{i} = await fetch({i})\nif v{i}:\n    print(v{i}, len(str(v{i})))" for i in range(10))
    definition = define(compile_body("digest", body, [], remember(f"%%workflow digest\n{body}"), globals()))
    took = []
    for _ in range(20):
        start = time.thread_time()
        assert definition.lint() == []
        took.append(time.thread_time() - start)
    assert min(took) < 0.005, took
