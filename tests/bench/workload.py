"""What every side measures, and how it hands its numbers over.

A side is a program: ``python side.py CASE FOLDER`` does the case once, with its data in FOLDER, and prints one JSON line
of seconds by name. A process of its own each time, so that nothing is warm that would not be.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

N = int(os.environ.get("LOOM_BENCH_STEPS", "1000"))

Case = Callable[[Path], dict[str, float]]


def main(cases: dict[str, Case]) -> None:
    """Run the case that the command line names."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    seconds = cases[name](folder)
    print(json.dumps(seconds), flush=True)


def die() -> None:
    """What a crash is: no handler, no flush, no goodbye."""
    os.kill(os.getpid(), signal.SIGKILL)
