"""Worktrees of real repositories: what is made, what is refused, what is left."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from loom_kernel import setup_git_worktree
from loom_kernel.project import worktrees
from loom_kernel.project.worktrees import WorktreeError, remapped, temporary_worktree


def git(folder: Path, *arguments: str) -> str:
    env = {
        **os.environ,
        "GIT_AUTHOR_NAME": "t",
        "GIT_AUTHOR_EMAIL": "t@t",
        "GIT_COMMITTER_NAME": "t",
        "GIT_COMMITTER_EMAIL": "t@t",
    }
    return subprocess.run(
        ["git", *arguments], cwd=folder, env=env, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """One commit, a folder, something ignored."""
    root = tmp_path / "repository"
    (root / "src").mkdir(parents=True)
    git(root, "init", "-q", "-b", "main")
    (root / "src" / "a.txt").write_text("one\n")
    (root / ".gitignore").write_text("secret.cfg\nnode_modules/\n.loom/\n")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "first")
    return root


def test_it_is_made_once_and_used_again(repository: Path, tmp_path: Path) -> None:
    """From the same place in it; the branch of the checkout is left alone."""
    made = setup_git_worktree(git_worktree_dir="../../other", cwd=repository / "src")
    assert (made.created, made.worktree_root, made.cwd) == (True, tmp_path / "other", tmp_path / "other" / "src")
    assert made.repository_root == repository
    assert made.cwd.joinpath("a.txt").read_text() == "one\n"
    again = setup_git_worktree(git_worktree_dir=tmp_path / "other", cwd=repository)
    assert (again.created, again.cwd) == (False, tmp_path / "other")
    inside = setup_git_worktree(git_worktree_dir=tmp_path / "third", cwd=tmp_path / "other" / "src")
    assert inside.repository_root == repository  # from the main checkout, also when asked from a linked one
    assert git(repository, "branch", "--show-current") == "main"


def test_what_cannot_be_a_worktree_is_refused(repository: Path, tmp_path: Path) -> None:
    """The checkout, a folder in it, a link that leads there, another folder, another repository, no repository, no name."""
    (tmp_path / "link").symlink_to(repository)
    (tmp_path / "plain").mkdir()
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    git(stranger, "init", "-q")
    for given, sentence in [
        (repository, "is in the checkout"),
        (repository / "sub", "is in the checkout"),
        (tmp_path / "link" / "sub", "is in the checkout"),
        (tmp_path / "plain", "is no worktree of"),
        (stranger, "is no worktree of"),
        ("", "a folder is needed"),
        (tmp_path / "new", "failed after"),
    ]:
        base = "no-such-branch" if given == tmp_path / "new" else None
        with pytest.raises(WorktreeError, match=sentence):
            setup_git_worktree(git_worktree_dir=given, base_branch=base, cwd=repository)
    with pytest.raises(WorktreeError, match="in no git repository"):
        setup_git_worktree(git_worktree_dir=tmp_path / "x", cwd=tmp_path / "plain")
    assert git(repository, "worktree", "list").count("\n") == 0


def test_an_error_names_the_command_and_how_it_ended(repository: Path) -> None:
    """Where, how long, with what status, in whose words."""
    with pytest.raises(
        WorktreeError, match=r"`git checkout nothing` in .*repository failed after \d+\.\d s \(exit status 1\): error"
    ):
        worktrees.git(repository, "checkout", "nothing")
    with pytest.raises(WorktreeError, match=r"took longer than 0\.2 s and was killed"):
        worktrees.git(repository, "-c", "alias.wait=!sleep 5", "wait", timeout_s=0.2)


def test_a_place_is_found_again_and_nothing_leads_out(repository: Path, tmp_path: Path) -> None:
    """Relative, within the repository, within the worktree; links and dots do not help."""
    setup = setup_git_worktree(git_worktree_dir=tmp_path / "w", cwd=repository)
    root = tmp_path / "w"
    (root / "out").symlink_to(tmp_path)
    assert remapped(setup, repository, None) == root
    assert remapped(setup, repository, Path("src")) == root / "src"
    assert remapped(setup, repository, repository / "src") == root / "src"
    assert remapped(setup, repository, root / "src") == root / "src"
    for wrong in (Path("../x"), Path("out"), Path("/etc")):
        with pytest.raises(WorktreeError, match=r"leads out|neither in the repository"):
            remapped(setup, repository, wrong)


def test_a_temporary_one_has_what_a_checkout_has_and_is_gone_afterwards(repository: Path) -> None:
    """A branch of its own, linked folders, ignored files that are named; also when something fails in it."""
    (repository / "node_modules").mkdir()
    (repository / "secret.cfg").write_text("s")
    (repository / ".worktreeinclude").write_text("# what we need\nsecret.*\nsrc/*\n")
    with temporary_worktree("run/stage", repository / "src") as setup:
        root = setup.worktree_root
        assert root == repository / ".loom" / "worktrees" / "run+stage"
        assert (setup.cwd, setup.branch) == (root / "src", "worktree-run+stage")
        assert git(root, "branch", "--show-current") == "worktree-run+stage"
        assert (root / "node_modules").is_symlink()
        assert (root / "secret.cfg").read_text() == "s"
        (root / "src" / "a.txt").write_text("two\n")
        (root / "new.txt").write_text("new\n")
        found = worktrees.diff(setup)
        assert found is not None
        assert (found.files_changed, found.insertions, found.deletions) == (2, 2, 1)
        assert "+two" in found.patch
        assert "new.txt" in found.stat
    assert not root.exists()
    assert git(repository, "branch", "--list", "worktree-*") == ""
    assert (repository / "src" / "a.txt").read_text() == "one\n"
    with pytest.raises(ValueError, match="oops"), temporary_worktree("again", repository):
        raise ValueError("oops")
    assert git(repository, "worktree", "list").count("\n") == 0


def test_what_a_crash_left_is_removed_first_and_a_wrong_base_leaves_nothing(repository: Path) -> None:
    """The folder, the branch, the entry."""
    manager = temporary_worktree("stage", repository)
    setup = manager.__enter__()
    (setup.worktree_root / "half.txt").write_text("x")
    with temporary_worktree("stage", repository) as again:
        assert not (again.worktree_root / "half.txt").exists()
    with pytest.raises(WorktreeError), temporary_worktree("bad", repository, base_branch="nothing"):
        pass
    assert git(repository, "branch", "--list", "worktree-*") == ""
    manager.__exit__(None, None, None)
