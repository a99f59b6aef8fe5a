"""What a run came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

R = TypeVar("R")


@dataclass(frozen=True, kw_only=True, repr=False)
class RunResult(Generic[R]):
    """The outcome of a run that came to rest.

    Args:
        run_id: the run.
        status: completed, skipped, cancelled, blocked, failed, killed or paused.
        result: what the body returned, or the partial outputs of ``ctx.exit``; None otherwise.
        error: the exception that ended a failed run.
        exited: the body called ``ctx.exit``.
        exit_reason: the reason given there.
        reason: why a paused or blocked run rests (stopped, needs_decision, budget, provider), or who cancelled it.
        stages: the run's nodes in the order they started, after Atomic's stage snapshots: ``id, name, kind, status,
            parent_ids, execution_order``, and of a run's own result all that the store's ``StageSnapshot`` has: times
            (seconds since the epoch, None until then), ``duration_s``, ``result``, ``error`` (its text, or None).
        workflow: the workflow's name.
    """

    run_id: str
    status: str
    result: R | None = None
    error: BaseException | None = None
    exited: bool = False
    exit_reason: str | None = None
    reason: str | None = None
    stages: Sequence[dict[str, Any]] = field(default=(), compare=False)
    workflow: str = field(default="", compare=False)

    @property
    def outputs(self) -> R | None:
        """Another name of ``result``, which Atomic's results of child workflows have."""
        return self.result

    @property
    def ok(self) -> bool:
        """The run completed, or the body chose its end with ``ctx.exit``."""
        return self.status in ("completed", "skipped") or (self.exited and self.status != "failed")

    def __repr__(self) -> str:
        parts = [self.status]
        reason = self.exit_reason if self.exited else self.reason
        if reason:
            parts.append(f"reason={reason!r}")
        if self.error is not None:
            parts.append(f"error={type(self.error).__name__}({str(self.error)!r})")
        if self.result is not None:
            parts.append(f"result={self.result!r}")
        return f"RunResult({', '.join(parts)})"
