"""The promise and the files agree: every public name is there, documented, and lazily loaded."""

from __future__ import annotations

import ast
import inspect
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_origin

import pytest

import loom_kernel
from loom_kernel import journal, testing
from loom_kernel.runtime.run import Run

ROOT = Path(loom_kernel.__file__).parent


@pytest.mark.parametrize("name", loom_kernel.__all__)
def test_every_promised_name_is_there_and_documented(name: str) -> None:
    """``from loom_kernel import NAME`` works, and ``NAME?`` says something."""
    value = getattr(loom_kernel, name)
    if callable(value) and get_origin(value) is not Literal:  # a choice of texts, which can carry none
        assert inspect.getdoc(value), f"{name} has no docstring"


def test_the_promise_is_sorted_and_complete() -> None:
    """``__all__``, what type checkers see, and what is loaded lazily are the same names."""
    tree = ast.parse((ROOT / "__init__.py").read_text())
    block = next(n for n in tree.body if isinstance(n, ast.If))
    for_checkers = {alias.name for n in block.body if isinstance(n, ast.ImportFrom) for alias in n.names}
    lazy = set(loom_kernel._HOME)
    assert for_checkers == lazy
    assert set(loom_kernel.__all__) == lazy | {"__version__", "load_ipython_extension", "unload_ipython_extension"}
    assert loom_kernel.__all__ == sorted(loom_kernel.__all__, key=lambda name: (not name.isupper(), name))
    assert dir(loom_kernel) == sorted(loom_kernel.__all__)


def test_for_checkers_each_name_comes_from_where_it_is_loaded() -> None:
    """A name that moved is corrected in both places."""
    tree = ast.parse((ROOT / "__init__.py").read_text())
    block = next(n for n in tree.body if isinstance(n, ast.If))
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            assert loom_kernel._HOME[alias.name] == node.module


@pytest.mark.parametrize("room", [journal, testing])
def test_rooms_with_public_names_keep_their_promise(room: Any) -> None:
    """``from loom_kernel.journal import ...`` and ``from loom_kernel.testing import ...``."""
    for name in room.__all__:
        assert getattr(room, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    """As of every module."""
    for module in (loom_kernel, journal, testing):
        with pytest.raises(AttributeError, match="nonsense"):
            _ = module.nonsense


def test_public_members_of_a_run_are_documented() -> None:
    """The handle is what people hold: each member says what it does."""
    for name, member in inspect.getmembers(Run):
        if not name.startswith("_") and (callable(member) or isinstance(member, property)):
            assert inspect.getdoc(member), f"Run.{name} has no docstring"


def test_blocking_members_have_awaitable_twins() -> None:
    """What blocks can be awaited where blocking is not allowed."""
    for name in (
        "answer", "cancel", "delete", "events", "inputs", "output", "prompts", "rerun", "resume", "settle", "stop",
        "value", "wait", "wake",
    ):  # fmt: skip
        assert inspect.iscoroutinefunction(getattr(Run, f"{name}_async")), name


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_every_module_says_what_it_is(path: Path) -> None:
    """Each file begins with the one idea it holds."""
    assert ast.get_docstring(ast.parse(path.read_text())), f"{path} has no docstring"


def test_deprecated_spellings_are_not_there() -> None:
    """Names of the references that became others here."""
    for name in ("Loom", "flow", "task"):
        assert not hasattr(loom_kernel, name)
    assert import_module("loom_kernel.authoring.launcher").Options().fresh is False
