"""``run(..., journal=...)``: which journal is meant, and who opens and closes it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from loom_kernel.errors import StorageConfigError
from loom_kernel.journal.abc import RunJournal


class Choice(NamedTuple):
    """A journal: what tells it from others; a setting, or what opens it; whether somebody else closes it."""

    key: Hashable
    setting: str | Path | None = None
    make: Callable[[], Awaitable[RunJournal]] | None = None
    borrowed: bool = False


def choose(journal: Any) -> Choice:
    """The journal that is meant.

    Args:
        journal: one that is open, a coroutine function that opens one, a folder, an address, ``"memory"``; or the
            reference's ``{"memory": True}`` and ``{"path": ...}``.

    Raises:
        StorageConfigError: it is none of these.
    """
    if isinstance(journal, RunJournal):

        async def lent() -> RunJournal:
            return journal

        return Choice(id(journal), make=lent, borrowed=True)
    if inspect.iscoroutinefunction(journal):
        return Choice(journal, make=journal)
    if isinstance(journal, Mapping):
        given = dict(journal)
        if given == {"memory": True}:
            journal = "memory"
        elif set(given) == {"path"}:
            journal = given["path"]
    if not isinstance(journal, (str, Path)) or not str(journal).strip():
        raise StorageConfigError(
            f"run(journal={journal!r}): a journal, its folder or address, 'memory', or a coroutine function that opens one is needed"
        )
    return Choice(str(journal), setting=journal)
