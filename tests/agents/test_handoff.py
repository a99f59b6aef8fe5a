"""What a stage is handed and what it hands on: texts, pictures, files, folders, templates."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from loom_kernel.agents import handoff
from loom_kernel.agents.scripted import script
from loom_kernel.authoring.agents import Image, Step, TaskResult
from loom_kernel.authoring.context import Context
from loom_kernel.errors import DefinitionError, NodeAborted
from tests.agents.harness import ModelWorld

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def run(body: Any, replies: list[Any], **home: Any) -> tuple[Any, Any]:
    """The result, and the script with what it was asked."""

    async def main() -> tuple[Any, Any]:
        world = ModelWorld(**home)
        with script("demo", replies) as it:
            result = await world.run(body)
        await world.close()
        return result, it

    return asyncio.run(main())


def test_what_came_before_stands_where_it_is_asked_for() -> None:
    """In the place of ``{previous}`` the last of it; else under a heading, a single nameless text as it is."""
    result = TaskResult(name="a", text="A", stage_name="a")
    assert handoff.contexts("x", ["", "  ", result, {"name": "b", "text": "B"}]) == [("a", "A"), ("b", "B")]
    assert handoff.compose("see {previous}!", [("a", "A"), ("b", "B")]) == "see B!"
    assert handoff.compose("go", [("", "text")]) == "go\n\ntext"
    assert handoff.compose("go", [("a", "A"), ("", "B")]) == "go\n\n## Context\n\n### a\nA\n\n### Result 2\nB"
    assert handoff.compose("go", []) == "go"


def test_a_large_prompt_is_warned_of() -> None:
    """Files are the better way."""

    async def body(ctx: Context) -> Any:
        return (await ctx.task("t", prompt="go", previous="x" * 60_000)).warnings

    result, _ = run(body, ["y"])
    assert "hand large texts over as files" in result.result[0]


def test_pictures_become_parts_of_a_message(tmp_path: Path) -> None:
    """Bytes, files, ``Image``, figures; for a prompt of a handle too."""
    (tmp_path / "a.png").write_bytes(PNG)

    async def body(ctx: Context) -> Any:
        await ctx.task("t", prompt="look", images=[PNG, str(tmp_path / "a.png"), Image(b"\xff\xd8\xff", "image/jpeg")])
        await ctx.stage("s").prompt("look", images=[PNG])
        await ctx.stage("u").send(["look", PNG])

    result, it = run(body, [{"text": "seen", "times": "always"}])
    assert result.status == "completed", result
    parts = it.requests[0].messages[0]["content"]
    assert [p["type"] for p in parts] == ["text", "image_url", "image_url", "image_url"]
    assert parts[1] == parts[2]
    assert parts[1]["image_url"]["url"] == f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    assert parts[3]["image_url"]["url"].startswith("data:image/jpeg;base64,")
    assert [len(r.messages[0]["content"]) for r in it.requests[1:]] == [2, 2]
    with pytest.raises(DefinitionError, match="is no picture"):
        handoff.parts([3])
    with pytest.raises(DefinitionError, match="there is no file"):
        handoff.parts([str(tmp_path / "b.png")])


def test_a_figure_is_a_picture() -> None:
    """As matplotlib and PIL give it."""
    import PIL.Image

    (part,) = handoff.parts([PIL.Image.new("RGB", (2, 2))])
    assert part["image_url"]["url"].startswith("data:image/png;base64,iVBOR")


def test_templates_and_skills_are_files(tmp_path: Path) -> None:
    """Only where it is asked for; a skill comes with the files beside it; a missing one names those that are there."""
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "fix.md").write_text("---\ntitle: Fix\n---\nFix $ARGUMENTS now.\n")
    (tmp_path / "skills" / "sql").mkdir(parents=True)
    (tmp_path / "skills" / "sql" / "SKILL.md").write_text("Write SQL.")
    (tmp_path / "skills" / "sql" / "tables.txt").write_text("runs")
    heard: list[bool] = []

    async def body(ctx: Context) -> Any:
        stage = ctx.stage("s", agent_dir=tmp_path)
        await stage.prompt(
            "/fix the roof", expand_prompt_templates=True, preflight_result=heard.append, source="interactive"
        )
        await stage.send("/skill:sql count runs", expand_prompt_templates=True)
        await stage.prompt("/fix the roof", streaming_behavior="steer")
        await stage.prompt("/nothing", expand_prompt_templates=True)

    result, it = run(body, [{"text": "x", "times": "always"}])
    said = [r.messages[-1]["content"] for r in it.requests]
    assert said[0] == "Fix the roof now."
    assert said[1].startswith("Write SQL.")
    assert "tables.txt" in said[1]
    assert said[1].endswith("count runs")
    assert said[2] == "/fix the roof"
    assert "there is no prompt template 'nothing'" in str(result.error)
    assert "there are: fix" in str(result.error)
    assert heard == [True]


def test_a_chain_has_a_folder_of_its_own(tmp_path: Path) -> None:
    """For what its steps read and write."""
    (tmp_path / "chain").mkdir()

    async def body(ctx: Context) -> Any:
        steps = [Step("write", "go", output="a.md"), Step("read", "go", reads=["a.md"])]
        await ctx.chain(steps, chain_dir=tmp_path / "chain")

    result, it = run(body, ["written", "read"])
    assert result.status == "completed", result
    assert (tmp_path / "chain" / "a.md").read_text() == "written"
    assert f"[Read from: {tmp_path}/chain/a.md]" in it.requests[1].messages[0]["content"]


def test_a_transcript_lies_where_it_is_asked_to(tmp_path: Path) -> None:
    """``session_dir``; it names the stage and is no identity."""

    async def body(ctx: Context) -> Any:
        stage = ctx.stage("talk", session_dir=tmp_path)
        before = stage.session_file
        await stage.prompt("hello")
        return [before, stage.session_file, stage.session_id]

    result, _ = run(body, ["hi"])
    before, file, session_id = result.result
    assert (before, file) == (None, str(tmp_path / "talk-1.md"))
    assert session_id.endswith("/talk#1")
    assert "hello" in Path(file).read_text()


def test_files_are_named_unless_nobody_wants_them_named(tmp_path: Path) -> None:
    """``artifacts=False`` leaves the output only."""

    async def body(ctx: Context) -> Any:
        kinds = []
        for artifacts in (True, False):
            result = await ctx.task(
                "t", prompt="x", output=tmp_path / "o.md", session_dir=tmp_path, artifacts=artifacts
            )
            kinds.append([a.kind for a in result.artifacts])
        return kinds

    result, _ = run(body, ["a", "b"])
    assert result.result == [["output", "session"], ["output"]]


def test_a_completion_stands_beside_the_session() -> None:
    """No history, no tools, a model of its own."""

    async def body(ctx: Context) -> Any:
        stage = ctx.stage("s", system="Be kind.", tools=["read"])
        await stage.prompt("one")
        said = await stage.complete("two", model="scripted/other:low", max_tokens=7)
        return [said, len(stage.messages)]

    with script("other", ["2"]) as other:
        result, _ = run(body, ["1"])
    assert result.result == ["2", 3]
    (request,) = other.requests
    assert ([m["content"] for m in request.messages], request.tools, request.max_tokens, request.level) == (
        ["two"],
        (),
        7,
        "low",
    )


def test_a_stage_and_its_compaction_are_aborted() -> None:
    """The prompt raises, the session stays as it was."""

    async def body(ctx: Context) -> Any:
        stage = ctx.stage("s")
        await stage.prompt("one")

        async def end() -> None:
            async for event in stage.events():
                if event["type"] == "message_start":
                    await stage.abort()
                    return

        ending = asyncio.ensure_future(end())
        await asyncio.sleep(0)
        try:
            await stage.prompt("slow")
        except NodeAborted:
            aborted = True
        await ending
        compacting = asyncio.ensure_future(stage.compact())
        for _ in range(3):
            await asyncio.sleep(0)  # it has begun, and its model takes its time
        stage.abort_compaction()
        await asyncio.wait({compacting})
        return [aborted, compacting.cancelled(), [m["text"] for m in stage.messages]]

    result, _ = run(body, ["1", {"text": "never", "delay_s": 500.0}, {"text": "summary", "delay_s": 500.0}])
    assert result.result == [True, True, ["one", "1", "slow"]], result
