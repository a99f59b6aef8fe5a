"""Start looks before it makes: the unfinished run that a start means, and the sentence that says so."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from loom_kernel.authoring.registry import workflow_names_equal
from loom_kernel.errors import ResumeError
from loom_kernel.events import RunCreated
from loom_kernel.journal.abc import RunJournal, RunSummary
from loom_kernel.views.run import RunView
from loom_kernel.views.words import plural

if TYPE_CHECKING:
    from loom_kernel.runtime.core import Runtime

UNFINISHED = ("pending", "running", "awaiting_input", "paused", "interrupted")

How = Literal["attach", "resume", "follow", "finished"]


@dataclass(frozen=True)
class Found:
    """The run that is meant, and what to do with it: it lives here, it rests, another worker has it, or it is finished."""

    summary: RunSummary
    how: How


async def find(runtime: Runtime, journal: RunJournal, created: RunCreated, *, looks: bool) -> Found | None:
    """The unfinished run of the same identity, newest first.

    With a key the key is the identity; otherwise, and only if ``looks``, it is workflow, inputs, notebook, cell and
    the number of the start within the execution of the cell.

    Raises:
        ResumeError: the key belongs to an unfinished run with other inputs.
    """
    if created.key is None and not looks:
        return None
    candidates = await journal.list_runs(
        status=UNFINISHED, key=created.key, notebook=None if created.key else created.notebook
    )
    for summary in candidates:
        header = summary.header
        if not workflow_names_equal(header.workflow, created.workflow):
            continue
        if created.key is not None:
            if not same_inputs(header, created):
                raise ResumeError(
                    f"the unfinished run of {created.workflow!r} with key {created.key!r} has other inputs; "
                    "use another key, or fresh=True to start anew"
                )
        elif not _same_place(header, created) or not same_inputs(header, created):
            continue
        return Found(summary, _how(runtime, summary))
    return None


def same_inputs(a: RunCreated, b: RunCreated) -> bool:
    """Whether both were given the same; secret inputs are compared by their digests."""
    if bytes(a.inputs) == bytes(b.inputs):
        return True
    same: bool = msgspec.json.decode(a.inputs) == msgspec.json.decode(b.inputs)
    return same


def same_start(done: RunCreated, now: RunCreated) -> bool:
    """Whether a finished run is what a start would make: the same workflow, inputs and place, and the same code."""
    return (
        workflow_names_equal(done.workflow, now.workflow)
        and done.family_version == now.family_version
        and _same_place(done, now)
        and same_inputs(done, now)
    )


def _same_place(a: RunCreated, b: RunCreated) -> bool:
    return (a.key, a.notebook, a.cell, a.nth) == (b.key, b.notebook, b.cell, b.nth) and same_fork(a, b)


def same_fork(a: RunCreated, b: RunCreated) -> bool:
    """Whether both were forked of the same run, in the same way; most are no forks."""
    return (a.forked_from, a.forked_at, a.fork_answers) == (b.forked_from, b.forked_at, b.fork_answers)


def _how(runtime: Runtime, summary: RunSummary) -> How:
    if runtime.live_run(summary.run_id) is not None:
        return "attach"
    return "resume" if summary.interrupted or summary.status == "paused" else "follow"


def sentence(found: Found, view: RunView) -> str:
    """What a start says that found its run: ``attached to the run of 14:02, 3 of 5 steps done; ...``."""
    if found.how == "finished":
        return (
            f"this is the run of {clock(view.created_at)}, finished by the session that this one continues; "
            "fresh=True starts anew"
        )
    verb = {"attach": "attached to", "resume": "resumed", "follow": "following"}[found.how]
    elsewhere = f", which {_who(view)}" if found.how == "follow" else ""
    counts = view.counts
    done = f", {counts.done} of {plural(counts.total, 'step')} from the journal" if counts.total else ""
    return f"{verb} the run of {clock(view.created_at)}{elsewhere}{done}; fresh=True starts anew"


def _who(view: RunView) -> str:
    if view.status == "pending" and view.for_worker:
        return "waits for a worker"
    return f"{view.held_by or 'another kernel'} executes"


def resumed(view: RunView) -> str:
    """What ``resume`` says."""
    counts = view.counts
    done = f", {counts.done} of {plural(counts.total, 'step')} from the journal" if counts.total else ""
    return f"resumed the run of {clock(view.created_at)}{done}"


def clock(at: Any) -> str:
    """A moment in the reader's zone: the time, with the day when it was not today."""
    if at is None:
        return "now"
    then, now = time.localtime(at), time.localtime()
    return time.strftime("%H:%M" if then[:3] == now[:3] else "%d %b, %H:%M", then)
