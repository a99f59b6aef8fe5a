"""A runtime of its own for each test, in memory or with a hub."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loom_kernel.authoring import launcher as launcher_slot
from loom_kernel.authoring.registry import registry
from loom_kernel.journal.abc import RunJournal
from loom_kernel.journal.memory_store import MemoryRunJournal
from loom_kernel.runtime import Place, Run, Runtime
from loom_kernel.settings import Settings


class DeskHost:
    """A notebook with somebody in front of it, or nobody; what was shown is kept."""

    def __init__(self) -> None:
        self.cell: str | None = "cell-1"
        self.notebook: str | None = "demo.ipynb"
        self.execution = "1"
        self.headless = False
        self.shown: list[tuple[str, str]] = []
        self.waits: list[str] = []
        self.raises: BaseException | None = None

    def place(self) -> Place:
        return Place(
            notebook=self.notebook,
            cell=self.cell,
            execution=self.execution,
            headless=self.headless,
            label="demo.ipynb",
            kind="kernel",
        )

    def started(self, run: Run[Any], how: str) -> None:
        self.shown.append((run.view.workflow, how))

    def waiting(self, run: Run[Any]) -> contextlib.AbstractContextManager[None]:
        self.waits.append(run.id)
        return contextlib.nullcontext()

    def interrupted(self, run: Run[Any]) -> BaseException | None:
        return self.raises

    def widgets(self) -> None:
        return None


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test defines is forgotten."""
    monkeypatch.setattr(registry, "_definitions", {})


@pytest.fixture
def host() -> DeskHost:
    """Where the person sits."""
    return DeskHost()


@pytest.fixture
def journal() -> MemoryRunJournal:
    """A journal that several runtimes of a test may share, one after the other."""
    return MemoryRunJournal()


@pytest.fixture
def make_runtime(
    host: DeskHost, journal: MemoryRunJournal, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Runtime]]:
    """Makes runtimes on the shared journal; the newest is the one that definitions start runs with."""
    made: list[Runtime] = []

    async def open_shared() -> RunJournal:
        return journal

    def make(**options: Any) -> Runtime:
        options.setdefault("journal", open_shared)
        runtime = Runtime(options.pop("settings", None) or Settings(environ={}), host, **options)
        made.append(runtime)
        monkeypatch.setattr(launcher_slot, "launcher", runtime)
        return runtime

    yield make
    for runtime in made:
        runtime.close()


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime]) -> Runtime:
    """A runtime in memory, with a person in front of a notebook."""
    return make_runtime()


@pytest.fixture
def effects(tmp_path: Path) -> Callable[..., list[str]]:
    """A file of side effects: called with a line it adds it, without one it gives all."""
    path = tmp_path / "effects.txt"

    def effect(line: str | None = None) -> list[str]:
        if line is not None:
            with path.open("a") as file:
                file.write(line + "\n")
        return path.read_text().splitlines() if path.exists() else []

    return effect
