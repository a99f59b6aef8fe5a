"""What a notebook's cells are called, for people: the notebook knows, tracebacks and calling lines ask."""

from __future__ import annotations

from collections.abc import Callable

_name: Callable[[str], str | None] | None = None


def name_cells(name: Callable[[str], str | None] | None) -> None:
    """Let ``name`` turn a code file's name into the cell's (``"cell 4"``), or None where it is no cell's file."""
    global _name
    _name = name


def cell_name(filename: str) -> str | None:
    """The name of the cell that the code file belongs to; None outside a notebook."""
    return _name(filename) if _name is not None else None
