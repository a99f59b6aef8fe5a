"""``%loom stop``, ``resume``, ``cancel``, ``wake`` and ``rm``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from loom_kernel.errors import CommandError
from loom_kernel.notebook.arguments import Arguments, budget_arguments, budget_of, pairs, variable
from loom_kernel.notebook.verbs.base import UNFINISHED, Session, Verb, find_run, run_argument, the_only

if TYPE_CHECKING:
    from loom_kernel.runtime.run import Run

ACTIVE = ("pending", "running", "awaiting_input")
RESUMABLE = ("interrupted", "paused")


def _pick(session: Session, arguments: argparse.Namespace, status: tuple[str, ...], what: str) -> Run[Any]:
    if arguments.run is not None:
        return find_run(session, arguments.run)
    return the_only(session, arguments.command, status, what)


def _one(parser: Arguments) -> None:
    run_argument(parser, what="the only one that it can mean when left out")


def _stop(session: Session, arguments: argparse.Namespace) -> None:
    run = _pick(session, arguments, ACTIVE, "goes on")
    run.stop()
    print(f"{run.view.workflow} stops; %loom resume goes on from there")


def _cancel(session: Session, arguments: argparse.Namespace) -> None:
    run = _pick(session, arguments, UNFINISHED, "is unfinished")
    run.cancel(reason=arguments.reason or "")
    print(f"{run.view.workflow} is cancelled")


def _cancel_arguments(parser: Arguments) -> None:
    _one(parser)
    parser.add_argument("--reason", metavar="TEXT", help="why, for the record")


def _resume_arguments(parser: Arguments) -> None:
    _one(parser)
    parser.add_argument(
        "--accept", action="store_true", help="run what does not match the recorded history as new work"
    )
    parser.add_argument(
        "--take", action="store_true", help="take it from the worker that has it, although that one lives"
    )
    parser.add_argument(
        "--edited",
        action="store_true",
        help="run edited steps again, and what depends on them; shows the plan and asks first, unless --accept is given",
    )
    parser.add_argument("--recorded", action="store_true", help="with the body as it was recorded")
    parser.add_argument("--all", action="store_true", help="every interrupted run whose workflow is defined here")
    parser.add_argument("--wait", action="store_true", help="wait for its end")
    parser.add_argument(
        "--secret", action="append", default=[], metavar="NAME=$VAR", help="a secret input, which is not stored"
    )
    budget_arguments(parser)


def _resume(session: Session, arguments: argparse.Namespace) -> Any:
    if arguments.all:
        return _resume_all(session, arguments)
    if arguments.edited and arguments.recorded:
        raise CommandError(arguments.command, "--edited and --recorded exclude each other")
    run = _pick(session, arguments, RESUMABLE, "can be resumed")
    secrets = {
        key: variable(arguments.command, key, text, session.namespace)[0]
        for key, text in pairs(arguments.command, arguments.secret).items()
    }
    if arguments.edited:
        print(run.plan_edited(secrets=secrets or None))  # stays under the cell when the question is answered
    resumed = run.resume(
        accept=arguments.accept,
        take=arguments.take,
        secrets=secrets or None,
        edited=arguments.edited,
        recorded=arguments.recorded,
        budget=budget_of(arguments.command, arguments),
    )
    asks = arguments.edited and resumed.view.at_rest and resumed.view.reason == "needs_decision"
    if not asks and (arguments.wait or (session.host is not None and session.host.headless)):
        resumed.wait()
    return resumed


def _resume_all(session: Session, arguments: argparse.Namespace) -> Any:
    from loom_kernel.authoring.registry import registry

    if arguments.run is not None or arguments.secret or arguments.edited or arguments.recorded:
        raise CommandError(
            arguments.command, "--all takes neither a run nor secrets, and neither --edited nor --recorded"
        )
    found = session.runtime.runs(status=("interrupted",), limit=None)
    known = [run for run, s in zip(found, found.summaries, strict=True) if registry.has(s.workflow)]
    missing = sorted({s.workflow for s in found.summaries if not registry.has(s.workflow)})
    for run in known:
        run.resume(accept=arguments.accept)
    if missing:
        print(f"not resumed, since they are not defined here: {', '.join(missing)}")
    elif not known:
        print("no run was interrupted")
    return None


def _wake_arguments(parser: Arguments) -> None:
    _one(parser)
    parser.add_argument(
        "--id", action="append", default=[], metavar="ID", help="a sleep's correlation id; all when left out"
    )


def _wake(session: Session, arguments: argparse.Namespace) -> None:
    run = _pick(session, arguments, ACTIVE, "goes on")
    run.wake(arguments.id or None)


def _rm_arguments(parser: Arguments) -> None:
    run_argument(parser, required=True)


def _rm(session: Session, arguments: argparse.Namespace) -> None:
    run = find_run(session, arguments.run)
    name, run_id = run.workflow, run.id
    run.delete()
    print(f"removed run {run_id} of {name}")


VERBS = {
    "stop": Verb("stop", "Pause a run so that it can be resumed; finished steps are kept.", _one, _stop, ("run",)),
    "cancel": Verb("cancel", "End a run for good.", _cancel_arguments, _cancel, ("run",)),
    "resume": Verb(
        "resume", "Go on with a run that rests or was interrupted, here.", _resume_arguments, _resume, ("run",)
    ),
    "wake": Verb("wake", "End a run's sleeps early.", _wake_arguments, _wake, ("run",)),
    "rm": Verb("rm", "Remove a run and everything recorded of it.", _rm_arguments, _rm, ("run",)),
}
