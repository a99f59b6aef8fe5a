"""Runs that a worker gets from the journal: whether it can go on with one, told from the history alone. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from loom_kernel import events as ev
from loom_kernel.engine.replay import Entry
from loom_kernel.ids import RunId

MAX_CRASHES = 3
"""A run whose workers died so often in a row, without anything finished in between, waits for a person."""


@dataclass(frozen=True)
class Refused:
    """A run that was claimed and cannot go on here. ``paused``: it rests now, so that nobody claims it again."""

    run_id: RunId
    workflow: str
    why: str
    paused: bool = False


def version_of(entries: Iterable[Entry]) -> str:
    """The version of the definition that the run was executed with last."""
    version = ""
    for entry in entries:
        if entry.type in (ev.RunCreated.type, ev.RunStarted.type):
            version = cast("ev.RunCreated | ev.RunStarted", entry.event).definition_version or version
    return version


def crashes(entries: Iterable[Entry]) -> tuple[int, str]:
    """How many workers in a row died over the run without finishing anything, and what they were at last.

    A worker that died while the run only waited (for an answer, for a moment) has nothing to do with it.
    """
    count, what = 0, ""
    at_work: dict[str, str] = {}
    waiting: set[str] = set()
    for entry in entries:
        node_id = entry.node_id or ""
        match entry.type:
            case ev.LeaseTaken.type:
                if cast(ev.LeaseTaken, entry.event).after == "expired" and (at_work or not waiting):
                    count += 1
                    what = next(reversed(at_work.values()), "")
                at_work.clear()
            case ev.NodeStarted.type:
                started = cast(ev.NodeStarted, entry.event)
                if started.kind == "sleep":
                    waiting.add(node_id)
                else:
                    at_work[node_id] = started.name
            case ev.PromptOpened.type:
                waiting.add(node_id)
            case ev.NodeCompleted.type | ev.NodeFailed.type | ev.NodeCancelled.type | ev.PromptAnswered.type:
                at_work.pop(node_id, None)
                waiting.discard(node_id)
                if entry.type in (ev.NodeCompleted.type, ev.NodeFailed.type):
                    count, what = 0, ""
            case ev.RunPaused.type | ev.RunEnded.type:
                count, what = 0, ""
            case _:
                pass
    return count, what
