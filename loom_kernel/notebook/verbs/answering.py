"""``%loom answer``: the open questions of the project, and answers to them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from loom_kernel.errors import AnswerError, CommandError, UnknownRunError
from loom_kernel.notebook.arguments import Arguments, variable, yaml_value
from loom_kernel.notebook.tables import Table
from loom_kernel.notebook.verbs.base import Session, Verb, find_run

if TYPE_CHECKING:
    from loom_kernel.runtime.run import Run
    from loom_kernel.views.node import PromptView

ASKING = ("awaiting_input", "interrupted", "running", "pending")


def _arguments(parser: Arguments) -> None:
    parser.add_argument(
        "words", nargs="*", metavar="[[RUN] PROMPT] VALUE", help="without any, the open questions are listed"
    )
    parser.add_argument("--run", metavar="RUN", help="an id or its beginning, a variable, or a workflow's name")
    parser.add_argument("--prompt", metavar="NAME", help="the question: go, go#2 or its id")


def _answer(session: Session, arguments: argparse.Namespace) -> Any:
    command: str = arguments.command
    run_text, name, text = _sort(command, arguments)
    run = find_run(session, run_text) if run_text is not None else None
    if text is None:
        return _listed(open_questions(session, run))
    asked = open_questions(session, run)
    matching = [(r, p) for r, p in asked if name in (None, p.prompt, p.node_id)]
    if len(matching) > 1:
        listed = ", ".join(f"{r.id} {p.prompt}" for r, p in matching)
        raise CommandError(command, f"{len(matching)} questions could be meant", f"Say which: {listed}.")
    if not matching:
        if run is None and name is not None and (held := _as_run(session, name)) is not None:
            # Two words are a question and its answer; where the first names a run instead, its only question is meant.
            arguments.words, arguments.run = [text], name
            return _answer(session, arguments) if held else None
        if run is None or name is None:
            there = ", ".join(f"{p.prompt} (of {r.view.workflow})" for r, p in asked)
            meant = f"no question {name!r} is open" if name is not None else "no question is open"
            raise AnswerError(f"{meant}. " + (f"Open are: {there}." if there else "`%loom runs` lists what goes on."))
        value, _ = variable(command, name, text, session.namespace)
        run.answer(value, prompt=name)
        return None
    found, prompt = matching[0]
    found.answer(_value(command, session, prompt, text), prompt=prompt.node_id)
    return None


def _sort(command: str, arguments: argparse.Namespace) -> tuple[str | None, str | None, str | None]:
    """Run, question and value, of up to three words and the two options."""
    words = list(arguments.words)
    text = words.pop() if words else None
    name = arguments.prompt if arguments.prompt is not None else words.pop() if words else None
    run = arguments.run if arguments.run is not None else words.pop() if words else None
    if words:
        raise CommandError(
            command, f"{words[0]!r} is one word too many", "An answer of several words stands in quotes."
        )
    return run, name, text


def _as_run(session: Session, text: str) -> Run[Any] | None:
    try:
        return find_run(session, text)
    except UnknownRunError:
        return None


def open_questions(session: Session, run: Run[Any] | None = None) -> list[tuple[Run[Any], PromptView]]:
    """The open questions of one run or of the project, each with the run to answer it through."""
    runs = [run] if run is not None else list(session.runtime.runs(status=ASKING, limit=None))
    return [(r, prompt) for r in runs for prompt in r.prompts()]


def _value(command: str, session: Session, prompt: PromptView, text: str) -> Any:
    value, is_variable = variable(command, prompt.prompt, text, session.namespace)
    if is_variable or prompt.kind != "form":
        return value
    return yaml_value(command, value, f"the answer to {prompt.prompt!r}")


def _listed(asked: list[tuple[Run[Any], PromptView]]) -> Table:
    from loom_kernel.views.snapshot import hint

    rows = [[r.id, r.view.workflow, p.prompt, p.message, hint(p)] for r, p in asked]
    return Table(["run", "workflow", "prompt", "question", "answer with"], rows, len(rows), "no question is open")


VERBS = {
    "answer": Verb(
        "answer",
        "Answer an open question. One word is the value for the only open question; two are question and value;\n"
        "three are run, question and value. Without words the open questions are listed.",
        _arguments,
        _answer,
        offers=("prompt", "run"),
    )
}
