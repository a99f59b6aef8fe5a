"""Bounded tables as cell output: the same text and HTML for the same values, wherever they are made."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

CELL_CHARS = 60
"""Characters of a cell in plain text; longer ones are cut. HTML keeps ten times as many."""

LINE_CHARS = 200
"""Characters of a line in plain text; columns that do not fit are counted instead of shown."""

_DIM = "color:#777777"


@dataclass(frozen=True)
class Table:
    """Columns, the rows to show, and how many there are in all (None: at least one more than shown).

    Args:
        columns: their names.
        rows: values of any kind; numbers are set flush right.
        total: rows in all.
        empty: what is said in place of a table without rows.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    total: int | None = field(default=0)
    empty: str = ""

    def text(self) -> str:
        """Plain text, columns aligned."""
        if not self.rows and self.empty:
            return self.empty
        cells = [[_short(show(v), CELL_CHARS) for v in row] for row in self.rows]
        right = self._numeric()
        widths = [max(len(name), *(len(row[i]) for row in cells), 0) for i, name in enumerate(self.columns)]
        fitting = _fitting(widths)
        lines = [self._line(self.columns, widths, right, fitting)]
        lines.append("  ".join("-" * w for w in widths[:fitting]))
        lines += [self._line(row, widths, right, fitting) for row in cells]
        notes = [note for note in (self._more(), self._hidden(fitting)) if note]
        return "\n".join([*lines, *notes])

    def html(self) -> str:
        """An HTML table; every text is escaped."""
        if not self.rows and self.empty:
            return f'<div style="{_DIM}">{escape(self.empty)}</div>'
        right = self._numeric()
        align = ["text-align:right" if r else "text-align:left" for r in right]
        head = "".join(f'<th style="{a}">{escape(c)}</th>' for c, a in zip(self.columns, align, strict=True))
        body = "".join(
            "<tr>"
            + "".join(
                f'<td style="{a};font-variant-numeric:tabular-nums">{escape(_short(show(v), CELL_CHARS * 10))}</td>'
                for v, a in zip(row, align, strict=True)
            )
            + "</tr>"
            for row in self.rows
        )
        more = self._more()
        foot = f'<div style="{_DIM}">{escape(more)}</div>' if more else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{foot}"

    def bundle(self) -> dict[str, str]:
        """The MIME bundle."""
        return {"text/plain": self.text(), "text/html": self.html()}

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return self.bundle()

    def __repr__(self) -> str:
        return self.text()

    def _numeric(self) -> list[bool]:
        columns: Iterable[tuple[Any, ...]] = zip(*self.rows, strict=True) if self.rows else [() for _ in self.columns]
        return [
            all(v is None or (isinstance(v, (int, float, decimal.Decimal)) and not isinstance(v, bool)) for v in column)
            and any(v is not None for v in column)
            for column in columns
        ]

    def _line(self, row: Sequence[str], widths: list[int], right: list[bool], fitting: int) -> str:
        cells = [v.rjust(w) if r else v.ljust(w) for v, w, r in zip(row, widths, right, strict=True)]
        return "  ".join(cells[:fitting]).rstrip()

    def _more(self) -> str:
        if self.total is None:
            return f"and more rows than the {len(self.rows):,} shown"
        left = self.total - len(self.rows)
        return f"and {left:,} more row{'s' if left != 1 else ''}" if left > 0 else ""

    def _hidden(self, fitting: int) -> str:
        hidden = self.columns[fitting:]
        return f"and {len(hidden)} more column{'s' if len(hidden) != 1 else ''}: {', '.join(hidden)}" if hidden else ""


def show(value: Any) -> str:
    """A value as one line of text, the same on every machine."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:.1f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.6g}"
        case dt.datetime():
            naive = value.replace(tzinfo=None)  # times come in the reader's zone already
            return naive.isoformat(sep=" ", timespec="milliseconds" if value.microsecond else "seconds")
        case dt.timedelta():
            return f"{value.total_seconds():.6g} s"
        case bytes() | bytearray() | memoryview():
            return f"{len(value):,} bytes"
        case list() | tuple() | dict():
            return _line(json.dumps(value, default=str, ensure_ascii=False))
        case _:
            return _line(str(value))


def _line(text: str) -> str:
    return " ".join(text.split()) if any(c in text for c in "\n\r\t") else text


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _fitting(widths: list[int]) -> int:
    """How many of the columns fit a line; at least one."""
    used = 0
    for n, width in enumerate(widths):
        used += width + (2 if n else 0)
        if used > LINE_CHARS and n:
            return n
    return len(widths)
