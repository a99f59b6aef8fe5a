"""What ``@step(cache=...)`` asks for: how old a result of an earlier run may be, and what it is kept under."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([smhd])\s*")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


class Caching(NamedTuple):
    """How a step's results are used again.

    Attributes:
        max_age_s: seconds after which a result counts no more; None is never.
        key: function of the step's parameters whose value stands for them; None where the arguments count.
    """

    max_age_s: float | None = None
    key: Callable[..., Any] | None = None


def read(asked: Any) -> Caching | None:
    """What ``cache=`` means; None where nothing is used again.

    Raises:
        ValueError: it is neither True, False, a duration nor a function.
    """
    if asked is False or asked is None:
        return None
    if asked is True:
        return Caching()
    if callable(asked):
        return Caching(key=asked)
    found = _DURATION.fullmatch(asked) if isinstance(asked, str) else None
    seconds = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError(
            f'cache={asked!r}: True, a duration such as "90s", "15m", "12h" or "7d", or a function of the same '
            "parameters is needed"
        )
    return Caching(max_age_s=seconds)
