"""One line at ``%load_ext`` about runs that broke off, where that costs nothing: a hub is running already."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def report() -> str:
    """``2 runs were interrupted ...``, or nothing. Starts no hub, and loads nothing where none runs."""
    home = _hub_home()
    if home is None:
        return ""
    from loom_kernel.runtime import get_runtime

    try:
        found = get_runtime().runs(status=("interrupted",), limit=100)
    except Exception:  # loading must not fail for the sake of a hint; the first real use says what is wrong
        return ""
    if not found:
        return ""
    names = list(dict.fromkeys(s.workflow for s in found.summaries))
    listed = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    if len(found) == 1:
        return f"1 run was interrupted ({listed}): run its cell again, or %loom resume"
    return f"{len(found)} runs were interrupted ({listed}): run their cells again, or %loom resume --all"


def _hub_home() -> Path | None:
    """The project's ``.loom`` folder if a hub of this machine says that it serves it."""
    from loom_kernel.settings import Settings

    if os.environ.get("LOOM_TEST") or os.environ.get("LOOM_JOURNAL"):
        return None
    try:
        home = Path(Settings().home().value)
        text = (home / "hub.json").read_text()
    except Exception:
        return None
    import json

    try:
        info = json.loads(text)
        if info["host"] != socket.gethostname():
            return None
        os.kill(int(info["pid"]), 0)
    except (KeyError, ValueError, OSError):
        return None
    return home
