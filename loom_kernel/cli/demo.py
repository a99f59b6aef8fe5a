"""``loom demo``: the tour without a person, and what the journal says about it."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

from loom_kernel.cli.notebooks import TOUR, notebooks_folder
from loom_kernel.cli.table import print_table
from loom_kernel.errors import LoomError, RunFailed

TIMES = """
select name, count(*) as calls, round(sum(duration_s) * 1000, 1) as milliseconds
from nodes where run_id = '{run}' group by name order by milliseconds desc, name
"""


def demo(arguments: argparse.Namespace) -> int:
    """Execute the notebook, then print each run's nodes, answers and times."""
    tour = Path(arguments.notebook).resolve() if arguments.notebook else notebooks_folder() / TOUR
    answers = Path(arguments.answers).resolve() if arguments.answers else tour.parent / "answers.yaml"
    since = time.time()
    print(f"Executing {tour.name}, answered by {answers.name} ...", flush=True)
    result = execute(tour, answers)
    here = Path.cwd()
    loom = os.path.relpath(sys.argv[0]) if os.sep in sys.argv[0] else "loom"
    os.chdir(tour.parent)  # the journal of that folder
    tell(since)
    print(f"\nThe executed notebook: {os.path.relpath(result, here)}")
    print(f"Open the tour and answer it yourself: {loom} lab {os.path.relpath(tour, here)}")
    return 0


def execute(tour: Path, answers: Path) -> Path:
    """Run the notebook headless in its own folder; where its executed copy is.

    Raises:
        LoomError: nbclient is missing.
        RunFailed: a cell failed.
    """
    try:
        import nbformat
        from nbclient import NotebookClient
        from nbclient.exceptions import CellExecutionError
    except ImportError:
        raise LoomError("executing a notebook needs nbclient; `pip install 'loom-kernel[lab]'` brings it") from None
    # For the kernel only: this process asks no questions, and debugpy would print about frozen modules.
    env = {"PYDEVD_DISABLE_FILE_VALIDATION": "1", **os.environ}
    if answers.is_file():
        env["LOOM_ANSWERS"] = str(answers)
    notebook: Any = nbformat.read(tour, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        store_widget_state=False,
        extra_arguments=["--log-level=ERROR"],  # no warning about local sockets in the middle of the output
        resources={"metadata": {"path": str(tour.parent)}},
    )
    try:
        client.execute(env=env)
    except CellExecutionError as error:
        raise RunFailed(str(error)) from None
    result = tour.parent / "out" / tour.name
    result.parent.mkdir(exist_ok=True)
    nbformat.write(notebook, result)
    return result


def tell(since: float) -> None:
    """What the journal says about the runs made since then."""
    from loom_kernel.cli.runs import runtime

    loom = runtime()

    def rows(query: str) -> list[Any]:
        found: list[Any] = loom.sql(query, {}).fetchall()
        return found

    recent = (
        f"select run_id, workflow, status, duration_s from runs where epoch(created_at) >= {since} order by created_at"
    )
    for run, workflow, status, seconds in rows(recent):
        print(f"\n{workflow}: {status} in {seconds or 0:.2f} s")
        nodes = f"select name, status, duration_s from nodes where run_id = '{run}' order by started_at, node_id"
        for name, state, took in rows(nodes):
            print(f"  {'✓' if state == 'completed' else '✗'} {name:<16} {state:<10} {took or 0:8.3f} s")
        asked = f"select message, answer, answered_by, waited_s from prompts where run_id = '{run}' order by opened_at"
        for message, answer, by, waited in rows(asked):
            print(f"  ? {message}  →  {answer} (by {by or 'nobody'}, after {waited or 0:.2f} s)")
        print("\n  select name, count(*) as calls, ... from nodes group by name")
        print_table(("name", "calls", "milliseconds"), rows(TIMES.format(run=run)))
