"""What an author asks for, as plain values; whether it is granted is decided elsewhere (``engine/``)."""

from __future__ import annotations

import math
import os
from dataclasses import InitVar, dataclass
from typing import Literal

ExecutionMode = Literal["interactive", "non_interactive"]
"""Whether somebody is there who answers questions."""


@dataclass(frozen=True, kw_only=True)
class ExecutionPolicy:
    """What whoever starts a run can expect of the person in front of it.

    Args:
        mode: its name.
        allow_human_input: an open question waits for its answer; otherwise whoever waits for the run gets ``NeedsAnswer``.
        await_terminal_run: who starts a run for somebody else waits until it rests (``loom run``).
        allow_input_picker: missing inputs may be asked for.
    """

    mode: ExecutionMode
    allow_human_input: bool
    await_terminal_run: bool
    allow_input_picker: bool


INTERACTIVE_POLICY = ExecutionPolicy(
    mode="interactive", allow_human_input=True, await_terminal_run=False, allow_input_picker=True
)
"""Somebody is there."""

NON_INTERACTIVE_POLICY = ExecutionPolicy(
    mode="non_interactive", allow_human_input=False, await_terminal_run=True, allow_input_picker=False
)
"""Nobody is there: a schedule, a test, another program."""

POLICIES = {policy.mode: policy for policy in (INTERACTIVE_POLICY, NON_INTERACTIVE_POLICY)}


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


@dataclass(frozen=True, kw_only=True)
class RuntimeConfig:
    """What one start may set that otherwise comes from the settings. Written ``run(..., config=RuntimeConfig(...))``.

    It holds for the executions that this start makes, children included; a resume in another process has its settings.

    Args:
        default_concurrency: branches of ``ctx.parallel`` and ``ctx.map`` that are at work at once, where neither the call nor
            the input ``max_concurrency`` says; None begins all.
        max_depth: how deep workflows nest, the outermost counted.
        budget: limits for the fields that neither the start nor the definition sets.
        status_file: keep the run's state in this JSON file as long as it is executed here; True puts it into
            ``.loom/status/``. The file is for others to read: what cannot be written is logged, and the run goes on.
        persist_runs: without effect; the journal has every run (``journal="memory"`` is one that forgets).
        resume_in_flight: without effect; the setting ``resume`` says it.

    Raises:
        ValueError: a number is out of its range.
    """

    default_concurrency: int | None = None
    max_depth: int | None = None
    budget: Budget | None = None
    status_file: bool | str | os.PathLike[str] = False
    persist_runs: bool = True
    resume_in_flight: str | bool | None = None

    def __post_init__(self) -> None:
        for name in ("default_concurrency", "max_depth"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ValueError(f"RuntimeConfig({name}={value!r}): a whole number of at least 1 is needed")
        if self.budget is not None and not isinstance(self.budget, Budget):
            raise ValueError(f"RuntimeConfig(budget={self.budget!r}): a Budget(...) is needed")
