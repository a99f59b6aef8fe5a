"""Runs as a whole: exits, cancelling and stopping, leases, secrets, recorded values, outputs, resuming."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from datetime import timedelta
from typing import Any

import pytest
from pydantic import SecretStr

from loom_kernel import events as ev
from loom_kernel.authoring.context import Context
from loom_kernel.authoring.step import step
from loom_kernel.authoring.workflow import define
from loom_kernel.clock import VirtualClock
from loom_kernel.errors import (
    InputError,
    OutputError,
    ResumeError,
    RunOverError,
    StaleLeaseError,
    UnknownRunError,
    WorkflowExit,
)
from loom_kernel.events import RunCreated
from tests.engine.harness import World, asked, engine_on, entries_of, events_of, nodes, rest, types_of, until

pytestmark = pytest.mark.timeout(30)


def test_a_body_knows_its_run() -> None:
    """The run's id, its inputs, the folder it was started in, and whether somebody asked for its end."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context, n: int = 3) -> list[Any]:
            assert ctx.signal is ctx.cancelled and not ctx.cancelled
            return [ctx.run_id, ctx.inputs.n, str(ctx.cwd)]

        execution = await world.start(body)
        assert (await rest(execution)).result == [execution.run_id, 3, os.getcwd()]
        assert execution.entries[0].event.cwd == os.getcwd()  # type: ignore[attr-defined]
        await world.close()

    asyncio.run(main())


# ---------------------------------------------------------------- exits


def test_exit_ends_a_run_with_its_status_reason_and_outputs() -> None:
    """ctx.exit is recorded; what a finally block does to the outputs afterwards does not count."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context) -> None:
            outputs = {"n": [1]}
            try:
                ctx.exit("skipped", reason="declined", outputs=outputs)
            finally:
                outputs["n"].append(2)

        execution = await world.start(body)
        result = await rest(execution)
        assert (result.status, result.exited, result.exit_reason, result.result) == (
            "skipped", True, "declined", {"n": [1]},
        )  # fmt: skip
        ended = events_of(execution, ev.RunEnded)[0]
        assert ended.exited and ended.reason == "declined" and bytes(ended.result) == b'{"n":[1]}'
        await world.close()

    asyncio.run(main())


def test_an_exit_cannot_be_swallowed() -> None:
    """Every later durable call raises it again, and what the body returns does not count."""

    async def main() -> None:
        world = World()

        @step
        async def work() -> int:
            world.did("work")
            return 1

        async def leave(ctx: Context) -> None:
            ctx.exit(reason="enough")

        async def body(ctx: Context) -> str:
            results = await asyncio.gather(leave(ctx), return_exceptions=True)
            assert isinstance(results[0], WorkflowExit)
            with pytest.raises(WorkflowExit):
                await work()
            with pytest.raises(WorkflowExit):
                await ctx.tool("t", 1, lambda a: a)
            try:
                ctx.exit("failed", reason="too late")
            except BaseException:
                pass
            return "as if nothing had been"

        result = await world.run(body)
        assert (result.status, result.exit_reason, result.result) == ("completed", "enough", None)
        assert not world.effects
        await world.close()

    asyncio.run(main())


def test_an_exit_in_a_branch_ends_the_others() -> None:
    """Steps at work and open questions of other branches are cancelled, with the reason."""

    async def main() -> None:
        world = World()

        @step
        async def forever() -> None:
            await asyncio.sleep(60)

        async def leave(ctx: Context) -> None:
            await ctx.sleep("a moment", 0.01)
            ctx.exit("blocked", reason="stuck")

        async def body(ctx: Context) -> None:
            asyncio.get_running_loop().create_task(leave(ctx))
            await asyncio.gather(forever(), ctx.ui.confirm("Well?", name="well"), return_exceptions=True)

        execution = await world.start(body)
        result = await rest(execution)
        assert (result.status, result.exit_reason) == ("blocked", "stuck")
        assert {e.reason for e in events_of(execution, ev.NodeCancelled)} == {"workflow-exit"}
        assert sorted(nodes(execution, ev.NodeCancelled)) == ["forever", "well"]
        await world.close()

    asyncio.run(main())


def test_a_bad_exit_fails_the_run_for_good() -> None:
    """resumable= goes with "failed" only; an exit that makes no sense is the author's failure."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context) -> None:
            ctx.exit("completed", resumable=True)

        execution = await world.start(body)
        result = await rest(execution)
        assert result.status == "failed" and "resumable" in str(result.error)
        with pytest.raises(ResumeError, match="for good"):
            await world.resume(execution.run_id, body)
        await world.close()

    asyncio.run(main())


def test_a_resumable_failed_exit_can_go_on() -> None:
    """ctx.exit("failed", resumable=True) can be resumed."""

    async def main() -> None:
        world = World()
        again = False

        async def body(ctx: Context) -> str:
            if not again:
                ctx.exit("failed", reason="later", resumable=True)
            return "now"

        execution = await world.start(body)
        assert (await rest(execution)).status == "failed"
        again = True
        assert (await rest(await world.resume(execution.run_id, body))).result == "now"
        await world.close()

    asyncio.run(main())


# ---------------------------------------------------------------- cancel and stop


def test_cancel_is_final() -> None:
    """A cancel post ends the run: its steps are cancelled, nothing follows the terminal event, it cannot be resumed."""

    async def main() -> None:
        world = World()

        @step
        async def forever() -> None:
            await asyncio.sleep(60)

        async def body(ctx: Context) -> None:
            try:
                await forever()
            except asyncio.CancelledError:
                await forever()  # catching it does not opt out

        execution = await world.start(body)
        await until(lambda: "node.started" in types_of(execution))
        await world.post(execution.run_id, ev.CancelRequested(by="ann", reason="wrong file"))
        result = await rest(execution)
        assert (result.status, result.reason) == ("cancelled", "wrong file")
        assert execution.context.cancelled.reason == "wrong file"
        assert types_of(execution)[-1] == "run.ended" and types_of(execution).count("node.started") == 1
        with pytest.raises(ResumeError, match="cancelled"):
            await world.resume(execution.run_id, body)
        await world.close()

    asyncio.run(main())


def test_stop_pauses_and_resume_goes_on() -> None:
    """A stop post pauses; an open question stays open, is answered meanwhile, and its answer is used on resume."""

    async def main() -> None:
        world = World()

        @step
        async def work() -> int:
            world.did("work")
            return 1

        async def body(ctx: Context) -> bool:
            await work()
            return await ctx.ui.confirm("Go on?", name="go")

        execution = await world.start(body)
        await asked(execution)
        await world.post(execution.run_id, ev.StopRequested(by="ann"))
        result = await rest(execution)
        assert (result.status, result.reason) == ("paused", "stopped")
        assert types_of(execution)[-1] == "run.paused" and "node.cancelled" not in types_of(execution)
        await world.answer(execution, True)
        execution = await world.resume(execution.run_id, body)
        assert (await rest(execution)).result is True
        assert types_of(execution).count("prompt.opened") == 1
        assert world.effects == {"work": 1}
        await world.close()

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(40))
def test_the_first_end_wins(seed: int) -> None:
    """Of a cancel, a stop and a return that come together, in any order, exactly one is written, last."""

    async def main() -> None:
        world = World()
        rng = random.Random(seed)
        go = asyncio.Event()

        async def wait() -> int:
            await go.wait()
            return 1

        async def body(ctx: Context) -> int:
            return await ctx.step("wait", wait)

        execution = await world.start(body)
        await until(lambda: "node.started" in types_of(execution))

        async def finish() -> None:
            go.set()

        async def cancel() -> None:
            await world.post(execution.run_id, ev.CancelRequested())

        async def stop() -> None:
            await world.post(execution.run_id, ev.StopRequested())

        acts = [finish, cancel, stop]
        rng.shuffle(acts)
        for act in acts:
            with contextlib.suppress(RunOverError):
                await act()
            for _ in range(rng.randrange(6)):
                await asyncio.sleep(0)
        await rest(execution)
        ends = [t for t in types_of(execution) if t in ("run.ended", "run.paused")]
        assert len(ends) == 1
        written = [e.type for e in entries_of(world.journal, execution.run_id)]
        assert [t for t in written if t not in ev.POSTS][-1] == ends[0]
        await world.close()

    asyncio.run(main())


def test_a_cancel_that_nobody_heard_is_done_on_resume() -> None:
    """A cancel posted while no worker was there ends the run as soon as one comes."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context) -> bool:
            return await ctx.ui.confirm("Go on?", name="go")

        execution = await world.start(body)
        await asked(execution)
        await world.restart()
        await world.post(execution.run_id, ev.CancelRequested(by="ann"))
        execution = await world.resume(execution.run_id, body)
        assert (await rest(execution)).status == "cancelled"
        await world.close()

    asyncio.run(main())


def test_open_tasks_end_with_their_body() -> None:
    """A task that the body left behind is cancelled and awaited before the last event."""

    async def main() -> None:
        world = World()
        ended: list[str] = []

        @step
        async def forever() -> None:
            await asyncio.sleep(60)

        async def left_behind() -> None:
            try:
                await forever()
            finally:
                ended.append("behind")

        async def plain() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                ended.append("plain")

        async def body(ctx: Context) -> int:
            tasks = [asyncio.create_task(left_behind()), asyncio.create_task(plain())]
            await asyncio.sleep(0.01)
            return len(tasks)

        execution = await world.start(body)
        assert (await rest(execution)).result == 2
        assert sorted(ended) == ["behind", "plain"]
        assert types_of(execution)[-2:] == ["node.cancelled", "run.ended"]
        await world.close()

    asyncio.run(main())


# ---------------------------------------------------------------- leases


def test_a_worker_that_was_taken_over_does_nothing_more() -> None:
    """Its next write is refused, its step's effects end, and the waiter hears who has the run now."""

    async def main() -> None:
        world = World()

        @step
        async def work(n: int) -> int:
            world.did(f"work {n}")
            if n == 0 and world.effects["work 0"] == 1:
                await asyncio.sleep(0.1)
            return n

        async def body(ctx: Context) -> int:
            return await work(0) + await work(1)

        first = await world.start(body)
        await until(lambda: "node.started" in types_of(first))
        with pytest.raises(ResumeError, match=r"is being executed by worker \d+ \(pid 1\).*--take"):
            await engine_on(world.journal).resume(first.run_id, define(body))
        second_engine = engine_on(world.journal)
        second = await second_engine.resume(first.run_id, define(body), take=True)
        assert (await rest(second)).result == 1
        with pytest.raises(StaleLeaseError):
            await rest(first)
        assert world.effects == {"work 0": 2, "work 1": 1}
        assert [t for t in types_of(second) if t == "run.ended"] == ["run.ended"]
        await second_engine.close()
        await world.close()

    asyncio.run(main())


def test_closing_the_engine_interrupts_and_writes_nothing() -> None:
    """close() cancels bodies, gives leases back, and leaves the journal as it was."""

    async def main() -> None:
        world = World()

        @step
        async def forever() -> None:
            await asyncio.sleep(60)

        async def body(ctx: Context) -> None:
            await forever()

        execution = await world.start(body)
        await until(lambda: "node.started" in types_of(execution))
        before = len(entries_of(world.journal, execution.run_id))
        await world.close()
        assert (await rest(execution)).status == "interrupted"
        assert len(entries_of(world.journal, execution.run_id)) == before
        assert await world.journal.lease_state(execution.run_id) is None

    asyncio.run(main())


def test_resume_refuses_with_sentences() -> None:
    """Unknown runs, ended ones, those of another workflow and live ones are refused with what can be done."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context) -> int:
            return 1

        async def waiting(ctx: Context) -> bool:
            return await ctx.ui.confirm("Go on?", name="go")

        with pytest.raises(UnknownRunError):
            await world.resume("nosuchrunid2", body)
        done = await world.start(body)
        await rest(done)
        with pytest.raises(ResumeError, match="completed"):
            await world.resume(done.run_id, body)
        live = await world.start(waiting)
        with pytest.raises(ResumeError, match="running here already"):
            await world.resume(live.run_id, waiting)
        await asked(live)
        await world.restart()
        with pytest.raises(ResumeError, match="is a run of 'waiting'"):
            await world.resume(live.run_id, body)
        await world.close()

    asyncio.run(main())


# ---------------------------------------------------------------- inputs and outputs


def test_inputs_are_checked_before_anything_is_written() -> None:
    """All problems in one error, and no run."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context, n: int, m: str) -> int:
            return n

        with pytest.raises(InputError, match="2 problems"):
            await world.start(body, n="3")
        assert not world.journal._runs
        await world.close()

    asyncio.run(main())


def test_a_wrong_output_fails_the_run() -> None:
    """The return annotation is checked, strictly."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context) -> int:
            return "3"  # type: ignore[return-value]

        result = await world.run(body)
        assert result.status == "failed" and isinstance(result.error, OutputError)
        await world.close()

    asyncio.run(main())


def test_secrets_are_never_stored_and_asked_for_again() -> None:
    """The journal has a digest; a resume without the secret says how to give it."""

    async def main() -> None:
        world = World()

        @step
        async def login(token: SecretStr) -> str:
            return f"hello {len(token.get_secret_value())}"

        async def body(ctx: Context, token: SecretStr, n: int = 1) -> str:
            who = await login(token)
            await ctx.ui.confirm("Go on?", name="go")
            return who

        execution = await world.start(body, token=SecretStr("hunter2hunter2"))
        await asked(execution)
        assert not any(b"hunter2" in entry.payload for entry in entries_of(world.journal, execution.run_id))
        await world.restart()
        with pytest.raises(ResumeError, match=r"secret input token.*secrets=\{'token'"):
            await world.resume(execution.run_id, body)
        execution = await world.resume(execution.run_id, body, secrets={"token": SecretStr("hunter2hunter2")})
        await world.answer(execution, True)
        assert (await rest(execution)).result == "hello 14"
        assert not any(b"hunter2" in entry.payload for entry in entries_of(world.journal, execution.run_id))
        await world.close()

    asyncio.run(main())


# ---------------------------------------------------------------- values, time, output


def test_recorded_values_are_the_same_after_a_restart() -> None:
    """now, random, uuid4, put and get give a resumed body what they gave it before."""

    async def main() -> None:
        world = World()
        seen: list[Any] = []

        async def body(ctx: Context) -> None:
            values = (ctx.now(), ctx.random(), ctx.uuid4(), ctx.random())
            await ctx.put("config", {"at": values[0]})
            seen.append((*values, ctx.get("config"), ctx.get("none", 5)))
            await ctx.ui.confirm("Go on?", name="go")

        execution = await world.start(body)
        await asked(execution)
        await world.restart()
        execution = await world.resume(execution.run_id, body)
        await world.answer(execution, True)
        await rest(execution)
        assert seen[0] == seen[1] and seen[0][1] != seen[0][3]
        await world.close()

    asyncio.run(main())


def test_reports_and_prints_are_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    """What a body said before the crash it does not say again."""

    async def main() -> None:
        world = World()

        @step
        async def work() -> int:
            return 1

        async def body(ctx: Context) -> None:
            print("print 1")
            ctx.report("report 1")
            await work()
            print("print 2")
            ctx.report("report 2")
            await ctx.ui.confirm("Go on?", name="go")
            print("print 3")
            ctx.report("report 3")

        execution = await world.start(body)
        await asked(execution)
        await world.restart()
        execution = await world.resume(execution.run_id, body)
        await world.answer(execution, True)
        await rest(execution)
        reports = [bytes(e.value).decode() for e in events_of(execution, ev.OutputReported)]
        assert reports == ['"report 1"', '"report 2"', '"report 3"']
        await world.close()

    asyncio.run(main())
    out = capsys.readouterr().out.split("\n")
    assert out.count("print 1") == 1 and out.count("print 3") == 1


def test_what_is_emitted_has_its_namespace_and_is_not_repeated() -> None:
    """``ctx.emit`` and a writer count by namespace; a body that is replayed emits nothing twice."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context) -> None:
            rows = ctx.writer("rows")
            rows.write({"n": 1})
            ctx.emit("log", "a")
            await ctx.ui.confirm("Go on?", name="go")
            rows.write({"n": 2})

        execution = await world.start(body)
        await asked(execution)
        await world.restart()
        execution = await world.resume(execution.run_id, body)
        await world.answer(execution, True)
        await rest(execution)
        out = [(e.namespace, e.index, bytes(e.value)) for e in events_of(execution, ev.OutputReported)]
        assert out == [("rows", 0, b'{"n":1}'), ("log", 0, b'"a"'), ("rows", 1, b'{"n":2}')]
        await world.close()

    asyncio.run(main())


def test_sleep_is_durable_and_fires_late_once() -> None:
    """After a restart a sleep waits for the rest; one whose moment has passed returns at once."""

    async def main() -> None:
        clock = VirtualClock()
        world = World(clock)
        start = clock.time()

        async def body(ctx: Context) -> float:
            await ctx.sleep("an hour", timedelta(hours=1))
            await ctx.sleep("a minute", 60)
            return clock.time() - start

        result = await world.run(body)
        assert 3660 <= result.result < 3661

        stopped = clock.time()
        execution = await world.start(body)
        await until(lambda: "node.started" in types_of(execution))
        await world.restart()
        woke = events_of(execution, ev.NodeStarted)[0].wake_at
        clock._now = woke + 5_000  # the machine was off
        execution = await world.resume(execution.run_id, body)
        await rest(execution)
        assert clock.time() - (woke + 5_000) < 61
        assert stopped < woke
        await world.close()

    asyncio.run(main())


def test_sleeps_can_be_woken_by_their_correlation_id() -> None:
    """A wake post ends the sleeps that it names, and no others."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context) -> list[str]:
            done: list[str] = []

            async def one(name: str) -> None:
                await ctx.sleep(name, 3600, correlation_id=name)
                done.append(name)

            await asyncio.gather(one("a"), one("b"))
            return done

        execution = await world.start(body)
        await until(lambda: types_of(execution).count("node.started") == 2)
        await world.post(execution.run_id, ev.WakeRequested(correlation_ids=["b"]))
        await until(lambda: "node.completed" in types_of(execution))
        await world.post(execution.run_id, ev.WakeRequested())
        assert (await rest(execution)).result == ["b", "a"]
        await world.close()

    asyncio.run(main())


def test_a_body_that_blocks_the_loop_is_named() -> None:
    """Blocking for longer than half a second is reported with the line."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context) -> None:
            await ctx.sleep("let the watchdog look", 0.05)
            time.sleep(1.0)
            await ctx.sleep("let it tell", 0.3)

        execution = await world.start(body)
        await rest(execution)
        [warning] = [e for e in events_of(execution, ev.OutputReported) if e.namespace == "warning"]
        assert "test_runs.py, line" in bytes(warning.value).decode() and "@step" in bytes(warning.value).decode()
        await world.close()

    asyncio.run(main())


def test_listeners_hear_everything_in_order() -> None:
    """History first, then live; posts of others in their place."""

    async def main() -> None:
        world = World()

        async def body(ctx: Context) -> bool:
            return await ctx.ui.confirm("Go on?", name="go")

        heard: list[int] = []
        definition = define(body)
        execution = await world.engine.start(
            definition, {}, RunCreated(workflow="body"), listener=lambda entry: heard.append(entry.seq)
        )
        await world.answer(execution, "yes" == "yes")
        later: list[int] = []
        unlisten = execution.listen(lambda entry: later.append(entry.seq))
        await rest(execution)
        unlisten()
        assert heard == later == [entry.seq for entry in entries_of(world.journal, execution.run_id)]
        assert "prompt.answered" in types_of(execution)
        await world.close()

    asyncio.run(main())
