"""Which door a model's name belongs to, and what else its name says: the level, the account."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loom_kernel.agents.model import LEVELS, Model, ThinkingLevel


@dataclass(frozen=True)
class Candidate:
    """One model of a chain. ``name`` is what doors take, ``level`` its suffix; ``account`` names other credentials."""

    name: str
    level: ThinkingLevel | None = None

    def __str__(self) -> str:
        return f"{self.name}:{self.level}" if self.level is not None else self.name

    @property
    def provider(self) -> str:
        """What stands before the first slash."""
        return self.name.partition("/")[0]


def candidate(text: str) -> Candidate:
    """Take a model's name apart. Only a known level is a suffix: other colons belong to the name (``ollama/llama3:8b``)."""
    name, colon, last = text.strip().rpartition(":")
    for level in LEVELS:
        if colon and last == level:
            return Candidate(name, level)
    return Candidate(text.strip())


class Doors:
    """The doors of one process, opened when a model of theirs is first asked.

    Args:
        settings: of accounts and scripts; see ``settings.py``.
        sleep: for scripted delays.
        notify: told a line where something takes long, such as a model's bytes on their way.
    """

    def __init__(
        self,
        *,
        script: str | Path | None = None,
        accounts: Mapping[str, Mapping[str, Any]] | None = None,
        sleep: Callable[[float], Awaitable[None]] | None = None,
        notify: Callable[[str], None] | None = None,
        local_file: str | None = None,
        offline: bool = False,
    ) -> None:
        self._script, self.accounts, self._sleep, self._notify = script, dict(accounts or {}), sleep, notify
        self._local_file, self._offline = local_file, offline
        self._open: dict[str, Model] = {}

    def of(self, one: Candidate) -> Model:
        """The door that the candidate is behind."""
        kind = one.provider if one.provider in ("scripted", "local") else "litellm"
        if kind not in self._open:
            self._open[kind] = self._make(kind)
        return self._open[kind]

    async def close(self) -> None:
        """End the processes of local models."""
        for model in self._open.values():
            close = getattr(model, "close", None)
            if close is not None:
                await close()

    def _make(self, kind: str) -> Model:
        if kind == "scripted":
            from loom_kernel.agents.scripted import ScriptedModel

            return ScriptedModel(self._script, *([self._sleep] if self._sleep is not None else []))
        if kind == "local":
            return importlib.import_module("loom_kernel.agents.local.model").LocalModel(
                self._notify, file=self._local_file, offline=self._offline
            )
        return importlib.import_module("loom_kernel.agents.litellm_model").LiteLLMModel(accounts=self.accounts)
