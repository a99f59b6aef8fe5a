"""What follows from a failed call of a model: for the call, for the candidate, for the run. Pure.

Source: Atomic's failure classification and the rules of ``fallbackModels``.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal, NamedTuple

from loom_kernel.agents.model import FailureCode


class Next(Enum):
    """What the chain does."""

    RETRY = "the same candidate again"
    ADVANCE = "the next candidate"
    STOP = "nothing more"


Kind = Literal["auth", "rate_limit", "provider", "cancelled", "unknown"]
Disposition = Literal["active_blocked", "terminal_killed", "terminal_failed"]


class Rule(NamedTuple):
    """What a code means. ``disposition`` is that of a run that ends by it."""

    next: Next
    kind: Kind
    disposition: Disposition

    @property
    def recoverable(self) -> bool:
        """Whether the run can go on when the provider is there again."""
        return self.disposition == "active_blocked"


RULES: dict[FailureCode, Rule] = {
    "login_required": Rule(Next.ADVANCE, "auth", "active_blocked"),
    "missing_api_key": Rule(Next.ADVANCE, "auth", "active_blocked"),
    "invalid_api_key": Rule(Next.ADVANCE, "auth", "terminal_killed"),
    "rate_limited": Rule(Next.RETRY, "rate_limit", "active_blocked"),
    "quota_limited": Rule(Next.ADVANCE, "rate_limit", "active_blocked"),
    "provider_unavailable": Rule(Next.RETRY, "provider", "active_blocked"),
    "timeout": Rule(Next.RETRY, "provider", "active_blocked"),
    "empty_answer": Rule(Next.RETRY, "provider", "active_blocked"),
    "bad_answer": Rule(Next.RETRY, "provider", "active_blocked"),
    "forbidden_config": Rule(Next.ADVANCE, "provider", "terminal_killed"),
    "unknown_model": Rule(Next.ADVANCE, "provider", "terminal_killed"),
    "context_overflow": Rule(Next.ADVANCE, "unknown", "terminal_failed"),
    "incompatible_request": Rule(Next.ADVANCE, "unknown", "terminal_failed"),
    "missing_package": Rule(Next.ADVANCE, "unknown", "terminal_failed"),
    "schema": Rule(Next.ADVANCE, "unknown", "terminal_failed"),
    "refused": Rule(Next.STOP, "unknown", "terminal_failed"),
    "unknown": Rule(Next.STOP, "unknown", "terminal_failed"),
}


def disposition(codes: list[FailureCode]) -> FailureCode:
    """Of the failures of a whole chain the one that says what becomes of the run: one that can be waited for, if any.

    Source: spec 5.32: a rate-limited primary and a fallback that nobody logged in to is blocked, not failed.
    """
    recoverable = [code for code in codes if RULES[code].recoverable]
    if recoverable:
        return recoverable[0]
    return codes[-1] if codes else "unknown"
