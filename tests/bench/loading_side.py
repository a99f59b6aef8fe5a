"""IPython's start, bare and with ``%load_ext loom_kernel``."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from workload import main


def ipython(folder: Path, line: str) -> float:
    """Seconds from nothing to an IPython that executed one line and ended."""
    command = [sys.executable, "-m", "IPython", "--no-banner", "--quick", "--colors=nocolor", "-c", line]
    env = {**os.environ, "IPYTHONDIR": str(folder)}
    start = time.perf_counter()
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    took = time.perf_counter() - start
    assert "Error" not in done.stdout + done.stderr, done.stdout + done.stderr
    return took


def load(folder: Path) -> dict[str, float]:
    ipython(folder, "pass")  # the profile folder is there
    return {"bare": ipython(folder, "pass"), "load_ext": ipython(folder, "%load_ext loom_kernel")}


if __name__ == "__main__":
    main({"load": load})
