"""What a start brings for its stages: other sessions, a gate of its own, ears; and the gate that is there without it."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from loom_kernel import Context, run, workflow
from loom_kernel import events as ev
from loom_kernel.agents.adapters import StageExecutionMeta, StageSessionRuntime, create_agent_session_adapter
from loom_kernel.agents.readiness import NOT_READY, READY
from loom_kernel.agents.scripted import script
from loom_kernel.errors import DefinitionError
from loom_kernel.runtime import get_runtime
from tests.agents.harness import ModelWorld
from tests.engine.harness import asked, events_of, rest

ASKS = {"tool": {"name": "ask_user_question", "arguments": {"question": "Which?"}}}


@pytest.fixture(autouse=True)
def scratch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A runtime of its own, with a scripted model."""
    import loom_kernel.runtime as runtime

    monkeypatch.setenv("LOOM_TEST", "1")
    monkeypatch.setenv("LOOM_MODEL", "scripted/demo")
    runtime.close()
    yield
    runtime.close()


@workflow
async def shop(ctx: Context) -> list[Any]:
    """Two stages, one in a child."""
    first = await ctx.task("plan", prompt="plan it")
    child = await ctx.workflow(inner)
    return [first.text, child.result]


@workflow
async def inner(ctx: Context) -> str:
    """One stage."""
    return (await ctx.task("review", prompt="review it")).text


class Session:
    """Answers by itself."""

    def __init__(self, name: str) -> None:
        self.name, self.closed, self.listeners = name, 0, []

    listeners: list[Any]

    def subscribe(self, listener: Any) -> Any:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    async def prompt(self, text: str) -> str:
        for listener in self.listeners:
            listener({"type": "message_update", "delta": "..."})
        return f"{self.name}: {text}"

    async def close(self) -> None:
        self.closed += 1


def test_a_session_of_somebody_elses_answers_and_is_recorded() -> None:
    """For stages of children too; it is told whose it is, and closed."""
    made: list[tuple[Session, StageExecutionMeta]] = []

    class Adapter:
        async def create(self, options: Mapping[str, Any], meta: StageExecutionMeta) -> Any:
            made.append((Session(meta.stage_name), meta))
            assert isinstance(made[-1][0], StageSessionRuntime)
            return {"session": made[-1][0]} if meta.stage_name == "plan" else made[-1][0]

    heard: list[tuple[str, str, str]] = []
    started = run(
        shop,
        adapters={"agent_session": Adapter()},
        execution_mode="non_interactive",
        on_stage_session_event=lambda run_id, stage_id, event: heard.append((run_id, stage_id, event["type"])),
    )
    assert started.wait(timeout=30).result == ["plan: plan it", "review: review it"]
    assert [m.stage_name for _, m in made] == ["plan", "review"]
    assert made[0][1].run_id == started.id != made[1][1].run_id
    assert (made[0][1].mode, made[0][1].stage_id) == ("non_interactive", "stage:plan:#1")
    assert [s.closed for s, _ in made] == [1, 1]
    assert (started.id, "stage:plan:#1", "message_update") in heard
    assert {r for r, _, _ in heard} == {started.id, made[1][1].run_id}


def test_our_own_with_options_for_all_and_one_that_changes_them() -> None:
    """What a stage says wins; delegating keeps everything else."""
    own = create_agent_session_adapter(system="Be kind.", model="scripted/other")

    class Adapter:
        async def create(self, options: Mapping[str, Any], meta: StageExecutionMeta) -> Any:
            changed = {**options, "system": "Be strict."} if meta.stage_name == "review" else options
            return await own.create(changed, meta)

    with script("other", ["1", "2"]) as it:
        assert run(shop, adapters={"agent_session": Adapter()}).wait(timeout=30).result == ["1", "2"]
    assert [r.messages[0]["content"] for r in it.requests] == ["Be kind.", "Be strict."]
    with pytest.raises(DefinitionError, match="every stage has its own"):
        create_agent_session_adapter(session_manager=1)
    with pytest.raises(DefinitionError, match="did you mean system="):
        create_agent_session_adapter(sistem="x")


def test_a_function_answers_prompts_and_completions() -> None:
    """Without any model."""

    @workflow
    async def asks(ctx: Context) -> list[str]:
        stage = ctx.stage("s")
        return [await stage.prompt("a"), await stage.complete("b", max_tokens=3)]

    async def prompt(text: str, meta: StageExecutionMeta) -> str:
        return f"{meta.stage_name} {text}"

    async def complete(text: str, options: Mapping[str, Any], meta: StageExecutionMeta) -> str:
        return f"{text} {options['max_tokens']}"

    assert run(asks, adapters={"prompt": prompt, "complete": complete}).wait(timeout=30).result == ["s a", "b 3"]
    for wrong, sentence in (({"promt": 1}, "there are agent_session, prompt, complete"), (3, "a mapping is needed")):
        with pytest.raises(DefinitionError, match=sentence):
            run(asks, adapters=wrong)


def test_what_is_no_session_is_one_sentence() -> None:
    """The stage fails with it."""

    class Adapter:
        async def create(self, options: Any, meta: Any) -> Any:
            return 3

    result = run(shop, adapters={"agent_session": Adapter()}).settle(timeout=30)
    assert "a session with an async prompt(text) is needed" in str(result.error)


def test_listeners_that_raise_are_of_no_concern_and_the_catalogue_may_be_ones_own() -> None:
    """Plain and async ones."""

    @workflow
    async def asks(ctx: Context) -> list[Any]:
        return [ctx.models.current_model, (await ctx.task("s", prompt="a")).text]

    class Models:
        current_model = "mine"

    async def broken(*_: Any) -> None:
        raise ValueError("no")

    with script("demo", ["x"]):
        started = run(asks, models=Models(), on_stage_session_event=broken)
        assert started.wait(timeout=30).result == ["mine", "x"]
    with pytest.raises(DefinitionError, match="a function is needed"):
        run(asks, on_stage_session_event=3)


def test_without_anybody_there_is_no_question() -> None:
    """``ask_user_question`` is no tool of a run that expects nobody, and there is no gate."""

    @workflow
    async def asks(ctx: Context) -> str:
        return (await ctx.task("s", prompt="a", tools=["ask_user_question", "read"])).text

    with script("demo", ["x"]) as it:
        assert run(asks, execution_mode="non_interactive").wait(timeout=30).result == "x"
    assert [t["function"]["name"] for t in it.requests[0].tools] == ["read"]
    assert get_runtime().agents.somebody("another run")


def test_a_stage_that_asked_something_asks_whether_it_is_ready() -> None:
    """Ready ends it; else what the person says goes on in the same session, and it asks again. Empty is refused."""

    async def main() -> None:
        world = ModelWorld()

        async def body(ctx: Context) -> str:
            return (await ctx.task("work", prompt="go", tools=["ask_user_question"])).text

        with script("demo", [ASKS, "first", "second"]) as it:
            execution = await world.start(body)
            await world.answer(execution, "left")
            opened, _ = await asked(execution, "work-ready")
            assert list(opened.options) == [READY, NOT_READY]
            await world.answer(execution, NOT_READY, "work-ready")
            await world.answer(execution, "one more thing", "work-more")
            await world.restart()  # a crash in between asks for nothing twice
            execution = await world.resume(execution.run_id, body)
            await world.answer(execution, READY, "work-ready")
            assert (await rest(execution)).result == "second"
        assert it.requests[-1].messages[-1]["content"] == "one more thing"
        users = [e.text for e in events_of(execution, ev.MessageRecorded) if e.role == "user"]
        assert users == ["go", "one more thing"]
        await world.close()

    asyncio.run(main())


def test_a_hook_stands_in_the_place_of_the_gate() -> None:
    """It hears whose stage it is."""
    heard: list[dict[str, Any]] = []

    @workflow
    async def asks(ctx: Context) -> str:
        return (await ctx.task("s", prompt="a", tools=["ask_user_question"])).text

    def confirm(**about: Any) -> bool:
        heard.append(about)
        return True

    with script("demo", [ASKS, "done"]):
        started = run(asks, confirm_stage_readiness=confirm, execution_mode="interactive", answers={"s-asks": "x"})
        assert started.wait(timeout=30).result == "done"
    assert [(h["run_id"], h["stage_name"]) for h in heard] == [(started.id, "s")]


def test_a_run_in_short_has_what_its_stages_gave_and_what_it_needs() -> None:
    """``WorkflowDetails``: while a question is open, and at the end."""

    @workflow
    async def asks(ctx: Context) -> str:
        found = await ctx.task("s", prompt="a", output=None)
        await ctx.ui.confirm("Go on?", name="go")
        return found.text

    with script("demo", ["x"]):
        started = run(asks, execution_mode="interactive")
        end = time.monotonic() + 20
        while not started.prompts():
            assert time.monotonic() < end
            time.sleep(0.01)
        now = started.details()
        started.answer(True)
        started.wait(timeout=30)
        then = started.details()
    assert (now.run_id, now.status, now.mode) == (started.id, "awaiting_input", "named")
    assert [e.message for e in now.control_events if e.type == "needs_attention"] == ["Go on?"]
    assert now.progress == {"completed": 1, "total": 1}
    assert (then.status, then.output, [r.text for r in then.results]) == ("completed", "x", ["x"])
    assert (then.control_events, then.error, then.exited) == ((), None, False)
    assert then.intercom is not None
    assert then.intercom.delivery == "off"


def test_folders_of_runs_that_are_gone_go_after_a_month(tmp_path: Any) -> None:
    """Those of runs that are there stay, however old; links are left alone."""
    import os

    from loom_kernel import WORKFLOW_ARTIFACT_RETENTION_MS
    from loom_kernel.agents.retention import prune

    month = WORKFLOW_ARTIFACT_RETENTION_MS / 1_000
    for name, age in (("kept", 2 * month), ("gone", month + 5), ("young", month - 60)):
        (tmp_path / name / "transcripts").mkdir(parents=True)
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    assert prune(tmp_path, {"kept"}, 1e9, dry_run=True) == ["gone"]
    assert prune(tmp_path, {"kept"}, 1e9) == ["gone"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kept", "link", "young"]
    assert prune(tmp_path / "nothing", (), 1e9) == []


@workflow
async def counting(ctx: Context) -> str:
    """One stage with SQL."""
    return (await ctx.task("count", prompt="go", tools=["sql"])).text


def test_sql_of_a_stage_sees_the_journal_and_the_notebooks_frames_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is asked for it, so it is no way around what is closed to the other tools."""
    pandas = pytest.importorskip("pandas")
    (tmp_path / ".env").write_text("KEY=hunter2")
    monkeypatch.setattr(sys.modules["__main__"], "orders", pandas.DataFrame({"n": [20, 22]}), raising=False)
    queries = [
        "select 'made by ' || workflow as who from runs",
        "select sum(n) as total from orders",
        f"from read_text('{tmp_path / '.env'}')",
        f"select * from orders, read_text('{tmp_path / '.env'}')",
    ]
    calls = [{"tool": {"name": "sql", "arguments": {"query": query}}} for query in queries]
    with script("demo", [*calls, "done"]) as it:
        assert run(counting).wait(timeout=30).result == "done"
    said = [m["content"] for m in it.requests[-1].messages if m["role"] == "tool"]
    assert "made by counting" in said[0]
    assert "42" in said[1]
    assert all("SqlError: this SQL reads no files" in one for one in said[2:])
