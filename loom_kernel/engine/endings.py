"""How an execution may come to rest, and what is written then. The first of them wins."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec import Raw

from loom_kernel import events as ev
from loom_kernel.events import NULL

EndingKind = Literal["completed", "failed", "exit", "cancelled", "paused", "lost", "closed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """One way to rest.

    Attributes:
        kind: ``lost`` and ``closed`` write nothing: the run is not ours any more, or we stop owning it.
        value, result: the output, and as it is kept.
        error: what ended a failed run; for ``lost`` what the waiter gets.
        status: of an exit.
    """

    kind: EndingKind
    status: str = ""
    value: Any = None
    result: Raw = field(default_factory=lambda: NULL)
    error: BaseException | None = None
    record: ev.ErrorRecord | None = None
    failed_node_id: str | None = None
    reason: str | None = None
    message: str = ""
    detail: dict[str, Any] = field(default_factory=dict)
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
