"""What an author asks for, as plain values; whether it is granted is decided elsewhere (``engine/``)."""

from __future__ import annotations

import math
from dataclasses import InitVar, dataclass


@dataclass(frozen=True, kw_only=True)
class Retry:
    """How often and when a step is tried again. Written ``@step(retry=Retry(max_attempts=3))``.

    Args:
        max_attempts: tries in all, the first one included; at least 1.
        interval_s: seconds before the second try.
        backoff: factor from one wait to the next; at least 1.
        max_interval_s: longest wait, seconds.
        jitter: spread each wait randomly over its upper half, so that siblings do not return together.
        on: exception classes worth another try.
        never: exception classes that are not, whatever ``on`` says.
        retry_after: obey the wait that a ``RetryableError(retry_after_s=)`` names.

    Raises:
        ValueError: a number is out of its range.
    """

    max_attempts: int = 1
    interval_s: float = 1.0
    backoff: float = 2.0
    max_interval_s: float = 30.0
    jitter: bool = True
    on: tuple[type[BaseException], ...] = (Exception,)
    never: tuple[type[BaseException], ...] = ()
    retry_after: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.max_attempts, bool) or not isinstance(self.max_attempts, int) or self.max_attempts < 1:
            raise ValueError(f"Retry(max_attempts={self.max_attempts!r}): a whole number of at least 1 is needed")
        for name, low in (("interval_s", 0.0), ("backoff", 1.0), ("max_interval_s", 0.0)):
            value = getattr(self, name)
            if (
                isinstance(value, bool)
                or not isinstance(value, (int, float))
                or not math.isfinite(value)
                or value < low
            ):
                raise ValueError(f"Retry({name}={value!r}): a finite number of at least {low:g} is needed")
        for name in ("on", "never"):
            value = getattr(self, name)
            if isinstance(value, type):
                object.__setattr__(self, name, (value,))


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a run and its children may spend before they are stopped softly.

    Each field is resolved by itself: the start's own (``options(budget=)``, or ``resume(budget=)``), the definition's, the
    project's setting. ``None`` falls through to the next, ``0`` switches the dimension off (Atomic's rule).

    Args:
        max_cost: US dollars.
        max_tokens: input and output tokens together; what a provider had cached already does not count.
        max_duration_s: seconds of running; rests do not count.
        warn_at_percent: percentage of a limit at which the view warns once; 80 where nobody says, 0 never warns.
        max_duration_ms: ``max_duration_s`` in milliseconds, as Atomic spells it; it is not kept.

    Raises:
        ValueError: a number is out of its range, or the duration is given twice.
    """

    max_cost: float | None = None
    max_tokens: int | None = None
    max_duration_s: float | None = None
    warn_at_percent: float | None = None
    max_duration_ms: InitVar[float | None] = None

    def __post_init__(self, max_duration_ms: float | None) -> None:
        if max_duration_ms is not None:
            if self.max_duration_s is not None:
                raise ValueError("Budget: max_duration_s and max_duration_ms are the same; give one of them")
            if isinstance(max_duration_ms, bool) or not isinstance(max_duration_ms, (int, float)):
                raise ValueError(f"Budget(max_duration_ms={max_duration_ms!r}): a number of milliseconds is needed")
            object.__setattr__(self, "max_duration_s", max_duration_ms / 1000)
        for name in ("max_cost", "max_tokens", "max_duration_s", "warn_at_percent"):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
                raise ValueError(f"Budget({name}={value!r}): a number that is not negative is needed; 0 means no limit")
            if name == "max_tokens" and not isinstance(value, int):
                raise ValueError(f"Budget(max_tokens={value!r}): a whole number is needed")
