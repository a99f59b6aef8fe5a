"""What ``runs()`` gives: a list of handles that prints as a table."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import msgspec

from loom_kernel.authoring.schema import short
from loom_kernel.journal.abc import RunSummary
from loom_kernel.runtime.run import Run


class RunList(list[Run[Any]]):
    """Runs, newest first. ``summaries`` holds the row of each as it was when listed."""

    def __init__(self, found: Sequence[tuple[Run[Any], RunSummary]]) -> None:
        super().__init__(run for run, _ in found)
        self.summaries = [summary for _, summary in found]

    def _rows(self) -> list[tuple[str, str, str]]:
        return [(s.workflow, shown_status(s), inputs_words(s)) for s in self.summaries]

    def __repr__(self) -> str:
        if not self:
            return "no runs"
        rows = [("", "workflow", "status", "inputs"), *((str(i), *row) for i, row in enumerate(self._rows()))]
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        return "\n".join(
            "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]).rstrip()
            for row in rows
        )

    def _repr_html_(self) -> str:
        if not self:
            return "<i>no runs</i>"
        head = "".join(f"<th style='text-align:left'>{name}</th>" for name in ("", "workflow", "status", "inputs"))
        body = "".join(
            f"<tr><td>{i}</td>"
            + "".join(f"<td style='text-align:left'>{html.escape(cell)}</td>" for cell in row)
            + "</tr>"
            for i, row in enumerate(self._rows())
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def shown_status(summary: RunSummary) -> str:
    """The status in one word, ``interrupted`` included."""
    return "interrupted" if summary.interrupted else summary.status


def inputs_words(summary: RunSummary, limit: int = 60) -> str:
    """The inputs on one line, cut."""
    try:
        values = msgspec.json.decode(summary.header.inputs)
    except msgspec.DecodeError:
        return ""
    if not isinstance(values, dict):
        return ""
    texts = [f"{name}={_plain(value)}" for name, value in values.items()]
    return short_text(", ".join(texts), limit)


def _plain(value: Any) -> str:
    if isinstance(value, dict) and "$loom" in value:
        return {"secret": "•••"}.get(value["$loom"], f"<{value['$loom']}>")
    return short(value, 40)


def short_text(text: str, limit: int) -> str:
    """The text, at most ``limit`` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
