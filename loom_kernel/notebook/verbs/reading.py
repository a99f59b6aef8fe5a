"""``%loom runs``, ``show``, ``tail``, ``logs`` and ``artifacts``."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from loom_kernel.notebook.arguments import Arguments
from loom_kernel.notebook.tables import Table
from loom_kernel.notebook.verbs.base import Session, Verb, find_run, newest_run, run_argument

if TYPE_CHECKING:
    from loom_kernel.runtime.run import Run


def _runs_arguments(parser: Arguments) -> None:
    parser.add_argument("workflow", nargs="?", metavar="WORKFLOW", help="of this workflow only")
    parser.add_argument(
        "--status", action="append", metavar="S", help="in this status only, e.g. interrupted; repeatable"
    )
    parser.add_argument("--key", metavar="K", help="with this key only")
    parser.add_argument("--tag", metavar="T", help="with this tag only")
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="at most so many, 20 when left out")


def _runs(session: Session, arguments: argparse.Namespace) -> Table:
    from loom_kernel.runtime.runs import inputs_words, shown_status

    found = session.runtime.runs(
        status=tuple(arguments.status) if arguments.status else None,
        workflow=arguments.workflow,
        key=arguments.key,
        tag=arguments.tag,
        limit=arguments.limit,
    )
    rows = [
        [s.run_id, s.workflow, shown_status(s), inputs_words(s), _when(s.created_at), s.header.notebook or ""]
        for s in found.summaries
    ]
    return Table(["run", "workflow", "status", "inputs", "started", "notebook"], rows, len(rows), "no runs yet")


def _when(created_at: int) -> str:
    """A moment in the reader's zone. ``created_at``: microseconds since the epoch."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(created_at / 1e6))


def _one(parser: Arguments) -> None:
    run_argument(parser)


def _pick(session: Session, arguments: argparse.Namespace) -> Run[Any]:
    if arguments.run is not None:
        return find_run(session, arguments.run)
    return newest_run(session, arguments.command)


def _show_arguments(parser: Arguments) -> None:
    run_argument(parser)
    parser.add_argument("--picture", action="store_true", help="the picture that is saved, instead of a live view")
    parser.add_argument("--at", metavar="TIME", help="as it was then: 14:03, 14:03:20, or '2026-05-01 14:03:20'")


def _show(session: Session, arguments: argparse.Namespace) -> Any:
    """A finished run that a person asks to see stays a live view, so that they can look inside it."""
    run = _pick(session, arguments)
    if arguments.at is not None:
        return run.at(arguments.at)
    _ = run.status  # brings its view up to date
    host = session.host
    if host is not None and not (host.headless or host.static or arguments.picture):
        host.show(run, stays=run.view.ended)
    return run


def _logs_arguments(parser: Arguments) -> None:
    run_argument(parser)
    parser.add_argument("node", nargs="?", metavar="NODE", help="of this step only: its name, name#2 or id")


def _logs(session: Session, arguments: argparse.Namespace) -> None:
    from loom_kernel.runtime.nodes import NodeGroup

    run = _pick(session, arguments)
    _ = run.status
    view = run.view
    nodes = [view.nodes[node_id] for node_id in list(view.order)]
    if arguments.node is not None:
        found = run[arguments.node]
        wanted = {node.id for node in (found if isinstance(found, NodeGroup) else [found])}
        nodes = [node for node in nodes if node.node_id in wanted]
    for node in nodes:
        for line in list(node.log):
            print(f"{node.name} | {line}" if arguments.node is None else line)


def _artifacts_arguments(parser: Arguments) -> None:
    run_argument(parser, what="of all runs when left out")
    parser.add_argument("--limit", type=int, default=50, metavar="N", help="at most so many, 50 when left out")


def _artifacts(session: Session, arguments: argparse.Namespace) -> Table:
    """The newest first; a table among them is ``from artifact('NAME')`` in SQL."""
    one = "" if arguments.run is None else "where run_id = $run"
    relation = session.runtime.sql(
        f"select name, revision, kind, size_bytes, run_id as run, created_at as created from artifacts {one} "
        "order by artifacts.created_at desc, global_seq desc",
        parameters=None if arguments.run is None else {"run": find_run(session, arguments.run).id},
    )
    rows = [list(row) for row in relation.limit(arguments.limit + 1).fetchall()]
    total = len(rows) if len(rows) <= arguments.limit else None
    return Table(relation.columns, rows[: arguments.limit], total, "nothing is kept yet")


def _tail(session: Session, arguments: argparse.Namespace) -> None:
    run = _pick(session, arguments)
    _ = run.status
    teller = Teller(run)
    if session.host is not None and session.host.headless:
        for entry in run.events():  # nobody is there to end it, so only what there is
            teller.tell(entry)
        return
    try:
        for entry in run.follow():
            teller.tell(entry)
    except KeyboardInterrupt:
        print("stopped following; the run goes on")


class Teller:
    """Says in one line each what happens to a run."""

    def __init__(self, run: Run[Any]) -> None:
        self._run = run

    def tell(self, entry: Any) -> None:
        """Print the lines of one event, where it has something to say to people."""
        text = self._words(entry.type, entry.event, entry.node_id or "")
        if text:
            clock = time.strftime("%H:%M:%S", time.localtime(entry.created_at / 1e6))
            for line in text.splitlines():
                print(f"{clock}  {line}")

    def _words(self, kind: str, event: Any, node_id: str) -> str:
        from loom_kernel.views.node import split_node_id

        name = split_node_id(node_id).name
        match kind:
            case "run.started":
                return f"{self._run.view.workflow}: {'resumed' if event.resumed else 'started'}"
            case "run.paused":
                return f"paused: {event.message or event.reason}"
            case "run.ended":
                return event.status + (f": {event.error.message}" if event.error else "")
            case "node.started":
                return f"{name}: started" + (f", attempt {event.attempt}" if event.attempt > 1 else "")
            case "node.retrying":
                return f"{name}: attempt {event.attempt} failed, again in {event.delay_s:.3g} s: {event.error.message}"
            case "node.completed":
                return f"{name}: answered by {event.answered_by}" if event.answered_by else f"{name}: completed"
            case "node.failed":
                return f"{name}: failed: {event.error.message}"
            case "node.cancelled":
                return f"{name}: cancelled"
            case "node.logged":
                return "\n".join(f"{name} | {line}" for line in event.lines)
            case "prompt.opened":
                return f"{event.prompt}? {event.message}"
            case _:
                return ""


VERBS = {
    "runs": Verb("runs", "List runs, the newest first.", _runs_arguments, _runs, ("workflow",)),
    "show": Verb("show", "Show a run under this cell.", _show_arguments, _show, ("run",)),
    "tail": Verb("tail", "Follow what a run does, line by line, until it rests.", _one, _tail, ("run",)),
    "artifacts": Verb(
        "artifacts",
        "Tables, figures and values that runs kept, the newest first. In SQL: from artifact('NAME').",
        _artifacts_arguments,
        _artifacts,
        ("run",),
    ),
    "logs": Verb("logs", "What a run's steps printed.", _logs_arguments, _logs, ("run",)),
}
