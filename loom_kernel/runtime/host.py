"""Where runs are started from and shown: a notebook, a script, a terminal. The notebook brings its own host."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from loom_kernel.engine.custom import Mounts
    from loom_kernel.runtime.run import Run


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a call comes from.

    Args:
        notebook: the notebook's or script's path as a label; None where it is not known.
        cell: the cell's id, else the hash of its source; None outside of cells.
        execution: names this execution of the cell, so that equal starts in a loop are counted.
        headless: nobody is there to answer a question (nbclient, papermill, nbval).
        label: for people: who this is (``"tour.ipynb"``).
        kind: what holds the leases.
    """

    notebook: str | None = None
    cell: str | None = None
    execution: str = ""
    headless: bool = False
    label: str = ""
    kind: Literal["kernel", "script", "worker", "cli", "test"] = "script"


class Host(Protocol):
    """What the place where a person works does about runs. Called on the thread that starts or waits."""

    def place(self) -> Place:
        """Where the current call comes from."""
        ...

    def started(self, run: Run, how: str) -> None:
        """A run was started (``how`` is empty) or found again (``how`` is one sentence). Show it, unless ``run.show`` is off."""
        ...

    def waiting(self, run: Run) -> contextlib.AbstractContextManager[None]:
        """Entered around every wait for a run."""
        ...

    def interrupted(self, run: Run) -> BaseException | None:
        """What an interrupted wait raises; None lets the original exception pass. The run goes on unless this ends it."""
        ...

    def widgets(self) -> Mounts | None:
        """Where widgets of custom questions are shown; None where nobody would see them. On the loop thread."""
        ...


class NotebookHost(Host, Protocol):
    """A host that can run code in the person's own namespace."""

    async def run_cell(self, code: str) -> str:
        """Run it where cells run; what it printed and gave, as text."""
        ...


class ScriptHost:
    """A plain script or an interactive Python: nothing to show but the one line about a run that was found again."""

    def __init__(self, kind: Literal["script", "cli", "test"] = "script") -> None:
        self._kind = kind

    def place(self) -> Place:
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        name = Path(main).name if main else ""
        return Place(notebook=name or None, label=name or "python", kind=self._kind)

    def started(self, run: Run, how: str) -> None:
        if how and run.show:
            print(how, file=sys.stderr)

    def waiting(self, run: Run) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def interrupted(self, run: Run) -> BaseException | None:
        return None

    def widgets(self) -> Mounts | None:
        return None


class WorkerHost(ScriptHost):
    """A process that executes what others start; ``label`` is what they read about it."""

    def __init__(self, label: str) -> None:
        super().__init__()
        self._label = label

    def place(self) -> Place:
        return Place(label=self._label, kind="worker")
