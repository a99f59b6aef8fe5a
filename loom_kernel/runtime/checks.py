"""Is the journal whole, and does anything in it wait for somebody? For ``loom doctor`` and ``%loom doctor``."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loom_kernel.errors import LoomError
from loom_kernel.views.words import duration, plural

if TYPE_CHECKING:
    from loom_kernel.runtime.core import Runtime

LATE_S = 10.0
"""A timer that is later than this is overdue."""

CHECK_S = 120.0
"""Seconds that one check may take."""

NAMED = 5
"""Culprits that are named."""

_GAPS = """
select run_id, count(*) as n, max(seq) as last from events group by run_id having count(*) <> max(seq) or min(seq) <> 1
order by run_id
"""

_TWICE = "select run_id, key, count(*) as n from events where key is not null group by run_id, key having count(*) > 1"

_OVERDUE = f"""
select n.run_id, n.name, max((e.payload->>'wake_at')::double) as wake_at
from nodes n join runs r using (run_id) join events e on e.run_id = n.run_id and e.node_id = n.node_id
where n.kind = 'sleep' and n.status = 'waiting' and e.type = 'node.started'
    and r.status in ('pending', 'running', 'awaiting_input')
group by n.run_id, n.node_id, n.name having wake_at < epoch(now()) - {LATE_S} order by wake_at
"""

_UNANSWERED = """
select p.run_id, p.prompt, epoch(p.opened_at) as opened_at from prompts p join runs r using (run_id)
where p.answered_at is null and r.status in ('pending', 'running', 'awaiting_input') order by p.opened_at
"""


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Args:
        name: what was looked at.
        text: what was found, in words.
        ok: nothing was found.
        broken: the journal is not as it must be; otherwise somebody has something to do.
        culprits: the first of them.
    """

    name: str
    text: str
    ok: bool
    broken: bool = False
    culprits: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The text with the culprits."""
        return f"{self.text}: {', '.join(self.culprits)}" if self.culprits else self.text


async def check(runtime: Runtime) -> list[Finding]:
    """Look at everything. On the loop thread, with the journal open."""
    found = []
    for name, look in _CHECKS.items():
        try:
            found.append(await look(runtime))
        except LoomError as error:
            found.append(Finding(name, f"could not be looked at: {error}", ok=False, broken=True))
    return found


async def _rows(runtime: Runtime, query: str) -> list[Any]:
    relation = await runtime.sql_async(query, timeout_s=CHECK_S)
    rows: list[Any] = relation.fetchall()
    return rows


async def _store(runtime: Runtime) -> Finding:
    ask = getattr(runtime.journal, "hub", None)
    status = await ask() if ask is not None else {}
    if status.get("trouble"):
        return Finding("storage", str(status["trouble"]), ok=False, broken=True)
    if status.get("full"):
        return Finding("storage", "the disk is full: nothing can be written; free some space", ok=False, broken=True)
    return Finding("storage", "answers", ok=True)


async def _gaps(runtime: Runtime) -> Finding:
    rows = await _rows(runtime, _GAPS)
    twice = await _rows(runtime, _TWICE)
    if not rows and not twice:
        return Finding("events", "numbered without a gap, every key once", ok=True)
    runs = [row[0] for row in (*rows, *twice)]
    text = f"{plural(len(set(runs)), 'run')} with gaps or repeated keys; restore the journal from a copy"
    return Finding("events", text, ok=False, broken=True, culprits=_some(runs))


async def _values(runtime: Runtime) -> Finding:
    gc = getattr(runtime.journal, "gc", None)
    report = await gc(float("inf"), dry_run=True) if gc is not None else None
    if report is None or not report.blobs:
        return Finding("values", "none that nothing refers to", ok=True)
    text = f"{plural(report.blobs, 'value')} of {report.bytes / (1 << 20):.1f} MiB that nothing refers to; `loom gc` removes them"
    return Finding("values", text, ok=False)


async def _leases(runtime: Runtime) -> Finding:
    found = await runtime.journal.list_runs(status=("interrupted",), roots_only=False)
    roots = [run for run in found if run.header.parent_run_id is None]
    if not roots:
        return Finding("leases", "every unfinished run has a live holder or waits for a worker", ok=True)
    text = f"{plural(len(roots), 'run')} whose holder is gone; `loom resume`, or a worker with the same definition, goes on"
    return Finding("leases", text, ok=False, culprits=_some([f"{run.run_id} ({run.workflow})" for run in roots]))


async def _timers(runtime: Runtime) -> Finding:
    rows = await _rows(runtime, _OVERDUE)
    if not rows:
        return Finding("timers", "none is overdue", ok=True)
    late = [f"{name} of {run_id}, {duration(time.time() - wake_at)} late" for run_id, name, wake_at in rows]
    text = f"{plural(len(rows), 'timer')} overdue: nobody executes the run; it fires once when somebody does"
    return Finding("timers", text, ok=False, culprits=_some(late))


async def _questions(runtime: Runtime) -> Finding:
    rows = await _rows(runtime, _UNANSWERED)
    if not rows:
        return Finding("questions", "none is open", ok=True)
    names = [f"{prompt} of {run_id}, since {duration(time.time() - at)}" for run_id, prompt, at in rows]
    return Finding("questions", f"{plural(len(rows), 'question')} unanswered", ok=False, culprits=_some(names))


def _some(names: list[str]) -> tuple[str, ...]:
    unique = list(dict.fromkeys(names))
    more = len(unique) - NAMED
    return (*unique[:NAMED], *([f"and {more} more"] if more > 0 else []))


_CHECKS = {
    "storage": _store,
    "events": _gaps,
    "values": _values,
    "leases": _leases,
    "timers": _timers,
    "questions": _questions,
}
