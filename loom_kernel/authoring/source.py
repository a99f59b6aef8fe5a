"""The text of a function, and a hash of its code that only changes when the code does."""

from __future__ import annotations

import ast
import hashlib
import inspect
import os
import textwrap
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from loom_kernel.cells import cell_name


def source_of(fn: Callable[..., Any]) -> str:
    """The function's text, dedented; empty where there is none (a REPL, ``exec``).

    A body that is not written as a function (``%%workflow``) brings its text as ``__loom_source__``.
    """
    given = getattr(fn, "__loom_source__", None)
    if isinstance(given, str):
        return given
    try:
        return textwrap.dedent(inspect.getsource(fn))
    except (OSError, TypeError):
        return ""


def code_version(fn: Callable[..., Any]) -> str:
    """16 hex characters that stand for what the function does.

    Comments, formatting, docstrings, decorators and the function's own name do not count; parameters, defaults and
    the body do. What the body calls does not: each step has its own version.
    """
    tree = _function_tree(source_of(fn))
    if tree is not None:
        return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:16]
    code = getattr(fn, "__code__", None)
    text = repr(_code_facts(code)) if code is not None else f"{type(fn).__module__}.{getattr(fn, '__qualname__', fn)}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def where(frame: FrameType | None) -> str:
    """The line that a frame stands at, for people: ``"cell 4, line 12"`` or ``"flows.py, line 12"``."""
    if frame is None:
        return ""
    file = frame.f_code.co_filename
    return f"{cell_name(file) or os.path.basename(file)}, line {frame.f_lineno}"


def _function_tree(source: str) -> ast.AST | None:
    if not source:
        return None
    try:
        module = ast.parse(source)
    except SyntaxError:  # a lambda in the middle of an expression
        return None
    if not module.body or not isinstance(module.body[0], (ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    function = module.body[0]
    function.decorator_list = []
    function.name = "_"
    for node in ast.walk(function):
        if (
            isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            and ast.get_docstring(node, False) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return function


def _code_facts(code: CodeType) -> tuple[Any, ...]:
    constants = tuple(_code_facts(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts)
    return (code.co_code, code.co_names, code.co_varnames, constants)
