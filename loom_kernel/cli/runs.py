"""Reading runs and steering them from outside: the journal's verbs, which execute nothing."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from loom_kernel.cli.table import ago, print_csv, print_json, print_table
from loom_kernel.errors import LoomError
from loom_kernel.journal.abc import RunSummary
from loom_kernel.runtime import Run, Runtime, ScriptHost, get_runtime
from loom_kernel.runtime.runs import inputs_words, shown_status
from loom_kernel.views import text, words
from loom_kernel.views.snapshot import notice


def runtime() -> Runtime:
    """The runtime of this process, with a terminal as its host."""
    made = get_runtime()
    made.host = ScriptHost("cli")
    return made


def runs(arguments: argparse.Namespace) -> int:
    """``loom runs``."""
    found = runtime().runs(
        status=arguments.status,
        workflow=arguments.workflow,
        key=arguments.key,
        tag=arguments.tag,
        limit=arguments.limit,
    )
    if arguments.json:
        print_json([summary_json(s) for s in found.summaries])
    elif not found:
        print("no runs")
    else:
        rows = [
            (s.run_id, s.workflow, shown_status(s), ago(s.created_at / 1e6), inputs_words(s)) for s in found.summaries
        ]
        print_table(("run", "workflow", "status", "started", "inputs"), rows)
    return 0


def summary_json(summary: RunSummary) -> dict[str, Any]:
    """A run in one row, as JSON."""
    header = summary.header
    return {
        "runId": summary.run_id,
        "workflow": summary.workflow,
        "status": shown_status(summary),
        "reason": summary.reason,
        "key": header.key,
        "tags": header.tags,
        "notebook": header.notebook,
        "openPrompts": summary.open_prompts,
        "createdAt": summary.created_at / 1e6,
        "updatedAt": summary.updated_at / 1e6,
    }


def show(arguments: argparse.Namespace) -> int:
    """``loom show ID``."""
    run = runtime().get_run(arguments.id)
    if arguments.at is not None:
        return show_at(run, arguments)
    if arguments.json:
        print_json(run.snapshot())
        return 0
    view = run.view
    print(f"{view.workflow}  {run.id}  {words.status_words(view)}  {ago(view.created_at)}")
    rows = []
    for node_id in view.order:
        node = view.nodes[node_id]
        took = words.duration(node.duration_s) if node.duration_s is not None else ""
        rows.append((words.GLYPHS.get(node.status, "?"), node.label, node.status, took, node.attempts or ""))
    if rows:
        print_table(("", "node", "status", "time", "attempts"), rows)
    for prompt in view.open_prompts:
        print(f"\n{prompt.message}\n  loom answer {run.id} {prompt.prompt} VALUE")
    # The lines below the nodes: the failure, why it rests, or who has it.
    lines = text.plain(view).splitlines()
    if view.at_rest and view.status != "completed" and len(lines) > 1:
        print(f"\n{lines[-1].strip()}")
    elif not view.at_rest and (sentence := notice(view)):
        print(f"\n{sentence}")
    return 0


def show_at(run: Run[Any], arguments: argparse.Namespace) -> int:
    """``loom show ID --at TIME``."""
    from loom_kernel.views.snapshot import snapshot

    then = run.at(arguments.at)
    if arguments.json:
        print_json(snapshot(then.view, then.time))
    else:
        print(text.plain(then.view))
    return 0


def answer(arguments: argparse.Namespace) -> int:
    """``loom answer ID [PROMPT] VALUE``."""
    run = runtime().get_run(arguments.id)
    given = arguments.words
    if len(given) > 2:
        raise LoomError('an answer of several words stands in quotes: loom answer ID PROMPT "two words"')
    prompt = given[0] if len(given) == 2 else None
    run.answer(given[-1], prompt=prompt)
    print("answered")
    return 0


def stop(arguments: argparse.Namespace) -> int:
    """``loom stop ID``."""
    runtime().get_run(arguments.id).stop()
    print("asked to stop; finished steps are kept")
    return 0


def cancel(arguments: argparse.Namespace) -> int:
    """``loom cancel ID``."""
    run = runtime().get_run(arguments.id)
    run.cancel(reason=arguments.reason)
    print("cancelled" if run.status == "cancelled" else "asked to cancel")
    return 0


def sql(arguments: argparse.Namespace) -> int:
    """``loom sql QUERY``."""
    if arguments.csv and arguments.json:
        raise LoomError("--csv and --json are two forms of one answer; choose one")
    query = sys.stdin.read() if arguments.query == "-" else arguments.query
    relation = runtime().sql(query, {})
    columns = list(relation.columns)
    limit = arguments.limit or (None if arguments.csv else 100)
    rows = relation.fetchall() if limit is None else relation.limit(limit + 1).fetchall()
    more = limit is not None and len(rows) > limit
    rows = rows[:limit]
    if arguments.csv:
        print_csv(columns, rows)
    elif arguments.json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(columns, rows)
    if more:
        print(f"... more than {limit} rows; --limit shows more", file=sys.stderr)
    return 0
