"""Which runs may go: whole families, of which no run can still resume and none was written to lately."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec


class GcReport(msgspec.Struct, frozen=True, kw_only=True):
    """What ``gc`` did. ``kept`` are the runs that were old enough but can still resume, or belong to one that can."""

    runs: int
    blobs: int
    bytes: int
    kept: int


def spent(family: Sequence[tuple[Any, ...]], older_than: float) -> tuple[list[str], int]:
    """Runs that nobody needs any more.

    A run goes with its parents, its children, and the runs it was forked from, or not at all: a child's result is part
    of its parent's story, and a run that resumes reads both.

    Args:
        family: rows of :meth:`~loom_kernel.journal.tables.Tables.family`.
        older_than: seconds since the epoch; runs written to later stay.

    Returns:
        Their ids, and how many as old ones stay.
    """
    above: dict[str, str] = {}

    def top(run_id: str) -> str:
        while (up := above.setdefault(run_id, run_id)) != run_id:
            above[run_id] = run_id = above[up]
        return run_id

    for run_id, parent, root, forked_from, *_ in family:
        for other in (parent, root, forked_from):
            if other:
                above[top(run_id)] = top(other)
    old = [row[0] for row in family if row[4] / 1e6 < older_than]
    needed = {top(row[0]) for row in family if row[4] / 1e6 >= older_than or not row[5]}
    gone = [run_id for run_id in old if top(run_id) not in needed]
    return gone, len(old) - len(gone)


def chunks(run_ids: Sequence[str], size: int) -> Iterable[Sequence[str]]:
    """In pieces of ``size``."""
    return (run_ids[at : at + size] for at in range(0, len(run_ids), size))
