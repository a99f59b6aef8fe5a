"""Stages that work in worktrees: where their tools are, what stays, where a workflow takes it from."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from loom_kernel.agents.scripted import script
from loom_kernel.authoring.context import Context
from loom_kernel.authoring.workflow import define
from loom_kernel.errors import DefinitionError
from tests.agents.harness import ModelWorld
from tests.engine.harness import rest
from tests.project.test_worktrees import git, repository  # noqa: F401 - a fixture

EDIT = {"tool": {"name": "edit", "arguments": {"path": "src/a.txt", "old": "one", "new": "two"}}}


def run(body: Any, replies: list[Any], tmp_path: Path, **inputs: Any) -> Any:
    async def main() -> Any:
        world = ModelWorld(folder=lambda: tmp_path / "runs")
        with script("demo", replies):
            result = await rest(await world.start(body, **inputs), 60)
        await world.close()
        return result

    return asyncio.run(main())


@pytest.fixture
def here(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Path:  # noqa: F811
    """A process that works in the repository."""
    monkeypatch.chdir(repository)
    return repository


def test_a_task_works_in_a_worktree_of_its_own_and_leaves_a_patch(here: Path, tmp_path: Path) -> None:
    """The checkout is as it was; the worktree and its branch are gone; the output was saved before."""

    async def body(ctx: Context) -> Any:
        return await ctx.task(
            "fix it", prompt="go", worktree=True, tools=["edits"], approval="never", output="notes.md"
        )

    result = run(body, [EDIT, "changed it"], tmp_path)
    assert result.status == "completed", result
    output, session, patch = result.result.artifacts
    assert [a.kind for a in (output, session, patch)] == ["output", "session", "patch"]
    assert (patch.files_changed, patch.insertions, patch.deletions) == (1, 1, 1)
    assert patch.branch.startswith("worktree-")
    assert "+two" in Path(patch.path).read_text()
    assert Path(output.path).read_text() == "changed it"
    assert Path(output.path).is_relative_to(tmp_path / "runs")
    assert (here / "src" / "a.txt").read_text() == "one\n"
    assert git(here, "worktree", "list").count("\n") == 0
    assert git(here, "branch", "--list", "worktree-*") == ""


def test_stages_share_a_reusable_worktree(here: Path, tmp_path: Path) -> None:
    """What the first changed the second sees; outputs stay within it."""

    async def body(ctx: Context) -> Any:
        shared: dict[str, Any] = {"git_worktree_dir": tmp_path / "w", "tools": ["edits"], "approval": "never"}
        await ctx.task("first", prompt="go", **shared)
        second = await ctx.task("second", prompt="go", output="out.md", **shared)
        try:
            await ctx.task("third", prompt="go", output="../out.md", **shared)
        except DefinitionError as error:
            return [second.artifacts[0].path, str(error)]

    read = {"tool": {"name": "read", "arguments": {"path": "src/a.txt"}}}
    result = run(body, [EDIT, "done", read, {"echo": True}], tmp_path)
    assert result.status == "completed", result
    path, refused = result.result
    assert path == str(tmp_path / "w" / "out.md")
    assert "two" in Path(path).read_text()
    assert "leads out of its worktree" in refused
    assert (here / "src" / "a.txt").read_text() == "one\n"


def test_a_workflow_takes_its_worktree_from_an_input(here: Path, tmp_path: Path) -> None:
    """An empty one is none; the definition says which input it is."""

    async def body(ctx: Context, folder: str = "", base: str = "main") -> str:
        return (await ctx.task("t", prompt="go", tools=["bash"], approval="never")).text

    definition = define(body, worktree_from_inputs={"git_worktree_dir": "folder", "base_branch": "base"})
    assert definition.input_bindings == {"worktree": {"git_worktree_dir": "folder", "base_branch": "base"}}
    replies = [{"tool": {"name": "bash", "arguments": {"command": "pwd"}}}, {"echo": True}]
    assert str(tmp_path / "w") in run(definition, replies, tmp_path, folder=str(tmp_path / "w")).result
    assert f"\n{here}\n" in run(definition, replies, tmp_path).result
    with pytest.raises(DefinitionError, match="which is no input"):
        define(body, worktree_from_inputs={"git_worktree_dir": "fodler"})
    with pytest.raises(DefinitionError, match="is needed"):
        define(body, worktree_from_inputs={"folder": "folder"})


def test_a_worktree_that_cannot_be_had_fails_the_stage_before_its_model(here: Path, tmp_path: Path) -> None:
    """One sentence."""

    async def body(ctx: Context) -> Any:
        await ctx.task("t", prompt="go", git_worktree_dir=here / "src")

    assert "is in the checkout" in str(run(body, [], tmp_path).error)
