"""What ``%loom VERB`` does. Each verb is thin: it reads words and calls what a script would call.

The list is here and nowhere else; a verb's module is imported when it is used or completed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from loom_kernel.errors import CommandError
from loom_kernel.notebook.arguments import HelpShown, did_you_mean, split

if TYPE_CHECKING:
    from loom_kernel.notebook.verbs.base import Session, Verb

SUMMARIES: dict[str, str] = {
    "run": "start a run and show it",
    "plan": "what a start would do now: what the cache answers, and what runs",
    "runs": "list runs",
    "show": "show a run under this cell",
    "tail": "follow what a run does, line by line",
    "logs": "what a run's steps printed",
    "answer": "answer an open question, or list them",
    "stop": "pause a run so that it can be resumed",
    "resume": "go on with a run that rests or was interrupted",
    "cancel": "end a run for good",
    "wake": "end a run's sleeps early",
    "fork": "start another run that begins with a run's records",
    "diff": "two runs beside each other",
    "why": "why a run, or one of its nodes, is as it is",
    "workflows": "the workflows that are defined here",
    "inputs": "what a workflow takes, or what a run was given",
    "artifacts": "tables, figures and values that runs kept",
    "model": "which models there are; use one, try one, fetch a local one",
    "doctor": "what this kernel, its journal and its settings are like",
    "rm": "remove a run and everything recorded of it",
}
"""Every verb and what it does, in the order in which ``%loom`` lists them."""

_MODULES = {
    "run": "starting",
    "plan": "starting",
    "workflows": "starting",
    "inputs": "starting",
    "artifacts": "reading",
    "runs": "reading",
    "show": "reading",
    "tail": "reading",
    "logs": "reading",
    "answer": "answering",
    "stop": "steering",
    "resume": "steering",
    "cancel": "steering",
    "wake": "steering",
    "rm": "steering",
    "fork": "comparing",
    "diff": "comparing",
    "why": "comparing",
    "model": "models",
    "doctor": "doctor",
}


def find(name: str) -> Verb:
    """The verb of that name.

    Raises:
        CommandError: there is none; the message names the nearest, or all.
    """
    if name not in _MODULES:
        hint = did_you_mean(name, SUMMARIES) or f"There are {', '.join(SUMMARIES)}."
        raise CommandError("%loom", f"there is no verb {name!r}", hint)
    module = import_module(f"loom_kernel.notebook.verbs.{_MODULES[name]}")
    verb: Verb = module.VERBS[name]
    return verb


def overview() -> str:
    """What ``%loom`` alone prints."""
    width = max(map(len, SUMMARIES))
    lines = [f"  %loom {name.ljust(width)}  {summary}" for name, summary in SUMMARIES.items()]
    return "\n".join(["usage: %loom VERB ... (each with --help)", "", *lines])


def run(session: Session, line: str, cell: str | None = None) -> Any:
    """Do what was typed after ``%loom`` (or ``%%loom``, with the cell's text).

    Raises:
        LoomError: what is wrong, in a sentence.
    """
    command = "%loom" if cell is None else "%%loom"
    words = split(command, line)
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview())
        return None
    verb = find(words[0])
    parser = verb.parser(f"{command} {verb.name}")
    if cell is not None and not verb.takes_cell:
        raise CommandError(f"%%loom {verb.name}", "it takes no cell", f"Write it on one line: %loom {verb.name} ...")
    try:
        arguments = parser.read(words[1:])
    except HelpShown:
        return None
    arguments.command = parser.command
    arguments.cell = cell
    return verb.run(session, arguments)
