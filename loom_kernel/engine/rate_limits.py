"""Rate limits by name: how many requests and tokens a minute, over all runs of a project.

``[limits.openai] requests_per_minute = 60, tokens_per_minute = 90000`` in ``loom.toml``; used by ``@step(limit="openai")`` and
by model stages. What was used in the last minute stands in a small file of the project's folder, so that every process
that works there counts together; without a folder one process counts for itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loom_kernel.clock import Clock
from loom_kernel.errors import DefinitionError, SettingsError

WINDOW_S = 60.0

_FIELDS = ("requests_per_minute", "tokens_per_minute")


@dataclass(frozen=True)
class Rate:
    """What may be used in a minute; None is no limit."""

    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None

    @classmethod
    def of(cls, name: str, given: Any) -> Rate:
        """Raises: SettingsError: a field that does not exist, or no number above zero."""
        if not isinstance(given, Mapping) or not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
            raise SettingsError(
                f"[limits.{name}] in loom.toml: a table with {' and '.join(_FIELDS)} is needed, under a plain name"
            )
        for field, value in given.items():
            if field not in _FIELDS:
                raise SettingsError(
                    f"[limits.{name}] in loom.toml: no field named {field!r}; there are {', '.join(_FIELDS)}"
                )
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
                raise SettingsError(f"[limits.{name}] in loom.toml: {field} = {value!r}; a number above zero is needed")
        return cls(**given)


Used = list[list[float]]
"""Of each request its time (seconds since the epoch) and its tokens, oldest first."""


def wait_s(rate: Rate, used: Used, now: float, tokens: float) -> float:
    """Seconds until a request of so many tokens may be made; 0 is now. Pure.

    One that is larger than the limit itself is made when nothing else was in the minute before.
    """
    wait = 0.0
    if rate.requests_per_minute is not None:
        most = max(1, int(rate.requests_per_minute))
        if len(used) >= most:
            wait = used[len(used) - most][0] + WINDOW_S - now
    if rate.tokens_per_minute is not None:
        too_many = sum(n for _, n in used) + min(tokens, rate.tokens_per_minute) - rate.tokens_per_minute
        for at, n in used:
            if too_many <= 0:
                break
            too_many -= n
            wait = max(wait, at + WINDOW_S - now)
    return max(0.0, wait)


class RateLimits:
    """The limits of one process.

    Args:
        limits: the settings' table, by name.
        folder: of the project, shared with others; None counts here only.
        clock: for the minute, and for waiting.
    """

    def __init__(self, limits: Mapping[str, Any], folder: Path | None, clock: Clock) -> None:
        self._rates = {name: Rate.of(name, given) for name, given in limits.items()}
        self._folder, self._clock = folder, clock
        self._here: dict[str, Used] = {}

    def check(self, name: str) -> None:
        """Raises: DefinitionError: there is no limit of that name."""
        if name not in self._rates:
            there = ", ".join(sorted(self._rates)) or "none"
            raise DefinitionError(f"limit={name!r}: there is no [limits.{name}] in loom.toml; there are: {there}")

    async def acquire(self, name: str, tokens: int = 0) -> float:
        """Return when a request may be made, and count it; how long that took, in seconds.

        Raises:
            DefinitionError: there is no limit of that name.
        """
        self.check(name)
        began = self._clock.time()
        while True:
            now = self._clock.time()
            with self._window(name, now) as used:
                wait = wait_s(self._rates[name], used, now, tokens)
                if wait <= 0:
                    used.append([now, float(tokens)])
                    return now - began
            await self._clock.sleep(wait + 0.001)

    def used(self, name: str, tokens: int, estimated: int = 0) -> None:
        """What a request used in the end, in the place of what was thought before."""
        now = self._clock.time()
        with self._window(name, now) as used:
            for one in reversed(used):
                if one[1] == estimated:
                    one[1] = float(tokens)
                    return

    @contextlib.contextmanager
    def _window(self, name: str, now: float) -> Iterator[Used]:
        """The last minute, to look at and to add to."""
        if self._folder is None:
            used = self._here[name] = _recent(self._here.get(name, []), now)
            yield used
            return
        folder = self._folder / "limits"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(os.open(folder / f"{name}.json", os.O_RDWR | os.O_CREAT, 0o600), "r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                kept = json.loads(file.read() or "[]")
            except ValueError:
                kept = []  # written by a process that died in the middle: the minute begins anew
            used = _recent(kept, now)
            yield used
            file.seek(0)
            file.truncate()
            file.write(json.dumps(used))
            file.flush()


def _recent(used: Used, now: float) -> Used:
    # A clock that was set back would otherwise hold everybody up.
    return [[at, n] for at, n in used if now - WINDOW_S < at <= now]
