"""What counts as another code: not comments, formatting or the names of locals, but helpers, constants and closures."""

from __future__ import annotations

import linecache
import weakref
from itertools import count
from typing import Any

import pytest

from loom_kernel.authoring.code import code_version, family_version, uses
from loom_kernel.authoring.step import StepDefinition
from loom_kernel.authoring.workflow import define

_numbers = count()


class Cells:
    """A notebook: cells run one after the other in one namespace."""

    def __init__(self) -> None:
        self.space: dict[str, Any] = {"__name__": "__main__", "step": StepDefinition}

    def run(self, source: str) -> None:
        name = f"<code cell {next(_numbers)}>"
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        exec(compile(source, name, "exec"), self.space)

    def version(self, name: str = "f") -> str:
        return code_version(self.space[name])


def of(source: str, before: str = "") -> str:
    """The version of ``f``."""
    cells = Cells()
    if before:
        cells.run(before)
    cells.run(source)
    return cells.version()


SAME = [
    ("def f(x):\n    y = x + 1\n    return y\n", "def f(x):\n    total = x + 1\n    return total\n"),
    ("def f(x):\n    return [a for a in x]\n", "def f(x):\n    # says why\n    return [item for item in x]\n"),
    ("def f(x):\n    def g(z):\n        w = z\n        return w\n    return g(x)\n",
     'def f(x):\n    "Doc."\n    def inner(z):\n        q = z\n        return (q)\n    return inner(x)\n'),
    ("def f(x):\n    try:\n        pass\n    except ValueError as e:\n        raise e\n",
     "def f(x: int) -> None:\n    try:\n        pass\n    except ValueError as error:\n        raise error\n"),
    ("def f(x):\n    n = 0\n    def g():\n        nonlocal n\n        n += 1\n    g()\n    return n\n",
     "def f(x):\n    m: int = 0\n    def h():\n        nonlocal m\n        m += 1\n    h()\n    return m\n"),
    ("def f(x):\n    match x:\n        case [a, *b]:\n            return a, b\n",
     "def f(x):\n    match x:\n        case [head, *rest]:\n            return head, rest\n"),
]  # fmt: skip

OTHER = [
    ("def f(x):\n    y = x + 1\n    return y\n", "def f(x):\n    y = x + 2\n    return y\n"),
    ("def f(x):\n    a, b = x\n    return a\n", "def f(x):\n    a, b = x\n    return b\n"),
    ("def f(x):\n    y = x\n    return y\n", "def f(x):\n    y = x\n    return x\n"),
    ("def f(x, y=1):\n    return x\n", "def f(x, y=2):\n    return x\n"),
    ("def f(x):\n    y = 1\n    return locals()\n", "def f(x):\n    z = 1\n    return locals()\n"),
    ("def f(x):\n    return [x for x in x]\n", "def f(x):\n    return [y for y in y]\n"),
    ("def f(x):\n    v = 1\n    class A:\n        v = 2\n        def g(self):\n            return v\n    return A\n",
     "def f(x):\n    w = 1\n    class A:\n        v = 2\n        def g(self):\n            return v\n    return A\n"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "two"), SAME)
def test_what_does_not_count(one: str, two: str) -> None:
    """Comments, formatting, docstrings, annotations and the names of locals leave the version as it is."""
    assert of(one) == of(two)


@pytest.mark.parametrize(("one", "two"), OTHER)
def test_what_counts(one: str, two: str) -> None:
    """Whatever the function does otherwise makes another version, names that mean something else included."""
    assert of(one) != of(two)


def test_helpers_of_the_notebook_are_followed() -> None:
    """A function in another cell that is edited and run again changes who calls it, without running their cell again."""
    cells = Cells()
    cells.run("def deep(x):\n    return x\n")
    cells.run("def helper(x):\n    return deep(x)\n")
    cells.run("def f(x):\n    return helper(x)\n")
    before = cells.version()
    cells.run("def deep(x):\n    # a comment\n    return x\n")
    assert cells.version() == before
    cells.run("def deep(x):\n    return x + 1\n")
    assert cells.version() != before


def test_constants_and_closures_count() -> None:
    """A constant that is read and a value that is closed over are part of what the function does."""
    cells = Cells()
    cells.run("LIMIT = 3\nOPTIONS = {'a': [1, 2]}\n")
    cells.run("def f(x):\n    return x[:LIMIT], OPTIONS\n")
    versions = {cells.version()}
    cells.run("LIMIT = 4\n")
    versions.add(cells.version())
    cells.run("OPTIONS['a'].append(3)\n")
    versions.add(cells.version())
    cells.run("def make(n):\n    def f(x):\n        return x + n\n    return f\n")
    for n in (1, 2):
        cells.run(f"f = make({n})\n")
        versions.add(cells.version())
    assert len(versions) == 5


def test_a_list_that_is_only_filled_is_no_constant() -> None:
    """What a function appends to does not change it as it grows."""
    cells = Cells()
    cells.run("seen = []\ndef f(x):\n    seen.append(x)\n    return x\n")
    before = cells.version()
    cells.space["f"](1)
    assert cells.version() == before


def test_a_table_that_is_read_is_not_kept_alive() -> None:
    """What counts by its type only may go when its name means another; one of another type is another code."""
    cells = Cells()
    cells.run("class Table:\n    pass\ntable = Table()\ndef f(x):\n    return table\n")
    held = weakref.ref(cells.space["table"])
    before = cells.version()
    cells.run("table = Table()\n")
    assert held() is None and cells.version() == before
    cells.run("table = object()\n")
    assert cells.version() != before


def test_classes_of_the_notebook_are_followed() -> None:
    """An edited method of a class that is used counts."""
    cells = Cells()
    cells.run("class A:\n    size = 1\n    def go(self):\n        return 1\n")
    cells.run("def f(x):\n    return A().go()\n")
    before = cells.version()
    cells.run("class A:\n    size = 1\n    def go(self):\n        return 2\n")
    assert cells.version() != before


def test_a_step_within_a_step_is_part_of_it_and_one_in_a_body_is_not() -> None:
    """An edited step leaves the version of the body that calls it; called within another step, it changes that one."""
    cells = Cells()
    cells.run("@step\ndef inner(x):\n    return x\n")
    cells.run("@step\ndef outer(x):\n    return inner(x)\n")
    cells.run("async def body(ctx):\n    await inner(1)\n    return await outer(1)\n")
    body, outer = define(cells.space["body"]).version, cells.space["outer"].code
    family = family_version(cells.space["body"])
    cells.run("@step\ndef inner(x):\n    return x + 1\n")
    assert define(cells.space["body"]).version == body
    assert cells.space["outer"].code != outer
    assert family_version(cells.space["body"]) != family


def test_what_a_step_uses_counts_in_the_family_that_is_known_already() -> None:
    """The body reaches the helper through the step only; asked again, the answer is the first one."""
    cells = Cells()
    cells.run("def helper(x):\n    return x\n@step\ndef inner(x):\n    return helper(x)\n")
    cells.run("async def body(ctx):\n    return await inner(1)\n")
    family = family_version(cells.space["body"])
    assert family_version(cells.space["body"]) == family
    cells.run("def helper(x):\n    return x + 1\n")
    changed = family_version(cells.space["body"])
    assert changed != family
    cells.run("def helper(x):\n    return x\n")
    assert family_version(cells.space["body"]) == family


def test_what_a_body_can_call() -> None:
    """Steps through helpers and containers, literal names of ctx.tool; where it cannot be told, everything."""
    cells = Cells()
    cells.run("@step\ndef a(x):\n    return x\n@step\ndef b(x):\n    return x\n@step\ndef c(x):\n    return x\n")
    cells.run("TABLE = {'b': b}\nasync def helper(ctx):\n    return await a(1)\n")
    cells.run(
        "async def f(ctx):\n    await ctx.tool('mail', {}, print)\n    return await helper(ctx), await TABLE['b'](1)\n"
    )
    found = uses(cells.space["f"])
    assert [found.can_call("step", name) for name in "abc"] == [True, True, False]
    assert found.can_call("tool", "mail") and not found.can_call("tool", "post")
    cells.run("async def f(ctx, name='x'):\n    await ctx.tool(name, {}, print)\n    return await globals()['c'](1)\n")
    found = uses(cells.space["f"])
    assert found.can_call("tool", "post") and found.can_call("step", "c")
