"""Keeping and giving away: ``loom export``, ``loom gc`` and ``loom rm``."""

from __future__ import annotations

import argparse
import math
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from loom_kernel import events
from loom_kernel.agents.retention import prune
from loom_kernel.cli.runs import runtime
from loom_kernel.cli.table import ago, print_json, print_table
from loom_kernel.errors import LoomError
from loom_kernel.journal.abc import RunSummary
from loom_kernel.journal.keeping import spent
from loom_kernel.journal.sql_views import COLUMNS
from loom_kernel.views.words import plural

EXPORT_S = 3_600.0
SHOWN = 20
_UNITS = {"s": 1, "min": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}


def export(arguments: argparse.Namespace) -> int:
    """``loom export --parquet DIR``: a file for every documented view."""
    folder = Path(arguments.parquet)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LoomError(f"cannot write to {folder}: {error.strerror or error}") from None
    made = runtime()
    written = []
    for view in COLUMNS:
        target = folder / f"{view}.parquet"
        query = f'select * from "{view}"' + (" order by global_seq" if view == "events" else "")

        async def ask(query: str = query) -> Path:
            return await made.journal.query(query, timeout_s=EXPORT_S)

        result = made.loop.call(lambda ask=ask: made.on_loop(ask), "loom export", "")  # type: ignore[misc]
        try:
            shutil.move(result, target)
        except OSError as error:
            result.unlink(missing_ok=True)
            raise LoomError(f"cannot write {target}: {error.strerror or error}") from None
        written.append({"view": view, "file": str(target), "bytes": target.stat().st_size})
    if arguments.json:
        print_json(written)
    else:
        print_table(("view", "bytes", "file"), [(w["view"], w["bytes"], w["file"]) for w in written])
    return 0


def gc(arguments: argparse.Namespace) -> int:
    """``loom gc``: runs that ended for good long ago, and values that nothing refers to."""
    made = runtime()
    older_than_s = math.inf if arguments.older_than is None else arguments.older_than

    async def look() -> list[RunSummary]:
        return await made.journal.list_runs(roots_only=False)

    found = {run.run_id: run for run in made.loop.call(lambda: made.on_loop(look), "loom gc", "")}
    gone, kept = spent([_row(run) for run in found.values()], time.time() - older_than_s)
    if not arguments.json:
        _show(sorted((found[run_id] for run_id in gone), key=lambda run: run.updated_at), kept)
    if not arguments.dry_run and gone and not arguments.yes and not arguments.json and sys.stdin.isatty():
        print(f"Remove {plural(len(gone), 'run')} for good? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            print("nothing was removed", file=sys.stderr)
            return 1

    async def do() -> dict[str, int]:
        sweep = getattr(made.journal, "gc", None)
        if sweep is not None:
            report = await sweep(older_than_s, dry_run=arguments.dry_run)
            return {"runs": report.runs, "blobs": report.blobs, "bytes": report.bytes, "kept": report.kept}
        for run_id in () if arguments.dry_run else gone:  # an adapter's journal may have no values to sweep
            await made.journal.delete_run(run_id)  # type: ignore[arg-type]
        return {"runs": len(gone), "blobs": 0, "bytes": 0, "kept": kept}

    report = made.loop.call(lambda: made.on_loop(do), "loom gc", "")
    home = Path(made.settings.home().value)
    kept_runs = set(found) - set(gone)
    report["folders"] = len(prune(home / "runs", kept_runs, time.time(), dry_run=arguments.dry_run))
    if arguments.json:
        print_json({"dryRun": arguments.dry_run, **report, "runIds": gone})
    else:
        what = f"{plural(report['runs'], 'run')} and {plural(report['blobs'], 'value')} ({report['bytes'] / 2**20:.1f} MiB)"
        print(f"would remove {what}" if arguments.dry_run else f"removed {what}")
    return 0


def _row(run: RunSummary) -> tuple[Any, ...]:
    """As ``Tables.family`` gives it, by what can be known from outside."""
    header = run.header
    over = run.status in events.TERMINAL and not run.resumable
    return run.run_id, header.parent_run_id, header.root_run_id, header.forked_from, run.updated_at, over


def _show(gone: list[RunSummary], kept: int) -> None:
    if gone:
        rows = [(run.run_id, run.workflow, run.status, ago(run.updated_at / 1e6)) for run in gone[:SHOWN]]
        print_table(("run", "workflow", "status", "ended"), rows)
        if len(gone) > SHOWN:
            print(f"... and {len(gone) - SHOWN} more")
    if kept:
        print(f"{plural(kept, 'run')} as old as that can still resume, or belong to one that can, and stay")


def rm(arguments: argparse.Namespace) -> int:
    """``loom rm ID...``: runs and everything recorded of them."""
    made = runtime()
    for run_id in arguments.ids:
        run = made.get_run(run_id)
        run.delete()
        print(f"removed run {run.id} of {run.view.workflow}")
    return 0


def age(text: str) -> float:
    """``30d``, ``12h``, ``90min`` in seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|min|h|d|w)", text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no age; write a number and s, min, h, d or w, such as 30d")
    return float(found[1]) * _UNITS[found[2]]
