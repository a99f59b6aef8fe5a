"""Whether a failed attempt is tried again, and after how long: a function of the wish, the try and the error."""

from __future__ import annotations

import random
from typing import NamedTuple

from loom_kernel.errors import FatalError, LoomError, RetryableError, StepTimeout
from loom_kernel.policies import Retry

CANCELLATIONS = frozenset({"AbortError", "Cancelled", "CancelledError"})
"""Names of errors that say that somebody gave up; trying again is not what was wanted."""


class Wait(NamedTuple):
    """Try again after ``delay_s`` seconds."""

    delay_s: float


class GiveUp(NamedTuple):
    """This was the last try."""

    why: str


def decide(policy: Retry, attempt: int, error: BaseException, seed: str = "") -> Wait | GiveUp:
    """What follows a failed attempt.

    Args:
        policy: what the author asked for.
        attempt: which try failed, from 1.
        error: what it raised.
        seed: makes the jitter; the same seed gives the same wait.
    """
    if isinstance(error, FatalError):
        return GiveUp("the step said that trying again is of no use")
    if policy.never and isinstance(error, policy.never):
        return GiveUp(f"{type(error).__name__} is never tried again")
    if type(error).__name__ in CANCELLATIONS and getattr(error, "returncode", None) is None:
        return GiveUp("it says that it was cancelled")
    asked = isinstance(error, RetryableError)
    if isinstance(error, LoomError) and not asked and not isinstance(error, StepTimeout):
        # A value that cannot be kept, a changed argument: the next try would only say the same.
        return GiveUp(f"{type(error).__name__} does not go away by trying again")
    if not asked and not isinstance(error, policy.on):
        return GiveUp(f"{type(error).__name__} is not among the errors worth another try")
    if attempt >= policy.max_attempts:
        return GiveUp(f"it was try {attempt} of {policy.max_attempts}")
    if asked and policy.retry_after and error.retry_after_s is not None:  # type: ignore[attr-defined]
        return Wait(max(0.0, float(error.retry_after_s)))  # type: ignore[attr-defined]
    return Wait(backoff(policy, attempt, seed))


def backoff(policy: Retry, attempt: int, seed: str = "") -> float:
    """Seconds to wait after try ``attempt`` failed."""
    try:
        delay = policy.interval_s * policy.backoff ** (attempt - 1)
    except OverflowError:
        delay = policy.max_interval_s
    delay = min(delay, policy.max_interval_s)
    if policy.jitter:
        delay *= 0.5 + 0.5 * random.Random(f"{seed}:{attempt}").random()
    return delay
