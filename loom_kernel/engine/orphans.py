"""Children whose parent ends for good without them: they end first, so that no run waits for ever.

A parent that executes a child ends it itself (``children.py``). These are the others: of a parent that was cancelled while
it rested, or before its body came to them again.
"""

from __future__ import annotations

import contextlib

from loom_kernel import events as ev
from loom_kernel.engine.replay import History
from loom_kernel.errors import StaleLeaseError
from loom_kernel.ids import RunId
from loom_kernel.journal.abc import Append, Holder, LeaseAcquired, LeaseHeld, RunJournal


def waiting(history: History) -> list[str]:
    """Ids of the child runs that had begun and were not done when the history was read."""
    return [
        record.child_run_id
        for record in history.records.values()
        if record.child_run_id is not None and record.status in ("open", "cancelled")
    ]


async def end_children(journal: RunJournal, holder: Holder, history: History, reason: str) -> None:
    """End a run's children that are at rest or interrupted, as cancelled, and theirs before them.

    Raises:
        StorageUnavailableError: the journal cannot be reached.
    """
    for run_id in waiting(history):
        await _end(journal, holder, RunId(run_id), reason)


async def _end(journal: RunJournal, holder: Holder, run_id: RunId, reason: str) -> None:
    summary = await journal.get_run(run_id)
    if summary is None or summary.status in ev.TERMINAL:
        return
    acquired = await journal.acquire(run_id, holder)
    if isinstance(acquired, LeaseHeld):  # whoever has the parent has its children
        acquired = await journal.takeover(run_id, holder, acquired.holder.id)
    if not isinstance(acquired, LeaseAcquired):
        return
    lease = acquired.lease
    history = History.of(acquired.entries)
    with contextlib.suppress(StaleLeaseError):  # of somebody who took the whole family
        if history.over:
            await journal.release(lease)
            return
        await end_children(journal, holder, history, reason)
        ended = ev.RunEnded(status="cancelled", reason=reason)
        await journal.append(lease, [Append(ended, None, f"ended:{lease.epoch}")])
