"""How an execution may come to rest, and what is written then. The first of them wins."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal

from msgspec import Raw, Struct

from loom_kernel import codec
from loom_kernel import events as ev
from loom_kernel.codec import Blob
from loom_kernel.errors import DefinitionError, OutputError, StageFailed, ValueNotStorableError
from loom_kernel.events import NULL

EndingKind = Literal["completed", "failed", "exit", "returned", "blocked", "cancelled", "paused", "lost", "closed"]


class Ending(Struct, frozen=True, kw_only=True):
    """One way to rest.

    Attributes:
        kind: ``returned`` is a body whose output ``status`` says that it is not done; ``blocked`` is a spent budget; ``lost`` and ``closed`` write nothing: the run is not ours any more, or we
            stop owning it.
        value, result: the output, and as it is kept.
        error: what ended a failed run; for ``lost`` what the waiter gets.
        status: of an exit.
    """

    kind: EndingKind
    status: str = ""
    value: Any = None
    result: Raw = NULL
    error: BaseException | None = None
    record: ev.ErrorRecord | None = None
    failed_node_id: str | None = None
    reason: str | None = None
    message: str = ""
    detail: dict[str, Any] = {}
    resumable: bool = False

    @property
    def silent(self) -> bool:
        """Nothing is written."""
        return self.kind in ("lost", "closed")

    @property
    def final(self) -> bool:
        """The run is over, unless a failed one is resumed."""
        return not self.silent and self.kind != "paused"

    def event(self, drift: list[str]) -> ev.RunEnded | ev.RunPaused:
        """The last event of the execution."""
        if self.kind == "paused":
            return ev.RunPaused(reason=self.reason or "stopped", message=self.message, detail=self.detail)
        return ev.RunEnded(
            status=self.status or self.kind,
            result=self.result,
            error=self.record,
            failed_node_id=self.failed_node_id,
            exited=self.kind == "exit",
            reason=self.reason,
            resumable=self.resumable,
            drift=drift,
        )


def cancelled(request: ev.CancelRequested) -> Ending:
    """The end that somebody asked for."""
    reason = request.reason or (f"by {request.by}" if request.by else None)
    return Ending(kind="cancelled", status="killed" if request.kill else "", reason=reason)


RETURNED = {
    "failed": ("failed", False),
    "blocked": ("blocked", False),
    "needs_human": ("blocked", True),
    "incomplete": ("blocked", True),
    "active": ("blocked", True),
    "auth_blocked": ("blocked", True),
}
"""What the reserved output ``status`` says of a run, and whether it can be resumed; anything else has completed."""


def returned(value: Any, result: Raw, declared: Collection[str] | None) -> Ending:
    """The end of a body that returned. A declared output ``status`` may say that it did not come to its end.

    Source: Atomic's reserved output. A ``status`` that is not declared is a value like any other.
    """
    if declared is None or "status" not in declared:
        return Ending(kind="completed", value=value, result=result)

    def output(name: str) -> Any:
        return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)

    said = output("status")
    word = re.sub(r"[^a-z0-9]+", "_", said.lower()).strip("_") if isinstance(said, str) else ""
    status, resumable = RETURNED.get(word, ("completed", False))
    if status == "completed":
        return Ending(kind="completed", value=value, result=result)
    texts = (output(name) for name in ("summary", "remaining_work", "result"))
    reason = next((str(text) for text in texts if text), word)
    return Ending(kind="returned", status=status, value=value, result=result, reason=reason, resumable=resumable)


def failed(error: BaseException, node_id: str | None) -> Ending:
    """The end by an exception that left the body. A model that could not be had leaves a run that waits for it."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, StageFailed):
        cause = cause.__cause__
    blocked = cause is not None and cause.disposition == "active_blocked"
    killed = cause is not None and cause.disposition == "terminal_killed"
    return Ending(
        kind="blocked" if blocked else "failed",
        status="killed" if killed else "",
        error=error,
        record=codec.encode_error(error),
        failed_node_id=node_id,
        reason=BLOCKED_BY.get(cause.code, "provider") if cause is not None and (blocked or killed) else None,
        message=str(cause) if blocked else "",
        resumable=not killed,
    )


BLOCKED_BY = {
    "login_required": "auth",
    "missing_api_key": "auth",
    "invalid_api_key": "auth",
    "rate_limited": "rate_limit",
    "quota_limited": "rate_limit",
}
"""Why a run cannot go on, by the failure's code; of the rest it is the provider."""


def exit_ending(
    status: str,
    reason: str | None,
    outputs: dict[str, Any] | None,
    resumable: bool,
    check: Callable[[Mapping[str, Any]], None],
) -> tuple[Ending, tuple[Blob, ...]]:
    """The end that ``ctx.exit`` chose, its outputs as they are now; and their large parts.

    An exit that makes no sense is the author's failure, which a resume would only repeat.
    """
    try:
        if status not in ("completed", "skipped", "cancelled", "blocked", "failed"):
            raise DefinitionError(
                f"ctx.exit(status={status!r}): it is one of completed, skipped, cancelled, blocked, failed"
            )
        if resumable and status != "failed":
            raise DefinitionError(f'ctx.exit(status={status!r}, resumable=True): resumable goes with "failed" only')
        if reason is not None and not isinstance(reason, str):
            raise DefinitionError(f"ctx.exit(reason={reason!r}): the reason is a text")
        if outputs is None:
            return Ending(kind="exit", status=status, reason=reason, resumable=resumable), ()
        check(outputs)
        encoded = codec.encode(outputs, path="outputs", allow_nan=False)
        ending = Ending(
            kind="exit",
            status=status,
            reason=reason,
            resumable=resumable,
            value=copy.deepcopy(outputs),  # whatever a finally block does to it
            result=Raw(encoded.json),
        )
        return ending, encoded.blobs
    except (DefinitionError, OutputError, ValueNotStorableError) as error:
        return Ending(kind="failed", error=error, record=codec.encode_error(error)), ()
