"""What the notebook's last kernel had begun: a session that broke is continued, so that Restart and Run All is a resume.

A session is one kernel's life with one notebook. It broke when it left a run unfinished, which nobody executes now. The
kernel that comes next then continues it: a start that the broken session had already finished gives that run, once each,
as long as its code is the same. Whether there is something to continue is decided at the notebook's first start.

Only starts that look before they make belong to a session: what a script or a headless execution of the same notebook
started in between is neither given nor taken for the last session.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from loom_kernel.events import RunCreated
from loom_kernel.ids import RunId
from loom_kernel.journal.abc import RunJournal, RunSummary

FINISHED = frozenset({"completed", "skipped"})

MOST = 2_000
"""Of a notebook's newest runs that are looked at."""

Same = Callable[[RunCreated, RunCreated], bool]


@dataclass
class _Past:
    """Finished runs of the sessions that this one continues, the oldest first, without those that were given already."""

    session: str = ""
    finished: list[RunSummary] = field(default_factory=list)


class Sessions:
    """The sessions of one process, by notebook.

    Args:
        id: names this process's own.
    """

    def __init__(self, id: str) -> None:
        self.id = id
        self._past: dict[str, _Past] = {}

    def continues(self, notebook: str | None) -> str:
        """The session that this one continues; empty where it began anew."""
        past = self._past.get(notebook or "")
        return past.session if past is not None else ""

    async def look_back(self, journal: RunJournal, notebook: str | None) -> None:
        """Decide, once, whether the notebook's last session is continued. One whose path is not known is one, too."""
        if (notebook or "") not in self._past:
            runs = await journal.list_runs(notebook=notebook, limit=MOST)
            runs = [run for run in runs if run.header.notebook == notebook]
            self._past.setdefault(notebook or "", broken(self.id, runs))

    async def take(self, journal: RunJournal, created: RunCreated, same: Same) -> RunSummary | None:
        """The finished run that a start means; it is not given again. One that was deleted since is nobody's."""
        past = self._past.get(created.notebook or "")
        while past is not None:
            found = next((run for run in past.finished if same(run.header, created)), None)
            if found is None:
                break
            past.finished.remove(found)
            if await journal.get_run(RunId(found.run_id)) is not None:
                return found
        return None


def broken(own: str, runs: list[RunSummary]) -> _Past:
    """What there is to continue.

    Args:
        own: the session that asks.
        runs: of one notebook, the newest first.
    """
    earlier = [run for run in runs if run.header.session and run.header.session != own]
    if not earlier:
        return _Past()
    last = earlier[0].header.session
    chain, at = [last], last
    for run in earlier:  # a session that continued another has its runs, too
        if run.header.session == at and run.header.continues and run.header.continues not in chain:
            at = run.header.continues
            chain.append(at)
    theirs = [run for run in earlier if run.header.session in chain]
    if not any(run.interrupted or run.status == "paused" for run in theirs):
        return _Past()
    return _Past(last, [run for run in reversed(theirs) if run.status in FINISHED])
