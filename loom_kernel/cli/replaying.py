"""``loom replay``: recorded runs against the code as it is now."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from loom_kernel.authoring.registry import registry, workflow_names_equal
from loom_kernel.authoring.workflow import WorkflowDefinition
from loom_kernel.cli.files import load
from loom_kernel.cli.run import split_target
from loom_kernel.cli.runs import runtime
from loom_kernel.cli.table import print_json
from loom_kernel.engine.replaying import Replay
from loom_kernel.errors import LoomError
from loom_kernel.journal import histories
from loom_kernel.journal.abc import JournalEntry
from loom_kernel.runtime import replaying

EXIT_DIVERGED = 1


def replay(arguments: argparse.Namespace) -> int:
    """``loom replay RUN [FILE]`` and ``loom replay --all FILE...``."""
    if arguments.all:
        return _every(arguments)
    if arguments.limit is not None:
        raise LoomError("--limit goes with --all")
    first, *files = arguments.targets
    if len(files) > 1:
        raise LoomError("one run and one file; --all replays every run of several files")
    if Path(first).suffix == ".jsonl":
        if arguments.save:
            raise LoomError(f"{first} is a history file already")
        entries, blobs = histories.load(Path(first))
        _define(files, entries)
        report = replaying.replay_history(entries, blobs, registry.get)
    else:
        made = runtime()
        run = made.get_run(first)
        _define(files, run.events())
        if arguments.save:
            replaying.save(made, run.id, arguments.save)
        report = replaying.replay_run(made, run.id, registry.get(run.workflow))
    if arguments.json:
        print_json(report.to_json())
    else:
        print(report)
    return 0 if report.ok else EXIT_DIVERGED


def _every(arguments: argparse.Namespace) -> int:
    if arguments.save:
        raise LoomError("--save goes with one run")
    defined: dict[str, WorkflowDefinition[..., Any]] = {}
    for file in arguments.targets:
        defined.update({definition.name: definition for definition in load(split_target(file)[0])})
    made = runtime()
    reports: list[Replay] = []
    failed: list[dict[str, str]] = []
    for summary in made.runs(limit=arguments.limit).summaries:
        definition = next((d for name, d in defined.items() if workflow_names_equal(name, summary.workflow)), None)
        if definition is None:
            continue
        try:
            report = replaying.replay_run(made, summary.run_id, definition)
        except LoomError as error:
            failed.append({"runId": summary.run_id, "workflow": summary.workflow, "error": str(error)})
            if not arguments.json:
                print(f"{summary.workflow} {summary.run_id} cannot be replayed: {error}", flush=True)
            continue
        reports.append(report)
        if not arguments.json:
            print(report, flush=True)
    bad = [report for report in reports if not report.ok]
    if arguments.json:
        print_json({"runs": [report.to_json() for report in reports], "failed": failed})
    elif not reports and not failed:
        print("loom: the journal has no run of a workflow of these files", file=sys.stderr)
    else:
        print(f"{len(reports) - len(bad)} of {len(reports) + len(failed)} runs replay whole")
    return EXIT_DIVERGED if bad or failed else 0


def _define(files: list[str], entries: list[JournalEntry]) -> None:
    """Load the file, or the one here that the record says its calls were made in.

    Raises:
        LoomError: it names none that is here.
    """
    if files:
        load(split_target(files[0])[0])
        return
    for entry in entries:
        name = getattr(entry.event, "where", "").rpartition(", line ")[0]
        if name.endswith(".py") and Path(name).is_file():
            load(Path(name))
            return
    raise LoomError("say which file defines its workflow: loom replay RUN FILE")
