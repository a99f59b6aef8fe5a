"""The text of a function, and where a line of it stands."""

from __future__ import annotations

import inspect
import os
import sys
import textwrap
from collections.abc import Callable
from types import FrameType
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


def where(frame: FrameType | None) -> str:
    """The line that a frame stands at, for people: ``"cell 4, line 12"`` or ``"flows.py, line 12"``."""
    if frame is None:
        return ""
    file = frame.f_code.co_filename
    return f"{cell_name(file) or os.path.basename(file)}, line {frame.f_lineno}"


def caller() -> str:
    """The nearest line that is not this package's own, for people."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith("loom_kernel."):
        frame = frame.f_back
    return where(frame)
