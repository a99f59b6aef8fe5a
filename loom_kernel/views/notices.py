"""What is worth a notice in a run's life, and when two notices are the same one.

A notice's id says what it is about, so that the same thing is never told twice: once a run and status, once a run and
dimension, once a moment. Nested runs give none: their parent speaks for them. Source: Atomic's lifecycle notices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Protocol, Required, TypedDict

from loom_kernel import events as ev
from loom_kernel.errors import SettingsError
from loom_kernel.views.run_snapshot import waits_for_provider

Kind = Literal[
    "started", "completed", "failed", "blocked", "budget_warning", "awaiting_input", "paused", "quit", "resumed"
]

KINDS: tuple[Kind, ...] = (
    "started", "completed", "failed", "blocked", "budget_warning", "awaiting_input", "paused", "quit", "resumed",
)  # fmt: skip

TELLING = frozenset({
    ev.RunStarted.type, ev.RunPaused.type, ev.RunEnded.type, ev.BudgetWarned.type, ev.PromptOpened.type,
})  # fmt: skip
"""Events that may give a notice."""


class WorkflowNotice(TypedDict, total=False):
    """Something that a person should hear of.

    ``id`` is what it is about; a second notice of that id is none. ``active``: the run is blocked by a provider and goes on
    when it is resumed, it is not finished. ``created_at`` and ``acked_at`` are seconds since the epoch.
    """

    id: Required[str]
    message: Required[str]
    kind: str
    run_id: str | None
    stage_id: str | None
    level: Literal["info", "warning", "error"]
    active: bool
    created_at: float
    requires_ack: bool
    acked_at: float | None


class _Entry(Protocol):
    @property
    def node_id(self) -> str | None: ...
    @property
    def event(self) -> ev.Event: ...
    @property
    def created_at(self) -> int: ...


def notice_of(run_id: str, workflow: str, entry: _Entry) -> WorkflowNotice | None:
    """The notice that an event of a top-level run gives; None for most."""
    at = entry.created_at / 1e6
    moment = str(entry.created_at)
    match entry.event:
        case ev.RunStarted(resumed=False):
            return _notice("started", moment, f"{workflow} started", run_id, at)
        case ev.RunStarted():
            return _notice("resumed", moment, f"{workflow} goes on from what is recorded", run_id, at)
        case ev.RunPaused(reason="stopped", message=message):
            by = f" ({message})" if message else ""
            text = f"{workflow} was stopped on purpose{by}; leave it so, it goes on when it is resumed"
            return _notice("quit", moment, text, run_id, at)
        case ev.RunPaused(reason=reason, message=message):
            text = f"{workflow} is paused ({reason}){f': {message}' if message else ''}"
            return _notice("paused", moment, text, run_id, at, "warning")
        case ev.RunEnded() as ended:
            return _ended(run_id, workflow, ended, moment, at)
        case ev.BudgetWarned(dimension=dimension, reading=reading, ceiling=ceiling):
            text = f"{workflow} has used {reading:g} of {ceiling:g} ({dimension})"
            return _notice("budget_warning", dimension, text, run_id, at, "warning")
        case ev.PromptOpened(message=message, generation=generation):
            text = f"{workflow} asks: {message}"
            made = _notice("awaiting_input", f"{entry.node_id}:{generation}", text, run_id, at)
            made["stage_id"] = entry.node_id
            made["requires_ack"] = True
            return made
    return None


def _ended(run_id: str, workflow: str, e: ev.RunEnded, moment: str, at: float) -> WorkflowNotice | None:
    why = e.error.message if e.error is not None else e.reason or ""
    because = f": {why}" if why else ""
    match e.status:
        case "completed" | "skipped":
            return _notice("completed", "", f"{workflow} {e.status}{because}", run_id, at)
        case "failed":
            return _notice("failed", "", f"{workflow} failed{because}", run_id, at, "error")
        case "blocked" if not e.exited and waits_for_provider(e.status, e.reason, e.resumable):
            text = f"{workflow} is blocked, not finished{because}; it goes on when it is resumed"
            made = _notice("blocked", moment, text, run_id, at, "warning")
            made["active"] = True
            return made
        case "blocked":
            return _notice("blocked", "", f"{workflow} is blocked{because}", run_id, at, "warning")
    return None  # cancelled or killed: whoever did it knows


def _notice(
    kind: Kind,
    occasion: str,
    message: str,
    run_id: str,
    at: float,
    level: Literal["info", "warning", "error"] = "info",
) -> WorkflowNotice:
    return {
        "id": f"{run_id}:{kind}:{occasion}" if occasion else f"{run_id}:{kind}",
        "kind": kind,
        "run_id": run_id,
        "stage_id": None,
        "level": level,
        "message": message,
        "active": False,
        "created_at": at,
        "requires_ack": False,
        "acked_at": None,
    }


def wanted(settings: Mapping[str, Any] | None, where: str = "notifications") -> frozenset[str]:
    """The kinds of notices that somebody wants: all, where nobody says otherwise.

    Args:
        settings: ``enabled`` (True) and ``notify_on``, a list of kinds.
        where: what the table is called in errors.

    Raises:
        SettingsError: a field or a kind that there is not.
    """
    table = dict(settings or {})
    enabled, kinds = table.pop("enabled", True), table.pop("notify_on", KINDS)
    if table:
        raise SettingsError(f"{where}: {next(iter(table))!r} is not known; there are enabled and notify_on")
    if not isinstance(enabled, bool):
        raise SettingsError(f"{where}: enabled is true or false, not {enabled!r}")
    if isinstance(kinds, str) or not isinstance(kinds, Iterable):
        raise SettingsError(f"{where}: notify_on is a list of kinds, not {kinds!r}")
    chosen = frozenset(kinds)
    for kind in sorted(map(str, chosen - set(KINDS))):
        raise SettingsError(f"{where}: notify_on has no kind {kind!r}; there are {', '.join(KINDS)}")
    return chosen if enabled else frozenset()
