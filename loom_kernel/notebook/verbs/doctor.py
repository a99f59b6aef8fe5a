"""``%loom doctor``: what this kernel, its journal and its settings are like, each with where it comes from."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import time
from typing import Any

from loom_kernel._version import __version__
from loom_kernel.errors import LoomError
from loom_kernel.notebook.arguments import Arguments
from loom_kernel.notebook.tables import Table
from loom_kernel.notebook.verbs.base import Session, Verb

PACKAGES = ("ipykernel", "ipython", "anywidget", "duckdb", "jupyterlab", "pandas", "polars", "pyarrow")
_CLICKS = {
    "always": "at any time, also while a cell computes",
    "awaiting": "while a cell awaits, and between cells",
    "idle": "between cells",
}


def _arguments(parser: Arguments) -> None:
    """It takes none."""


def _doctor(session: Session, arguments: argparse.Namespace) -> Table:
    rows = [
        ["loom-kernel", __version__, ""],
        ["python", platform.python_version(), platform.platform(terse=True)],
        *_packages(),
        *_settings(session),
        *_journal(session),
        *_kernel(session),
    ]
    return Table(["what", "is", "from"], rows, len(rows))


def _packages() -> list[list[Any]]:
    rows = []
    for name in PACKAGES:
        try:
            rows.append([name, importlib.metadata.version(name), ""])
        except importlib.metadata.PackageNotFoundError:
            rows.append([name, "not installed", ""])
    return rows


def _settings(session: Session) -> list[list[Any]]:
    try:
        found = session.runtime.settings.all()
    except LoomError as error:
        return [["settings", str(error), ""]]
    return [
        [s.name, "" if s.value is None else str(s.value), f"{s.source}: {s.where}" if s.where else s.source]
        for s in found
    ]


def _journal(session: Session) -> list[list[Any]]:
    """Where the journal is and who serves it; nothing is opened or started for that."""
    from loom_kernel.journal.hub.launch import hub_status
    from loom_kernel.journal.hub.paths import network_file_system, read_info
    from loom_kernel.journal.selection import journal_home

    rows: list[list[Any]] = [["journal open here", session.runtime.is_open, ""]]
    try:
        home = journal_home(session.runtime.settings)
    except LoomError as error:
        return [*rows, ["journal", str(error), ""]]
    if home is None:
        return [*rows, *(_checks(session) if session.runtime.is_open else [])]
    if not home.is_dir():
        return [*rows, ["folder", "not made yet", str(home)]]
    if not os.access(home, os.W_OK | os.X_OK):
        rows.append(["folder", "not writable", str(home)])
    if (kind := network_file_system(home)) is not None:
        rows.append(["folder", f"on a network file system ({kind}); one machine at a time", str(home)])
    try:
        status = hub_status(home)
    except LoomError as error:
        return [*rows, ["hub", str(error), ""]]
    if status is None:
        return [*rows, ["hub", "not running; it starts with the first use", ""]]
    info = read_info(home)
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(status["started_at"]))
    rows.append(["hub", f"version {status['version']}, process {status['pid']}, since {since}", str(home / "hub.json")])
    rows.append(["hub clients", len(status["clients"]), info.address if info is not None else ""])
    return [*rows, *_checks(session)]


def _checks(session: Session) -> list[list[Any]]:
    """Is the journal whole, and does anything in it wait for somebody?"""
    from loom_kernel.runtime.checks import check

    runtime = session.runtime
    try:
        found = runtime.loop.call(lambda: runtime.on_loop(lambda: check(runtime)), "%loom doctor", "")
    except LoomError as error:
        return [["journal", str(error), ""]]
    return [
        [finding.name, finding.line, "" if finding.ok else "broken" if finding.broken else "look"] for finding in found
    ]


def _kernel(session: Session) -> list[list[Any]]:
    host = session.host
    if host is None:
        return [["display", "none: this is not a Jupyter kernel", ""]]
    place = host.place()
    return [
        ["notebook", place.notebook or "not known", ""],
        ["cell", "by its id" if place.cell and not place.cell.startswith("source:") else "by its source", ""],
        ["somebody to answer", not place.headless, "the front end takes input" if not place.headless else "headless"],
        ["display", "pictures" if place.headless or host.static else "live views", ""],
        ["clicks arrive", _CLICKS[host.tap.reach], "this version of ipykernel"],
    ]


VERBS = {
    "doctor": Verb(
        "doctor",
        "What this kernel, its journal and its settings are like, and where each comes from.",
        _arguments,
        _doctor,
    )
}
