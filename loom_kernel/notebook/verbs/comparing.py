"""``%loom fork``, ``diff`` and ``why``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from loom_kernel.errors import CommandError
from loom_kernel.notebook.arguments import Arguments, pairs, variable, yaml_value
from loom_kernel.notebook.verbs.base import Session, Verb, find_run, newest_run, run_argument

if TYPE_CHECKING:
    from loom_kernel.runtime.looking import RunDiff
    from loom_kernel.runtime.run import Run
    from loom_kernel.views.why import Why


def _fork_arguments(parser: Arguments) -> None:
    run_argument(parser, required=True)
    parser.add_argument(
        "inputs", nargs="*", metavar="key=value", help="inputs to change; key=$name is a variable's value"
    )
    parser.add_argument(
        "--from",
        dest="node",
        metavar="NODE",
        help="run this node again, and all that came after it: its name, name#2, id, or child/name; "
        "without it every call with the same arguments is answered",
    )
    parser.add_argument(
        "--answer",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="another answer to a question, or one beforehand; repeat it for more",
    )
    parser.add_argument(
        "--secret", action="append", default=[], metavar="NAME=$VAR", help="a secret input, which is not stored"
    )
    parser.add_argument("--tag", action="append", metavar="T", help="a label instead of the run's; repeat it for more")
    parser.add_argument("--fresh", action="store_true", help="make a new run, whatever is unfinished")
    parser.add_argument("--wait", action="store_true", help="wait for its end")
    parser.add_argument("--quiet", action="store_true", help="show nothing")


def _fork(session: Session, arguments: argparse.Namespace) -> Any:
    run = find_run(session, arguments.run)
    forked = run.fork(
        arguments.node,
        inputs=_inputs(session, run, arguments),
        answers=_answers(session, arguments),
        secrets={
            key: variable(arguments.command, key, text, session.namespace)[0]
            for key, text in pairs(arguments.command, arguments.secret).items()
        },
        tags=tuple(arguments.tag) if arguments.tag is not None else None,
        fresh=arguments.fresh,
        show=not arguments.quiet,
    )
    if arguments.wait or (session.host is not None and session.host.headless):
        forked.wait()
    return forked


def _inputs(session: Session, run: Run[Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """Texts are read by the inputs' types, variables are taken as they are."""
    texts: dict[str, str] = {}
    values: dict[str, Any] = {}
    for key, text in pairs(arguments.command, arguments.inputs).items():
        value, is_variable = variable(arguments.command, key, text, session.namespace)
        (values if is_variable else texts)[key] = value
    if texts:
        definition = session.runtime.definition_of(run.workflow, run._definition)
        values.update(definition.parse_inputs(texts))
    return values


def _answers(session: Session, arguments: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for word in arguments.answer:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise CommandError(arguments.command, f"{word!r} is no answer; answers are written NAME=VALUE")
        value, is_variable = variable(arguments.command, name, text, session.namespace)
        found[name] = value if is_variable else _as_typed(arguments.command, value, name)
    return found


def _as_typed(command: str, text: str, name: str) -> Any:
    """A form's fields are YAML; every other question reads what was typed."""
    return yaml_value(command, text, f"the answer to {name!r}") if text.startswith("{") else text


def _diff_arguments(parser: Arguments) -> None:
    run_argument(parser, what="the newest fork when left out")
    parser.add_argument(
        "other", nargs="?", metavar="OTHER", help="another run; the one it was forked from when left out"
    )
    parser.add_argument("--node", metavar="NODE", help="of this call only: its arguments and results")
    parser.add_argument("--sql", action="store_true", help="print the query that tells the same")


def _diff(session: Session, arguments: argparse.Namespace) -> Any:
    found = _compared(session, arguments)
    if arguments.sql:
        print(found.sql)
        return None
    if arguments.node is not None:
        from loom_kernel.runtime.looking import of_node

        return of_node(found, arguments.node)
    return found


def _compared(session: Session, arguments: argparse.Namespace) -> RunDiff:
    if arguments.run is None:
        newest = session.runtime.runs(limit=100)
        forks = [run for run, s in zip(newest, newest.summaries, strict=True) if s.header.forked_from]
        if not forks:
            raise CommandError(arguments.command, "there is no fork yet; say which two runs: %loom diff RUN OTHER")
        return forks[0].diff()
    run = find_run(session, arguments.run)
    return run.diff(find_run(session, arguments.other)) if arguments.other is not None else run.diff()


def _why_arguments(parser: Arguments) -> None:
    run_argument(parser)
    parser.add_argument("node", nargs="?", metavar="NODE", help="one of its nodes: its name, name#2, id, or child/name")


def _why(session: Session, arguments: argparse.Namespace) -> Why:
    run = find_run(session, arguments.run) if arguments.run is not None else newest_run(session, arguments.command)
    try:
        return run.why(arguments.node)
    except KeyError as error:
        raise CommandError(arguments.command, str(error.args[0])) from None


VERBS = {
    "fork": Verb(
        "fork",
        "Start another run that begins with a run's records. That run stays as it is.",
        _fork_arguments,
        _fork,
        ("run", "run_input"),
    ),
    "diff": Verb(
        "diff",
        "Two runs beside each other: graph, inputs, results, texts, times and cost.",
        _diff_arguments,
        _diff,
        ("run", "other_run"),
    ),
    "why": Verb("why", "Why a run, or one of its nodes, is as it is.", _why_arguments, _why, ("run", "node")),
}
