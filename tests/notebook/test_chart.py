"""Results as pictures: chosen from the rows, the same bytes for the same rows, and nothing of a value is markup."""

from __future__ import annotations

import datetime as dt
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from loom_kernel.notebook.chart import MOST_BARS, chart

DAYS = [dt.date(2026, 1, n) for n in range(1, 5)]


@pytest.mark.parametrize(
    ("columns", "rows", "kind", "names"),
    [
        (["workflow", "runs"], [("a", 1), ("b", 2)], "bar", ["runs"]),
        (["workflow", "status", "n"], [("a", "failed", 1), ("b", None, 2)], "bar", ["n"]),
        (["n"], [(3,), (1,)], "bar", ["n"]),
        (["day", "seconds"], [(day, n) for n, day in enumerate(DAYS)], "line", ["seconds"]),
        (["size", "seconds"], [(2, 1.0), (1, 2.0)], "line", ["seconds"]),
        (["day", "a", "b"], [(DAYS[0], 1, None), (DAYS[1], None, 2)], "line", ["a", "b"]),
        (["day", "seconds"], [(DAYS[0], 1)], "bar", ["seconds"]),
    ],
)
def test_the_result_chooses_its_picture(columns: list[str], rows: list[Any], kind: str, names: list[str]) -> None:
    """A time or a second number in the first column makes a line, everything else bars."""
    drawn = chart(columns, rows)
    assert drawn is not None and drawn.kind == kind and [name for name, _ in drawn.series] == names
    ET.fromstring(drawn.svg())
    assert drawn.svg() == chart(columns, rows).svg()  # type: ignore[union-attr]


def test_without_numbers_there_is_nothing_to_draw() -> None:
    """Texts, truths and empty results are none."""
    assert chart(["a"], []) is None
    assert chart(["a", "b"], [("x", True), ("y", None)]) is None


def test_lines_go_in_the_order_of_their_scale() -> None:
    """Rows come in any order; a missing number leaves a gap."""
    drawn = chart(["day", "n"], [(DAYS[2], 3), (DAYS[0], 1), (DAYS[1], None), (None, 9), (DAYS[3], float("nan"))])
    assert drawn is not None
    assert drawn.labels == DAYS and drawn.series == [("n", [1.0, None, 3.0, None])]
    assert drawn.svg().count("<polyline") == 2


def test_bars_are_bounded_and_may_go_left() -> None:
    """More rows than fit are counted; numbers below zero go to the left of it."""
    drawn = chart(["name", "n"], [(f"row {n}", n - 5) for n in range(60)])
    assert drawn is not None and len(drawn.labels) == MOST_BARS and drawn.left_out == 20
    assert "and 20 more rows" in drawn.html()
    ET.fromstring(drawn.svg())


def test_nothing_of_a_value_is_markup() -> None:
    """Names and values are text, whatever they hold; the picture stands in an image."""
    drawn = chart(["<b>", 'n"><script>'], [("</text><script>alert(1)</script>\x00", 1)])
    assert drawn is not None and "<script" not in drawn.svg() and "<script" not in drawn.html()
    assert drawn.html().startswith("<img ")
