"""What somebody who helps needs to know: versions, settings with their sources, the journal's state."""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import sys
from typing import Any

from loom_kernel._version import __version__
from loom_kernel.cli.runs import runtime
from loom_kernel.cli.table import print_json, print_table
from loom_kernel.errors import LoomError
from loom_kernel.journal.selection import FILE, journal_home
from loom_kernel.runtime.checks import Finding, check
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
    """``loom doctor``: 0 when the journal can be used and is whole, 1 otherwise."""
    settings = runtime().settings
    found = [{"name": s.name, "value": s.value, "source": s.source, "where": s.where} for s in settings.all()]
    versions = {"loom-kernel": __version__, "python": platform.python_version(), **_versions()}
    journal = _journal(settings)
    findings = _checks(journal)
    if arguments.json:
        checked = [{"check": f.name, "ok": f.ok, "broken": f.broken, "text": f.line} for f in findings]
        print_json(
            {
                "settings": found,
                "versions": versions,
                "journal": journal,
                "checks": checked,
                "executable": sys.executable,
            }
        )
    else:
        print_table(
            ("setting", "value", "source", ""), [(s["name"], s["value"], s["source"], s["where"]) for s in found]
        )
        print()
        print_table(("package", "version"), versions.items())
        print()
        for name, value in journal.items():
            print(f"{name}: {value}")
        for finding in findings:
            print(f"{'✓' if finding.ok else '✗' if finding.broken else '!'} {finding.name}: {finding.line}")
    return 1 if journal["trouble"] is not None or any(finding.broken for finding in findings) else 0


def _checks(journal: dict[str, Any]) -> list[Finding]:
    """The journal's own state; one that is not there yet, or cannot be used, has none."""
    if journal["trouble"] is not None or not journal["exists"]:
        return []
    made = runtime()
    found: list[Finding] = made.loop.call(lambda: made.on_loop(lambda: check(made)), "loom doctor", "")
    return found


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def _journal(settings: Settings) -> dict[str, Any]:
    """Where it is and who serves it; nothing is started for that."""
    import os

    from loom_kernel.journal.hub.launch import hub_status

    try:
        home = journal_home(settings)
    except LoomError as error:
        return {"folder": None, "exists": False, "hub": None, "trouble": str(error)}
    if home is None:
        in_memory = settings.get("journal") == "memory"
        return {"folder": None, "exists": not in_memory, "hub": None, "trouble": None}
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
    exists = (home / FILE).exists()
    return {"folder": str(home), "exists": exists, "hub": running, "trouble": trouble}
