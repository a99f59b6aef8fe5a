"""Rows as aligned text, and values as JSON, for a terminal."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Columns padded to their widest cell; numbers to the right."""
    texts = [[cell_text(cell) for cell in row] for row in rows]
    right = [bool(texts) and all(_is_number(row[i]) for row in texts) for i in range(len(columns))]
    widths = [max([len(name), *(len(row[i]) for row in texts)]) for i, name in enumerate(columns)]
    for row in (list(columns), *texts):
        cells = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True))
        print("  ".join(cells).rstrip())


def print_json(value: Any) -> None:
    """Indented JSON; what JSON does not know becomes text."""
    json.dump(value, sys.stdout, indent=2, default=str, ensure_ascii=False)
    print()


def print_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Comma-separated values with a line of names; null is empty, structures are JSON, times are ISO 8601."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_csv_cell(value) for value in row] for row in rows)


def _csv_cell(value: Any) -> Any:
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, default=str, ensure_ascii=False)
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    return value.isoformat() if hasattr(value, "isoformat") else value


def cell_text(value: Any, limit: int = 60) -> str:
    """A cell on one line."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = " ".join(str(value).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def ago(at: float | None, now: float | None = None) -> str:
    """A moment as the time that has passed: ``3 min ago``."""
    if at is None:
        return ""
    seconds = max(0.0, (time.time() if now is None else now) - at)
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return f"{int(seconds)} s ago"


def _is_number(text: str) -> bool:
    try:
        float(text or "0")
    except ValueError:
        return False
    return True
