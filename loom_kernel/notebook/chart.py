"""A result as a picture: bars for names, lines for what goes on along a scale. The same rows give the same bytes.

A standalone SVG in the colours of the run's picture, shown as an ``<img>``, which every front end keeps.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

from loom_kernel.notebook.tables import Table, show

MOST_BARS = 40
MOST_SERIES = 4
POINTS = 2_000
"""Rows that a line is drawn from, at most."""

_FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif"
_PAPER, _INK, _DIM, _LINE = "#ffffff", "#1c1c1c", "#666666", "#e3e5e8"
_COLOURS = ("#1976d2", "#c2570c", "#2e7d32", "#6a3fb5")
_WIDTH, _LABEL, _VALUE, _BAR, _GAP = 640, 190, 70, 14, 10
_HEIGHT, _LEFT, _BOTTOM, _TOP = 280, 58, 34, 14


@dataclass(frozen=True)
class Chart:
    """What a result looks like. ``labels`` are the bars' names or the line's places; ``series`` its numbers by name."""

    kind: Literal["bar", "line"]
    labels: list[Any]
    series: list[tuple[str, list[float | None]]]
    left_out: int = 0

    def svg(self) -> str:
        """A standalone SVG document."""
        body, height = _bars(self) if self.kind == "bar" else _lines(self)
        names = ", ".join(name for name, _ in self.series)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}" '
            f'role="img" aria-label="{_text(names)}" font-family="{_FONT}" font-size="11">'
            f'<rect width="{_WIDTH}" height="{height}" rx="5" fill="{_PAPER}"/>{body}</svg>'
        )

    def html(self) -> str:
        """The picture for a page."""
        data = base64.b64encode(self.svg().encode()).decode()
        names = escape(", ".join(name for name, _ in self.series), quote=True)
        note = f'<div style="color:#777777">and {self.left_out:,} more rows</div>' if self.left_out else ""
        return f'<img alt="{self.kind} chart of {names}" src="data:image/svg+xml;base64,{data}">{note}'

    def bundle(self, table: Table) -> dict[str, str]:
        """The MIME bundle: the picture, and the table where there are only texts."""
        return {"text/plain": table.text(), "text/html": self.html()}


def chart(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, total: int | None = None) -> Chart | None:
    """The picture of a result, or None where it has no numbers or no rows.

    Numbers are drawn: along a time or another number in the first column as lines, over everything else as bars.

    Args:
        total: rows in all, where that is known.
    """
    if not rows:
        return None
    values = list(zip(*rows, strict=True))
    numeric = [n for n, column in enumerate(values) if _all(column, _number)]
    first_is_scale = _all(values[0], _moment) or (0 in numeric and len(numeric) > 1)
    drawn = [n for n in numeric if not (n == 0 and first_is_scale)][:MOST_SERIES]
    if not drawn:
        return None
    if first_is_scale and len(rows) > 1:
        order = sorted((n for n in range(len(rows)) if values[0][n] is not None), key=lambda n: (values[0][n], n))
        series = [(columns[n], [_float(values[n][row]) for row in order]) for n in drawn]
        return Chart("line", [values[0][row] for row in order], series)
    names = [n for n in range(len(columns)) if n not in drawn]
    shown = rows[:MOST_BARS]
    labels = [" · ".join(show(row[n]) or "–" for n in names) or str(i) for i, row in enumerate(shown, 1)]
    series = [(columns[n], [_float(row[n]) for row in shown]) for n in drawn]
    return Chart("bar", labels, series, (len(rows) if total is None else total) - len(shown))


def _all(column: Sequence[Any], test: Any) -> bool:
    return any(v is not None for v in column) and all(v is None or test(v) for v in column)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float, decimal.Decimal)) and not isinstance(value, bool)


def _moment(value: Any) -> bool:
    return isinstance(value, dt.date)


def _float(value: Any) -> float | None:
    if value is None:
        return None
    number = float(value)
    return number if math.isfinite(number) else None


# ---------------------------------------------------------------- bars


def _bars(chart: Chart) -> tuple[str, int]:
    """One bar a row, its name at the left and its number at its end; several numbers stand below each other."""
    numbers = [v for _, values in chart.series for v in values if v is not None]
    low, high = min([0.0, *numbers]), max([0.0, *numbers])
    span = (high - low) or 1.0
    room = _WIDTH - _LABEL - _VALUE - 20
    zero = _LABEL + 10 + room * (0 - low) / span
    many = len(chart.series)
    parts, y = [_legend(chart)] if many > 1 else [], 12 + (18 if many > 1 else 0)
    for row, label in enumerate(chart.labels):
        height = _BAR * many
        parts.append(
            f'<text x="{_LABEL}" y="{_n(y + height / 2 + 4)}" text-anchor="end" fill="{_INK}">{_text(_cut(label, 30))}</text>'
        )
        for n, (_, values) in enumerate(chart.series):
            value = values[row]
            if value is None:
                continue
            width = room * abs(value) / span
            x = zero if value >= 0 else zero - width
            top = y + n * _BAR
            parts.append(
                f'<rect x="{_n(x)}" y="{_n(top + 1)}" width="{_n(max(width, 0.5))}" height="{_BAR - 2}" rx="2" '
                f'fill="{_COLOURS[n]}"/><text x="{_n(max(x + width, zero) + 5)}" y="{_n(top + 11)}" fill="{_DIM}">'
                f"{_text(_short(value))}</text>"
            )
        y += height + _GAP
    return "".join(parts), int(y + 2)


# ---------------------------------------------------------------- lines


def _lines(chart: Chart) -> tuple[str, int]:
    """Numbers along the first column, with a few round marks at both sides."""
    places = [_place(v) for v in chart.labels]
    numbers = [v for _, values in chart.series for v in values if v is not None] or [0.0]
    marks = _marks(min(numbers), max(numbers))
    low, high = marks[0], marks[-1]
    first, last = places[0], places[-1]
    top = _TOP + (18 if len(chart.series) > 1 else 0)

    def x(place: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - 20) * (place - first) / ((last - first) or 1.0)

    def y(value: float) -> float:
        return top + (_HEIGHT - _BOTTOM - top) * (high - value) / ((high - low) or 1.0)

    parts = [_legend(chart)] if len(chart.series) > 1 else []
    parts += [
        f'<path d="M{_LEFT} {_n(y(mark))}H{_WIDTH - 20}" stroke="{_LINE}"/><text x="{_LEFT - 6}" y="{_n(y(mark) + 4)}" '
        f'text-anchor="end" fill="{_DIM}">{_text(_short(mark))}</text>'
        for mark in marks
    ]
    for n, anchor in ((0, "start"), (len(places) // 2, "middle"), (len(places) - 1, "end")):
        if n in (0, len(places) - 1) or len(places) > 4:
            parts.append(
                f'<text x="{_n(x(places[n]))}" y="{_HEIGHT - 12}" text-anchor="{anchor}" fill="{_DIM}">'
                f"{_text(_cut(show(chart.labels[n]), 24))}</text>"
            )
    for n, (_, values) in enumerate(chart.series):
        for piece in _pieces(places, values):
            points = " ".join(f"{_n(x(place))},{_n(y(value))}" for place, value in piece)
            parts.append(f'<polyline points="{points}" fill="none" stroke="{_COLOURS[n]}" stroke-width="1.6"/>')
            if len(places) <= 60:
                parts += [
                    f'<circle cx="{_n(x(place))}" cy="{_n(y(value))}" r="2.2" fill="{_COLOURS[n]}"/>'
                    for place, value in piece
                ]
    return "".join(parts), _HEIGHT


def _pieces(places: list[float], values: list[float | None]) -> list[list[tuple[float, float]]]:
    """The line without the places where a number is missing."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for place, value in zip(places, values, strict=True):
        if value is None:
            pieces.append([])
        else:
            pieces[-1].append((place, value))
    return [piece for piece in pieces if piece]


def _place(value: Any) -> float:
    if isinstance(value, dt.datetime):
        return (value if value.tzinfo else value.replace(tzinfo=dt.UTC)).timestamp()
    if isinstance(value, dt.date):
        return float(value.toordinal())
    return float(value)


def _marks(low: float, high: float) -> list[float]:
    """Three to six round numbers that hold the range."""
    if low == high:
        low, high = (min(0.0, low), max(0.0, high)) if low else (0.0, 1.0)
    step = 10.0 ** math.floor(math.log10((high - low) / 4))
    for factor in (1, 2, 5, 10):
        if (high - low) / (step * factor) <= 5:
            step *= factor
            break
    start = math.floor(low / step)
    return [n * step for n in range(start, math.ceil(high / step) + 1)]


# ---------------------------------------------------------------- parts


def _legend(chart: Chart) -> str:
    parts, x = [], 12
    for n, (name, _) in enumerate(chart.series):
        label = _cut(name, 24)
        parts.append(
            f'<rect x="{x}" y="8" width="10" height="10" rx="2" fill="{_COLOURS[n]}"/>'
            f'<text x="{x + 15}" y="17" fill="{_INK}">{_text(label)}</text>'
        )
        x += 32 + 7 * len(label)
    return "".join(parts)


def _short(value: float) -> str:
    if value and (abs(value) >= 1e6 or abs(value) < 1e-3):
        return f"{value:.3g}"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"


def _n(value: float) -> str:
    return f"{round(value, 2):g}"


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: characters - 1] + "…"


def _text(text: str) -> str:
    return escape("".join(c for c in text if c >= " " and not 0xD800 <= ord(c) <= 0xDFFF), quote=True)
