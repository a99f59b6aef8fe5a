"""What somebody who helps needs to know: versions, settings with their sources, the journal's state."""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import sys
from typing import Any

from loom_kernel._version import __version__
from loom_kernel.cli.table import print_json, print_table
from loom_kernel.errors import LoomError
from loom_kernel.settings import Settings

PACKAGES = (
    "ipykernel",
    "ipython",
    "jupyterlab",
    "anywidget",
    "duckdb",
    "pydantic",
    "msgspec",
    "pandas",
    "pyarrow",
    "polars",
)


def doctor(arguments: argparse.Namespace) -> int:
    """``loom doctor``: 0 when the journal's folder can be used, 1 otherwise."""
    settings = Settings()
    found = [{"name": s.name, "value": s.value, "source": s.source, "where": s.where} for s in settings.all()]
    versions = {"loom-kernel": __version__, "python": platform.python_version(), **_versions()}
    journal = _journal(settings)
    if arguments.json:
        print_json({"settings": found, "versions": versions, "journal": journal, "executable": sys.executable})
    else:
        print_table(
            ("setting", "value", "source", ""), [(s["name"], s["value"], s["source"], s["where"]) for s in found]
        )
        print()
        print_table(("package", "version"), versions.items())
        print()
        for name, value in journal.items():
            print(f"{name}: {value}")
    return 0 if journal["trouble"] is None else 1


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def _journal(settings: Settings) -> dict[str, Any]:
    """Looks, and starts nothing."""
    import os

    from loom_kernel.journal.hub.launch import hub_status

    home = settings.home().value
    parent = home if home.exists() else next((p for p in home.parents if p.exists()), home)
    trouble: str | None = None
    if not os.access(parent, os.W_OK | os.X_OK):
        trouble = f"{parent} is not writable; set LOOM_HOME to a folder that is"
    hub: Any = None
    try:
        hub = hub_status(home) if home.exists() else None
    except LoomError as error:
        trouble = str(error)
    running = "not running; the first that needs it starts it" if hub is None else f"running, pid {hub.get('pid', '?')}"
    return {"folder": str(home), "exists": home.exists(), "hub": running, "trouble": trouble}
