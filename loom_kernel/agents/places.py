"""Where a stage works: its folder, a worktree that stages share, or one of its own that is gone afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from loom_kernel.agents import output
from loom_kernel.agents.spec import Spec
from loom_kernel.authoring.agents import Artifact
from loom_kernel.engine.stages import Turn
from loom_kernel.project import worktrees


@dataclasses.dataclass
class Place:
    """A stage's folder while it is at work.

    Attributes:
        artifacts: files that are made before the folder goes.
    """

    cwd: Path
    setup: worktrees.WorktreeSetup | None = None
    keep_in: Path | None = None

    def diff_of(self, stage: str) -> tuple[Artifact, ...]:
        """What the stage changed in its worktree, as a file; of a temporary one it is all that stays."""
        if self.setup is None or self.keep_in is None:
            return ()
        found = worktrees.diff(self.setup)
        if found is None:
            return ()
        path = self.keep_in / f"{output.safe(stage)}.patch"
        output.write(path, found.patch)
        about: dict[str, Any] = {
            "path": str(path),
            "task_name": stage,
            "branch": self.setup.branch,
            "diff_stat": found.stat,
            "files_changed": found.files_changed,
            "insertions": found.insertions,
            "deletions": found.deletions,
        }
        return (Artifact(kind="patch", **about),)


@contextlib.asynccontextmanager
async def place_of(
    turn: Turn,
    spec: Spec,
    name: str,
    default_dir: str | None,
    default_base: str | None,
    keep_in: Path | None,
    symlinked: Sequence[str],
) -> AsyncIterator[Place]:
    """The stage's place.

    Args:
        name: of a temporary worktree.
        default_dir, default_base: of the workflow's inputs, where it takes its worktree from them.
        keep_in: the folder of the run's files.
        symlinked: folders that a temporary worktree shares with the main checkout.

    Raises:
        WorktreeError: it cannot be had.
    """
    start = turn.started_in
    asked = spec.git_worktree_dir if spec.git_worktree_dir is not None else default_dir
    if spec.worktree:
        manager = worktrees.temporary_worktree(name, start, base_branch=spec.base_branch, symlinked=symlinked)
        setup = await asyncio.to_thread(manager.__enter__)
        try:
            yield Place(worktrees.remapped(setup, start, spec.cwd), setup, keep_in)
        finally:
            await asyncio.shield(asyncio.to_thread(manager.__exit__, None, None, None))
    elif asked:
        base = spec.base_branch or default_base
        setup = await asyncio.to_thread(
            worktrees.setup_git_worktree, git_worktree_dir=asked, base_branch=base, cwd=start
        )
        yield Place(worktrees.remapped(setup, start, spec.cwd), setup, keep_in)
    else:
        yield Place(start / spec.cwd if spec.cwd is not None else start)
