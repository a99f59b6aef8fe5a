"""``%loom model``: which models there are, choosing one, fetching a local one, trying one."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from loom_kernel.errors import CommandError
from loom_kernel.notebook.arguments import Arguments
from loom_kernel.notebook.tables import Table
from loom_kernel.notebook.verbs.base import Session, Verb

WHAT = ("list", "use", "try", "pull")
SHOWN = 40


def _arguments(parser: Arguments) -> None:
    parser.add_argument("what", nargs="?", default="list", choices=WHAT, help="list (when left out), use, try or pull")
    parser.add_argument("words", nargs="*", metavar="WORD", help="a part of a name; a model; a model and a prompt")
    parser.add_argument("--all", action="store_true", help="list also models whose key is not here")


def _model(session: Session, arguments: argparse.Namespace) -> Any:
    from loom_kernel.agents import choosing

    runtime, words, command = session.runtime, list(arguments.words), arguments.command
    if arguments.what == "list":
        rows = choosing.rows(runtime.agents, " ".join(words), everything=arguments.all)
        empty = "no model can be asked here: set a provider's key, or %loom model use local/smollm2-135m"
        return Table(choosing.COLUMNS, rows[:SHOWN], len(rows), empty=empty)
    if arguments.what != "try" and len(words) != 1:
        raise CommandError(command, f"{arguments.what} takes one model", "`%loom model list` says which there are.")
    if arguments.what == "pull":
        print(choosing.pull(words[0], _progress(), offline=bool(runtime.settings.get("offline"))))
        return None
    if arguments.what == "use":
        runtime.configure(model=choosing.check(words[0]))
        print(f"stages that name no model use {words[0]} from now on, in this kernel")
        return None
    name, prompt = (words[0] if words else None), " ".join(words[1:]) or None
    tried = runtime.loop.call(lambda: choosing.attempt(runtime.agents, name, prompt), command, "")
    cost = "" if tried.cost_usd is None else f", ${tried.cost_usd:.6f}"
    print(tried.text)
    print(f"{tried.model}: {tried.seconds:.1f} s, {tried.input_tokens} tokens in, {tried.output_tokens} out{cost}")
    return None


def _progress() -> Any:
    """One line that changes."""
    told = -1

    def say(done: int, total: int, sentence: str) -> None:
        nonlocal told
        percent = done * 100 // total
        if percent != told:
            told = percent
            sys.stdout.write(
                f"\r{sentence}: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB" + ("\n" if done == total else "")
            )
            sys.stdout.flush()

    return say


VERBS = {
    "model": Verb(
        "model", "Which models there are; use one, try one, or fetch a local one.", _arguments, _model, ("model",)
    ),
}
