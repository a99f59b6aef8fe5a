"""Git worktrees: a checkout of the same repository in another folder, to work in without touching the one you are in.

They isolate files, not the machine. Source: Atomic's ``gitWorktreeDir``, ``worktree`` and ``setupGitWorktree``.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from loom_kernel.errors import LoomError

TIMEOUT_S = 60.0
SYMLINKED = ("node_modules",)
INCLUDE = ".worktreeinclude"


class WorktreeError(LoomError):
    """A worktree cannot be had; one sentence, with the git command where one failed."""


@dataclass(frozen=True, kw_only=True)
class WorktreeSetup:
    """A worktree that is there.

    Args:
        worktree_root: its folder.
        cwd: where in it to work: the part of the repository that was asked from.
        repository_root: of the main checkout.
        created: it was not there before.
        branch: of a temporary one.
        base: the commit that it began at.
        linked: folders of the main checkout that are linked into it.
    """

    worktree_root: Path
    cwd: Path
    repository_root: Path
    created: bool
    branch: str | None = None
    base: str = ""
    linked: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Diff:
    """What was changed in a worktree since it began."""

    patch: str
    stat: str
    files_changed: int
    insertions: int
    deletions: int


def git(cwd: Path, *arguments: str, timeout_s: float = TIMEOUT_S, reads: bool = False) -> str:
    """What a git command prints. A command that only reads is tried once more where it took too long.

    Raises:
        WorktreeError: names the command, the folder, the time and what it said.
    """
    command = ["git", *arguments]
    for again in (reads, False):
        began = time.monotonic()
        try:
            done = subprocess.run(
                command, cwd=cwd, capture_output=True, text=True, timeout=timeout_s, check=False, stdin=subprocess.DEVNULL,
                env={**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            if again:
                continue
            raise WorktreeError(
                f"`{' '.join(command)}` in {cwd} took longer than {timeout_s:g} s and was killed"
            ) from None
        except OSError as error:
            raise WorktreeError(f"`{' '.join(command)}` in {cwd} could not be started: {error}") from None
        if done.returncode == 0:
            return done.stdout.strip()
        said = (done.stderr or done.stdout).strip().splitlines()
        took = time.monotonic() - began
        how = f"exit status {done.returncode}" if done.returncode > 0 else f"signal {-done.returncode}"
        raise WorktreeError(
            f"`{' '.join(command)}` in {cwd} failed after {took:.1f} s ({how}): {said[-1] if said else 'no reason given'}"
        )
    raise AssertionError("unreachable")


def roots(cwd: Path) -> tuple[Path, Path]:
    """The checkout that a folder is in, and the repository's main checkout.

    Raises:
        WorktreeError: the folder is in no repository.
    """
    try:
        here = Path(git(cwd, "rev-parse", "--show-toplevel", reads=True)).resolve()
    except WorktreeError as error:
        raise WorktreeError(f"{cwd} is in no git repository, so it has no worktrees ({error})") from None
    first = git(cwd, "worktree", "list", "--porcelain", reads=True).splitlines()[0]
    return here, Path(first.removeprefix("worktree ")).resolve()


def setup_git_worktree(
    *, git_worktree_dir: str | os.PathLike[str], base_branch: str | None = None, cwd: str | os.PathLike[str] = "."
) -> WorktreeSetup:
    """Make a reusable worktree, or check one that is there. Blocks; in a coroutine call it in a thread.

    Args:
        git_worktree_dir: its folder, outside of the checkout that ``cwd`` is in; relative to ``cwd``.
        base_branch: what a new one begins at; ``HEAD`` when left out or blank.
        cwd: where the caller works; the same place within the worktree is ``cwd`` of what comes back.

    Raises:
        WorktreeError: the folder is the checkout itself or in it, or something else than a worktree of this repository.
    """
    if not str(git_worktree_dir).strip():
        raise WorktreeError('git_worktree_dir="": a folder is needed')
    work = Path(cwd).resolve()
    here, main = roots(work)
    given = Path(git_worktree_dir).expanduser()
    target = given if given.is_absolute() else work / given
    # Where it really is, or will be: a parent that is a link may lead into the checkout.
    real = target.resolve()
    for checkout in {here, main}:
        if real == checkout or real.is_relative_to(checkout):
            raise WorktreeError(
                f"git_worktree_dir={str(git_worktree_dir)!r} is in the checkout {checkout}; give a folder outside of it"
            )
    created = False
    if not real.exists():
        git(main, "worktree", "add", "--detach", str(real), (base_branch or "").strip() or "HEAD")
        created = True
    else:
        known = [
            Path(line.removeprefix("worktree ")).resolve()
            for line in git(main, "worktree", "list", "--porcelain", reads=True).splitlines()
            if line.startswith("worktree ")
        ]
        if real not in known:
            raise WorktreeError(f"{real} is there and is no worktree of {main}; give another folder, or remove it")
    return WorktreeSetup(
        worktree_root=real,
        cwd=_within(real, here, work),
        repository_root=main,
        created=created,
        base=git(real, "rev-parse", "HEAD", reads=True),
    )


def _within(root: Path, checkout: Path, cwd: Path) -> Path:
    """The place in a worktree that a place in a checkout is."""
    inside = root / cwd.relative_to(checkout) if cwd.is_relative_to(checkout) else root
    return inside if inside.is_dir() else root


def remapped(setup: WorktreeSetup, asked_from: Path, cwd: Path | None) -> Path:
    """A stage's folder in its worktree: of the repository the same place, of the worktree as it is, relative ones from its cwd.

    Raises:
        WorktreeError: it leads out.
    """
    if cwd is None:
        return setup.cwd
    here, _ = roots(asked_from)
    if not cwd.is_absolute():
        found = (setup.cwd / cwd).resolve()
    elif cwd.resolve().is_relative_to(setup.worktree_root):
        found = cwd.resolve()
    elif cwd.resolve().is_relative_to(here):
        found = (setup.worktree_root / cwd.resolve().relative_to(here)).resolve()
    else:
        raise WorktreeError(f"cwd={str(cwd)!r} is neither in the repository nor in its worktree {setup.worktree_root}")
    if not found.is_relative_to(setup.worktree_root):
        raise WorktreeError(f"cwd={str(cwd)!r} leads out of the worktree {setup.worktree_root}")
    return found


@contextlib.contextmanager
def temporary_worktree(
    name: str, cwd: Path, *, base_branch: str | None = None, symlinked: Sequence[str] = SYMLINKED
) -> Iterator[WorktreeSetup]:
    """A worktree on a branch of its own, gone at the end, however that is. What a crash left of it is removed first.

    Args:
        name: of the folder ``.loom/worktrees/<name>`` and the branch ``worktree-<name>``; ``/`` becomes ``+``.
        base_branch: what it begins at; else the remote's default branch, else ``HEAD``.
        symlinked: folders of the main checkout that are linked into it, where they are not tracked.
    """
    here, main = roots(cwd)
    flat = re.sub(r"[^A-Za-z0-9._+-]+", "-", name.replace("/", "+")).strip("-.")
    root, branch = main / ".loom" / "worktrees" / flat, f"worktree-{flat}"
    _remove(main, root, branch)
    base = _base(main, base_branch)
    root.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    ignore = main / ".loom" / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n")
    try:
        git(main, "worktree", "add", "-b", branch, str(root), base)
        linked = _furnish(main, root, symlinked)
        yield WorktreeSetup(
            worktree_root=root,
            cwd=_within(root, here, cwd.resolve()),
            repository_root=main,
            created=True,
            branch=branch,
            base=git(root, "rev-parse", "HEAD", reads=True),
            linked=linked,
        )
    finally:
        _remove(main, root, branch)


def _base(main: Path, asked: str | None) -> str:
    if asked and asked.strip():
        return asked.strip()
    for reference in ("refs/remotes/origin/HEAD", "refs/remotes/origin/main", "refs/remotes/origin/master"):
        with contextlib.suppress(WorktreeError):
            return git(main, "rev-parse", "--verify", "--quiet", reference, reads=True)
    return "HEAD"


def _furnish(main: Path, root: Path, symlinked: Sequence[str]) -> tuple[str, ...]:
    """What a checkout has beside its tracked files: linked folders, and ignored files that ``.worktreeinclude`` names.
    Returns what was linked."""
    linked = []
    for name in symlinked:
        source, target = main / name, root / name
        if source.is_dir() and not target.exists():
            target.symlink_to(source, target_is_directory=True)
            linked.append(name)
    listed = main / INCLUDE
    if not listed.is_file():
        return tuple(linked)
    patterns = [line.strip() for line in listed.read_text().splitlines() if line.strip() and not line.startswith("#")]
    ignored = git(main, "ls-files", "--others", "--ignored", "--exclude-standard", reads=True).splitlines()
    for name in ignored:
        if any(fnmatch.fnmatch(name, p) or fnmatch.fnmatch(name.rpartition("/")[2], p) for p in patterns):
            target = root / name
            if not target.exists() and not (main / name).is_symlink():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(main / name, target)
    return tuple(linked)


def _remove(main: Path, root: Path, branch: str) -> None:
    if root.exists():
        with contextlib.suppress(WorktreeError):
            git(main, "worktree", "remove", "--force", "--force", str(root))
        shutil.rmtree(root, ignore_errors=True)
    with contextlib.suppress(WorktreeError):
        git(main, "worktree", "prune")
    with contextlib.suppress(WorktreeError):
        git(main, "branch", "-D", branch)


def diff(setup: WorktreeSetup) -> Diff | None:
    """What was changed in the worktree since it began, new files included; None for nothing."""
    root = setup.worktree_root
    ours = (".", *(f":(exclude){name}" for name in setup.linked))  # a link is no folder to .gitignore
    git(root, "add", "--all", "--intent-to-add", "--", *ours)
    patch = git(root, "diff", "--binary", setup.base)
    if not patch:
        return None
    files = insertions = deletions = 0
    for line in git(root, "diff", "--numstat", setup.base).splitlines():
        added, removed, _ = line.split("\t", 2)
        files += 1
        insertions += int(added) if added.isdigit() else 0
        deletions += int(removed) if removed.isdigit() else 0
    return Diff(
        patch=patch + "\n",
        stat=git(root, "diff", "--stat", setup.base),
        files_changed=files,
        insertions=insertions,
        deletions=deletions,
    )
