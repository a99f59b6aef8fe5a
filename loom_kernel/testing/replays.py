"""Recorded runs as tests: today's code must still ask for what was recorded, and for nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from loom_kernel.authoring.workflow import WorkflowDefinition
from loom_kernel.engine.replaying import Divergence, Replay, Side
from loom_kernel.journal import histories
from loom_kernel.journal.abc import JournalEntry
from loom_kernel.runtime import replaying
from loom_kernel.runtime.run import Run

__all__ = ["Divergence", "Replay", "ReplayDiverged", "Side", "replay", "save_history"]


class ReplayDiverged(AssertionError):
    """The history and the code part. ``report`` says where, with both sides."""

    def __init__(self, report: Replay) -> None:
        super().__init__(str(report))
        self.report = report


def replay(
    run_or_history: Run[Any] | str | Path | Iterable[JournalEntry],
    definition: WorkflowDefinition[..., Any],
    *,
    secrets: Mapping[str, Any] | None = None,
    check: bool = True,
) -> Replay:
    """Replay what was recorded against the definition as it is now.

    Every answer is taken from the record; no step runs and nothing is written. The body's plain code runs. It may be
    called from sync and async tests alike.

    Args:
        run_or_history: a run, the path of a file that :func:`save_history` made, or a run's events.
        definition: what ``@workflow`` made.
        secrets: values of its secret inputs, which are not recorded.
        check: raise where they diverge; otherwise the report says so.

    Raises:
        ReplayDiverged: the first call that the record does not answer, or the first record that is not asked for.
        ResumeError: it is a run of another workflow, or a secret input is missing.
    """
    if isinstance(run_or_history, Run):
        report = replaying.replay_run(run_or_history._runtime, run_or_history.id, definition, secrets=secrets)
    else:
        blobs: Mapping[str, bytes] = {}
        if isinstance(run_or_history, (str, Path)):
            entries: Iterable[JournalEntry]
            entries, blobs = histories.load(Path(run_or_history))
        else:
            entries = run_or_history
        report = replaying.replay_history(entries, blobs, definition, secrets=secrets)
    if check and not report.ok:
        raise ReplayDiverged(report)
    return report


def save_history(run: Run[Any], path: str | Path) -> Path:
    """Write a run with its child runs and large values to a file, one event a line, for :func:`replay`.

    It holds the run's inputs, results and texts; of secret inputs their digests only.
    """
    return replaying.save(run._runtime, run.id, path)
