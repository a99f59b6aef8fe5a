"""How long the files of runs are kept: as long as their run, and those of none a month."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

WORKFLOW_ARTIFACT_RETENTION_MS = 30 * 24 * 3_600 * 1_000
"""Folders of runs that the journal does not know are kept so long, by when they were last changed."""


def prune(folder: Path, kept: Collection[str], now_s: float, *, dry_run: bool = False) -> list[str]:
    """Remove the folders of runs that are gone. A run that is there, however it ended, keeps its own.

    Args:
        folder: of all runs, ``.loom/runs``.
        kept: ids of the runs that stay in the journal.
        now_s: seconds since the epoch.
        dry_run: only say which.

    Returns:
        the ids whose folders went. Links are left alone.
    """
    gone = []
    oldest = now_s - WORKFLOW_ARTIFACT_RETENTION_MS / 1_000
    for place in sorted(folder.iterdir()) if folder.is_dir() else ():
        if place.name in kept or place.is_symlink() or not place.is_dir() or place.stat().st_mtime > oldest:
            continue
        gone.append(place.name)
        if not dry_run:
            shutil.rmtree(place, ignore_errors=True)
    return gone
