"""``make demo``: executes the tour without a person and prints what the journal says about it."""

from __future__ import annotations

import os
import sys
import time

import nbformat
from nbclient.exceptions import CellExecutionError
from notebook_files import NOTEBOOKS, ROOT, execute

import loom_kernel

STEPS = """
select name, status, coalesce(duration_s, 0) as seconds
from nodes where run_id = '{run}' order by started_at, node_id
"""
ANSWERS = "select message, answer, answered_by, waited_s from prompts where run_id = '{run}' order by opened_at"
TIMES = """
select name, count(*) as calls, round(sum(duration_s) * 1000, 1) as milliseconds
from nodes where run_id = '{run}' group by name order by milliseconds desc
"""


def main() -> int:
    tour = NOTEBOOKS / "tour.ipynb"
    since = time.time()
    print(f"Executing {tour.relative_to(ROOT)}, answered by notebooks/answers.yaml ...", flush=True)
    try:
        notebook = execute(tour, LOOM_ANSWERS=str(NOTEBOOKS / "answers.yaml"))
    except CellExecutionError as error:
        print(error, file=sys.stderr)
        return 1
    result = NOTEBOOKS / "out" / "tour.ipynb"
    result.parent.mkdir(exist_ok=True)
    nbformat.write(notebook, result)

    os.chdir(NOTEBOOKS)  # the journal of that folder
    recent = (
        f"select run_id, workflow, status, duration_s from runs where epoch(created_at) >= {since} order by created_at"
    )
    for run, workflow, status, seconds in loom_kernel.sql(recent).fetchall():
        print(f"\n{workflow}: {status} in {seconds:.2f} s")
        for name, state, took in loom_kernel.sql(STEPS.format(run=run)).fetchall():
            print(f"  {'✓' if state == 'completed' else '✗'} {name:<16} {state:<10} {took:8.3f} s")
        for message, answer, by, waited in loom_kernel.sql(ANSWERS.format(run=run)).fetchall():
            print(f"  ? {message}  →  {answer} ({by}, after {waited:.2f} s)")
        if workflow == "clean_weather":
            print("\n  How long did each step take?", *TIMES.format(run=run).strip().splitlines(), sep="\n    ")
            print(loom_kernel.sql(TIMES.format(run=run)))

    loom = os.path.relpath(os.path.join(sys.prefix, "bin", "loom"), ROOT)
    print(f"\nThe executed notebook: {result.relative_to(ROOT)}")
    print(f"Open the tour and answer it yourself: {loom} lab notebooks/tour.ipynb   (or: make lab)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
