"""An attempt that had begun when its worker died: what its step's author knows about how far it came."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

WORDS = ("retry", "ask", "fail")
"""What may be done about it without a look: run it again, ask a person, let it have failed."""


@dataclass(frozen=True)
class UnknownAttempt:
    """What a function given as ``on_unknown`` is asked about.

    Attributes:
        step: the step's name.
        arguments: parameter names to values, defaults included.
        attempt: which try it was, from 1.
        run_id, node_id: whose it was.
        idempotency_key: what the attempt had from ``current_step()``, to look for it where it was given to a service.
    """

    step: str
    arguments: dict[str, Any]
    attempt: int
    run_id: str
    node_id: str
    idempotency_key: str


@dataclass(frozen=True)
class Finished:
    """The answer that it had come to its end; ``value`` is then the step's result, and its body does not run again."""

    value: Any = None


CheckFn: TypeAlias = "Callable[[UnknownAttempt], Finished | str | Awaitable[Finished | str]]"
OnUnknown: TypeAlias = 'Literal["retry", "ask", "fail"] | str | CheckFn'
