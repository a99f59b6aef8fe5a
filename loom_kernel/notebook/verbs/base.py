"""What a verb is, and what verbs share: the session and how a run is named."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from loom_kernel.errors import CommandError, UnknownRunError
from loom_kernel.notebook.arguments import Arguments

if TYPE_CHECKING:
    from loom_kernel.notebook.display import KernelHost
    from loom_kernel.runtime.core import Runtime
    from loom_kernel.runtime.run import Run

Offer = Literal["workflow", "run", "prompt", "input", "node", "other_run", "run_input", "model"]
"""What a verb's words can be, for completion."""

UNFINISHED = ("pending", "running", "awaiting_input", "paused", "interrupted")
"""Statuses of runs that still want something."""


@dataclass(frozen=True)
class Session:
    """Where a magic was typed.

    Args:
        namespace: the notebook's variables.
        host: shows runs; None in a plain IPython, which has nothing to show them in.
        load: gives the runtime.
    """

    namespace: dict[str, Any]
    host: KernelHost | None
    load: Callable[[], Runtime]

    @property
    def runtime(self) -> Runtime:
        """The runtime, loaded now if need be."""
        return self.load()


@dataclass(frozen=True)
class Verb:
    """One verb of ``%loom``.

    Args:
        name: what is typed.
        summary: first line of its help.
        fill: adds its arguments to a parser.
        run: does it; what it returns is the cell's value.
        offers: what its words can be.
        takes_cell: whether ``%%loom VERB`` with a cell below it means something.
    """

    name: str
    summary: str
    fill: Callable[[Arguments], None]
    run: Callable[[Session, argparse.Namespace], Any]
    offers: tuple[Offer, ...] = ()
    takes_cell: bool = False

    def parser(self, command: str) -> Arguments:
        """A new parser of its arguments."""
        made = Arguments(command, self.summary)
        self.fill(made)
        return made


def run_argument(parser: Arguments, *, required: bool = False, what: str = "the newest one when left out") -> None:
    """Add ``RUN``: how a run is named everywhere."""
    text = "an id or its beginning, a variable that holds a run, or a workflow's name for its newest run"
    parser.add_argument(
        "run", nargs=None if required else "?", metavar="RUN", help=text if required else f"{text}; {what}"
    )


def find_run(session: Session, text: str) -> Run[Any]:
    """The run that a person means by ``text``.

    Raises:
        UnknownRunError: none, or several ids begin so.
    """
    from loom_kernel.runtime.run import Run

    held = session.namespace.get(text)
    if isinstance(held, Run):
        return held
    try:
        return session.runtime.get_run(text)
    except UnknownRunError as error:
        newest = [] if error.candidates else session.runtime.runs(workflow=text, limit=1)
        if not newest:
            raise
        return newest[0]


def newest_run(session: Session, command: str) -> Run[Any]:
    """The newest run of the project.

    Raises:
        CommandError: there is none yet.
    """
    found = session.runtime.runs(limit=1)
    if not found:
        raise CommandError(command, "there are no runs yet", "`%loom workflows` lists what can be run.")
    return found[0]


def the_only(session: Session, command: str, status: tuple[str, ...], what: str) -> Run[Any]:
    """The only run in one of these statuses.

    Raises:
        CommandError: there is none, or there are several; the message lists them.
    """
    found = session.runtime.runs(status=status, limit=6)
    if len(found) == 1:
        return found[0]
    if not found:
        raise CommandError(command, f"no run {what}", "`%loom runs` lists them all.")
    listed = ", ".join(
        f"{run.id} ({run.view.workflow or s.workflow})" for run, s in zip(found, found.summaries, strict=True)
    )
    raise CommandError(command, f"{len(found)} runs {what}", f"Say which: {listed}.")
