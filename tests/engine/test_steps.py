"""Steps: run once, answered from the journal after that, tried again, timed, refused where they cannot be kept."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from typing import Any

import pytest

from loom_kernel import events as ev
from loom_kernel.authoring.context import Context
from loom_kernel.authoring.step import current_step, step
from loom_kernel.authoring.unknown import Finished, UnknownAttempt
from loom_kernel.clock import VirtualClock
from loom_kernel.errors import (
    FatalError,
    MutatedArgumentError,
    RetryableError,
    StepFailed,
    StepTimeout,
    UnhashableArgumentError,
    ValueNotStorableError,
)
from loom_kernel.ids import RunId
from loom_kernel.policies import Retry
from tests.engine.harness import World, asked, events_of, nodes, rest, types_of, until

pytestmark = pytest.mark.timeout(30)


def test_async_and_sync_steps_run_and_their_results_come_back() -> None:
    """A body gets what its steps return, and the journal has one start and one completion a step."""

    async def main() -> None:
        world = World()

        @step
        async def double(n: int) -> int:
            return n * 2

        @step
        def add(a: int, b: int = 1) -> int:
            assert threading.current_thread().name.startswith("loom-step")
            return a + b

        async def body(ctx: Context, n: int) -> int:
            return await add(await double(n))

        execution = await world.start(body, n=3)
        result = await rest(execution)
        assert (result.status, result.result) == ("completed", 7)
        assert types_of(execution) == [
            "run.created", "lease.taken", "run.started", "node.started", "node.completed",
            "node.started", "node.completed", "run.ended",
        ]  # fmt: skip
        assert [s["name"] for s in result.stages] == ["double", "add"]
        await world.close()

    asyncio.run(main())


def test_finished_steps_do_not_run_again() -> None:
    """After a restart the journal answers; only what was not finished runs."""

    async def main() -> None:
        world = World()

        @step
        async def work(n: int) -> int:
            world.did(f"work {n}")
            return n

        async def body(ctx: Context) -> int:
            total = 0
            for n in range(5):
                total += await work(n)
            await ctx.ui.confirm("Go on?", name="go")
            return total + await work(9)

        execution = await world.start(body)
        await until(lambda: "prompt.opened" in types_of(execution))
        await world.restart()
        execution = await world.resume(execution.run_id, body)
        await world.answer(execution, True)
        assert (await rest(execution)).result == 19
        assert set(world.effects.values()) == {1}
        await world.close()

    asyncio.run(main())


def test_retries_wait_on_the_clock_and_are_recorded() -> None:
    """A failing step is tried again after its backoff, and the tries are counted."""

    async def main() -> None:
        clock = VirtualClock()
        world = World(clock)
        attempts: list[tuple[int, float]] = []

        @step(retry=Retry(max_attempts=4, interval_s=10, backoff=2, max_interval_s=30, jitter=False))
        async def flaky() -> str:
            attempts.append((current_step().attempt, clock.time()))
            if len(attempts) < 4:
                raise OSError("down")
            return "up"

        async def body(ctx: Context) -> str:
            return await flaky()

        execution = await world.start(body)
        assert (await rest(execution)).result == "up"
        assert [n for n, _ in attempts] == [1, 2, 3, 4]
        waits = [round(b - a) for (_, a), (_, b) in itertools.pairwise(attempts)]
        assert waits == [10, 20, 30]
        assert [e.delay_s for e in events_of(execution, ev.NodeRetrying)] == [10, 20, 30]
        assert events_of(execution, ev.NodeCompleted)[0].attempts == 4
        await world.close()

    asyncio.run(main())


def test_fatal_and_retryable_errors_decide_from_inside() -> None:
    """FatalError ends the tries; RetryableError asks for one after its own wait."""

    async def main() -> None:
        clock = VirtualClock()
        world = World(clock)

        @step(retry=Retry(max_attempts=5))
        async def fatal() -> None:
            world.did("fatal")
            raise FatalError("no use")

        @step(retry=Retry(max_attempts=2, on=(KeyError,)))
        async def polite() -> float:
            world.did("polite")
            if world.effects["polite"] == 1:
                raise RetryableError("later", retry_after_s=42)
            return clock.time()

        async def body(ctx: Context) -> float:
            start = clock.time()
            with pytest.raises(FatalError, match="no use"):
                await fatal()
            return await polite() - start

        assert round((await world.run(body)).result) == 42
        assert world.effects == {"fatal": 1, "polite": 2}
        await world.close()

    asyncio.run(main())


def test_a_timeout_ends_an_async_step() -> None:
    """An attempt that takes too long fails with StepTimeout, which is tried again like any failure."""

    async def main() -> None:
        world = World()

        @step(timeout_s=0.05, retry=Retry(max_attempts=2, interval_s=0))
        async def slow() -> None:
            world.did("slow")
            await asyncio.sleep(5)

        async def body(ctx: Context) -> None:
            await slow()

        result = await world.run(body)
        assert result.status == "failed" and isinstance(result.error, StepTimeout)
        assert world.effects["slow"] == 2
        await world.close()

    asyncio.run(main())


def test_an_overdue_thread_delays_the_next_attempt() -> None:
    """A thread cannot be stopped, so the next attempt of the call begins when it has ended."""

    async def main() -> None:
        world = World()
        spans: list[tuple[float, float]] = []

        @step(timeout_s=0.05, retry=Retry(max_attempts=2, interval_s=0))
        def slow() -> str:
            began = time.monotonic()
            if not spans:
                time.sleep(0.2)
            spans.append((began, time.monotonic()))
            return "done"

        async def body(ctx: Context) -> str:
            return await slow()

        assert (await world.run(body)).result == "done"
        assert spans[1][0] >= spans[0][1]
        await world.close()

    asyncio.run(main())


def test_a_cancelled_sync_step_is_told() -> None:
    """current_step().cancelled turns true in the thread when its run is cancelled."""

    async def main() -> None:
        world = World()
        began, told = threading.Event(), threading.Event()

        @step
        def patient() -> None:
            me = current_step()
            began.set()
            while not me.cancelled:
                time.sleep(0.002)
            told.set()

        async def body(ctx: Context) -> None:
            await patient()

        execution = await world.start(body)
        await until(began.is_set)
        await world.post(execution.run_id, ev.CancelRequested(by="ann"))
        assert (await rest(execution)).status == "cancelled"
        assert await asyncio.to_thread(told.wait, 10)
        await world.close()

    asyncio.run(main())


def test_a_changed_argument_is_an_error_unless_allowed() -> None:
    """A step that appends to a list it was given is told to return it instead."""

    async def main() -> None:
        world = World()

        @step
        def grow(items: list[int]) -> int:
            items.append(1)
            return len(items)

        @step(mutates=True)
        async def grow_anyway(items: list[int]) -> int:
            items.append(1)
            return len(items)

        async def body(ctx: Context) -> int:
            with pytest.raises(MutatedArgumentError, match="'items'"):
                await grow([])
            return await grow_anyway([])

        assert (await world.run(body)).result == 1
        await world.close()

    asyncio.run(main())


def test_an_argument_without_content_is_named() -> None:
    """A lock identifies nothing; the error names the parameter, and ignore= lets it through."""

    async def main() -> None:
        world = World()

        @step
        async def use(conn: Any) -> int:
            return 1

        @step(ignore=("conn",))
        async def use_ignored(conn: Any) -> int:
            return 2

        @step(key=lambda conn: "the one")
        async def use_key(conn: Any) -> int:
            return 3

        async def body(ctx: Context) -> int:
            with pytest.raises(UnhashableArgumentError, match="'conn'"):
                await use(threading.Lock())
            return await use_ignored(threading.Lock()) + await use_key(threading.Lock())

        assert (await world.run(body)).result == 5
        await world.close()

    asyncio.run(main())


def test_a_result_that_cannot_be_kept_fails_at_once_with_its_path() -> None:
    """The error comes at the first execution and names the place in the value; it is not tried again."""

    async def main() -> None:
        world = World()

        @step(retry=Retry(max_attempts=3))
        async def bad() -> Any:
            world.did("bad")
            return {"rows": [1, threading.Lock()]}

        async def body(ctx: Context) -> None:
            await bad()

        result = await world.run(body)
        assert isinstance(result.error, ValueNotStorableError) and "['rows'][1]" in str(result.error)
        assert world.effects["bad"] == 1
        await world.close()

    asyncio.run(main())


def test_live_and_replayed_failures_have_the_same_class() -> None:
    """A local exception class cannot be rebuilt, so it is StepFailed live too; ValueError is ValueError both times."""

    async def main() -> None:
        world = World()
        seen: list[list[tuple[type, str]]] = []

        class Local(Exception):
            pass

        @step
        async def fails(how: str) -> None:
            world.did(how)
            raise ValueError("plain") if how == "plain" else Local("mine")

        async def body(ctx: Context) -> None:
            got = []
            for how in ("plain", "local"):
                try:
                    await fails(how)
                except Exception as error:
                    got.append((type(error), str(error)))
            seen.append(got)
            await ctx.ui.confirm("Go on?", name="go")

        execution = await world.start(body)
        await until(lambda: "prompt.opened" in types_of(execution))
        await world.restart()
        execution = await world.resume(execution.run_id, body)
        await world.answer(execution, True)
        await rest(execution)
        assert seen[0] == seen[1]
        assert [kind for kind, _ in seen[0]] == [ValueError, StepFailed]
        assert set(world.effects.values()) == {1}
        await world.close()

    asyncio.run(main())


def test_the_failure_that_ended_a_run_is_tried_again() -> None:
    """Resuming a failed run runs the failed step again, and no other."""

    async def main() -> None:
        world = World()

        @step
        async def good() -> int:
            world.did("good")
            return 1

        @step
        async def bad() -> int:
            world.did("bad")
            if world.effects["bad"] == 1:
                raise OSError("down")
            return 2

        async def body(ctx: Context) -> int:
            return await good() + await bad()

        execution = await world.start(body)
        result = await rest(execution)
        assert result.status == "failed" and isinstance(result.error, OSError)
        ended = events_of(execution, ev.RunEnded)[0]
        assert ended.resumable and ended.failed_node_id.startswith("step:bad:")
        execution = await world.resume(execution.run_id, body)
        assert (await rest(execution)).result == 3
        assert world.effects == {"good": 1, "bad": 2}
        await world.close()

    asyncio.run(main())


def test_a_failure_that_was_cleaned_up_after_still_ends_the_run() -> None:
    """A clean-up step after the failure does not turn it into one that replays for ever."""

    async def main() -> None:
        world = World()

        @step
        async def bad() -> int:
            world.did("bad")
            if world.effects["bad"] == 1:
                raise OSError("down")
            return 2

        @step
        async def cleanup() -> None:
            world.did("cleanup")

        async def body(ctx: Context) -> int:
            try:
                return await bad()
            except OSError:
                await cleanup()
                raise

        execution = await world.start(body)
        assert (await rest(execution)).status == "failed"
        execution = await world.resume(execution.run_id, body)
        assert (await rest(execution)).result == 2
        assert events_of(execution, ev.RunEnded)[-1].drift[0].startswith("step:cleanup:")
        await world.close()

    asyncio.run(main())


def test_prints_are_the_steps_log(capsys: pytest.CaptureFixture[str]) -> None:
    """What a step prints is kept with it, also from a thread, and not shown elsewhere; a bar is progress."""

    async def main() -> Any:
        world = World()

        @step
        def sync_one() -> None:
            print("from a thread")
            print("two\nlines")

        @step
        async def async_one() -> None:
            print("from the loop", end="")
            current_step().log("said")
            current_step().progress(1, 2)

        async def body(ctx: Context) -> None:
            print("from the body")
            await sync_one()
            await async_one()

        execution = await world.start(body)
        await rest(execution)
        await world.close()
        return execution

    execution = asyncio.run(main())
    logged = [line for e in events_of(execution, ev.NodeLogged) for line in e.lines]
    assert logged == ["from a thread", "two", "lines", "from the loopsaid"]
    assert capsys.readouterr().out == "from the body\n"


def test_an_edited_step_is_noticed() -> None:
    """When a step's code is another than when it last ran in the run, its next call says so."""

    async def main() -> None:
        world = World()

        def make(new: bool) -> Any:
            if new:

                @step(name="work")
                async def work(n: int) -> int:
                    return n + 1
            else:

                @step(name="work")
                async def work(n: int) -> int:
                    return n

            async def body(ctx: Context) -> int:
                await work(1)
                await ctx.ui.confirm("Go on?", name="go")
                return await work(2)

            return body

        execution = await world.start(make(False))
        await until(lambda: "prompt.opened" in types_of(execution))
        await world.restart()
        execution = await world.resume(execution.run_id, make(True))
        await world.answer(execution, True)
        assert (await rest(execution)).result == 3
        [changed] = events_of(execution, ev.StepChanged)
        assert changed.name == "work" and changed.old != changed.new
        await world.close()

    asyncio.run(main())


@pytest.mark.parametrize("policy", ["fail", "ask", "retry"])
def test_on_unknown_decides_about_an_attempt_that_a_crash_interrupted(policy: Any) -> None:
    """ "fail" raises in the body, "ask" pauses the run until it is accepted, "retry" runs it again."""

    async def main() -> None:
        world = World()

        @step(on_unknown=policy)
        async def risky() -> int:
            world.did("risky")
            if world.effects["risky"] == 1:
                await asyncio.sleep(60)
            return 1

        async def body(ctx: Context) -> int:
            return await risky()

        execution = await world.start(body)
        await until(lambda: "node.started" in types_of(execution))
        await world.restart()
        resumed = await world.resume(execution.run_id, body)
        result = await rest(resumed)
        if policy == "fail":
            assert result.status == "failed" and "interrupted in the middle" in str(result.error)
            assert world.effects["risky"] == 1
        elif policy == "ask":
            assert (result.status, result.reason) == ("paused", "needs_decision")
            assert world.effects["risky"] == 1
            resumed = await world.resume(execution.run_id, body, accept=True)
            assert (await rest(resumed)).result == 1
        else:
            assert result.result == 1 and world.effects["risky"] == 2
        await world.close()

    asyncio.run(main())


@pytest.mark.parametrize("says", ["finished", "retry", "fail", "raises", "nonsense"])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_function_knows_how_far_an_interrupted_attempt_came(says: str, is_async: bool) -> None:
    """It is asked once, with the arguments and the key that the attempt had; what it cannot tell, a person is asked."""

    async def main() -> None:
        world = World()
        asked: list[UnknownAttempt] = []
        keys: list[str] = []

        def look(attempt: UnknownAttempt) -> Any:
            asked.append(attempt)
            if says == "raises":
                raise OSError("no network")
            return Finished({"paid": attempt.arguments["sum"]}) if says == "finished" else says

        async def look_async(attempt: UnknownAttempt) -> Any:
            return look(attempt)

        @step(on_unknown=look_async if is_async else look)
        async def pay(sum: int, to: str = "ann") -> dict[str, int]:
            world.did("pay")
            keys.append(current_step().idempotency_key)
            if world.effects["pay"] == 1:
                await asyncio.sleep(60)
            return {"paid": 0}

        async def body(ctx: Context) -> dict[str, int]:
            return await pay(5)

        execution = await world.start(body)
        await until(lambda: world.effects["pay"])
        await world.restart()
        resumed = await world.resume(execution.run_id, body)
        result = await rest(resumed)
        assert [(a.step, a.arguments, a.attempt, a.idempotency_key) for a in asked] == [
            ("pay", {"sum": 5, "to": "ann"}, 1, keys[0])
        ]
        if says == "finished":
            assert result.result == {"paid": 5} and world.effects["pay"] == 1
            again = await world.journal.get_run(RunId(execution.run_id))
            assert again is not None and again.status == "completed"
        elif says == "retry":
            assert result.result == {"paid": 0} and world.effects["pay"] == 2
        elif says == "fail":
            assert result.status == "failed" and world.effects["pay"] == 1
        else:
            assert result.reason == "needs_decision" and world.effects["pay"] == 1
            [said] = [e.value for e in events_of(resumed, ev.OutputReported)]
            assert b"a person is asked instead" in bytes(said)
        await world.close()

    asyncio.run(main())


def test_a_limit_bounds_how_many_calls_run_at_once() -> None:
    """@step(limit=2) never has three at work."""

    async def main() -> None:
        world = World()
        now = most = 0

        @step(limit=2)
        async def work(n: int) -> int:
            nonlocal now, most
            now += 1
            most = max(most, now)
            await asyncio.sleep(0.005)
            now -= 1
            return n

        async def body(ctx: Context) -> list[int]:
            return await asyncio.gather(*(work(n) for n in range(6)))

        assert (await world.run(body)).result == list(range(6))
        assert most == 2
        await world.close()

    asyncio.run(main())


def test_what_waits_for_its_turn_says_how_long() -> None:
    """A call under a limit records how long it was queued; one that goes at once records nothing."""

    async def main() -> None:
        world = World()

        @step(limit=1)
        async def work(n: int) -> int:
            await asyncio.sleep(0.05)
            return n

        async def body(ctx: Context) -> list[int]:
            return await asyncio.gather(*(work(n) for n in range(3)))

        execution = await world.start(body)
        await rest(execution)
        queued = [e.queued_s for e in events_of(execution, ev.NodeStarted)]
        assert queued[0] < 0.02 and queued[1] >= 0.045 and queued[2] >= 0.09
        await world.close()

    asyncio.run(main())


def test_a_call_that_is_never_awaited_warns_with_its_line() -> None:
    """Forgetting await is said, with the place."""

    async def main() -> None:
        world = World()

        @step
        async def work() -> None: ...

        async def body(ctx: Context) -> None:
            work()
            ctx.tool("t", {}, lambda a: 1)

        execution = await world.start(body)
        with pytest.warns(RuntimeWarning) as caught:
            await rest(execution)
        texts = [str(w.message) for w in caught]
        assert any("step 'work' was called at test_steps.py, line" in text for text in texts)
        assert any("tool 't' was called at test_steps.py, line" in text for text in texts)
        assert nodes(execution) == []
        await world.close()

    asyncio.run(main())


def test_a_step_may_exit_the_process_without_taking_the_loop_along() -> None:
    """SystemExit in a step or a body is a failure of that run."""

    async def main() -> None:
        world = World()

        @step
        def leaves() -> None:
            raise SystemExit(3)

        async def body(ctx: Context) -> None:
            await leaves()

        async def leaving_body(ctx: Context) -> None:
            raise SystemExit(4)

        assert isinstance((await world.run(body)).error, StepFailed)
        assert (await world.run(leaving_body)).status == "failed"
        await world.close()

    asyncio.run(main())


def test_the_wait_for_a_free_thread_is_not_part_of_a_timeout() -> None:
    """More sync steps than threads: those that wait for one do not time out meanwhile, nor does their duration count it."""

    async def main() -> None:
        world = World()

        @step(timeout_s=0.5)
        def slow(n: int) -> int:
            time.sleep(0.2)
            return n

        async def body(ctx: Context) -> int:
            return sum(await asyncio.gather(*(slow(n) for n in range(64))))

        execution = await world.start(body)
        assert (await rest(execution, 20)).result == sum(range(64))
        assert max(e.duration_s for e in events_of(execution, ev.NodeCompleted)) < 0.5
        await world.close()

    asyncio.run(main())


class Odd:
    """A value that only pickle keeps."""

    def __init__(self, n: int) -> None:
        self.n = n


def test_store_says_what_is_kept_of_a_result() -> None:
    """ "pickle" keeps what nothing else can; "digest" keeps no value, so that a resume makes it again."""

    async def main() -> None:
        world = World()

        @step(store="pickle")
        async def odd(n: int) -> Odd:
            world.did("odd")
            return Odd(n)

        @step(store="digest")
        async def secret() -> str:
            world.did("secret")
            return "very secret"

        async def body(ctx: Context) -> list[Any]:
            got = [(await odd(3)).n, await secret()]
            await ctx.ui.confirm("Go on?", name="go")
            return got

        execution = await world.start(body)
        await asked(execution)
        assert not any(b"very secret" in entry.payload for entry in execution.entries)
        await world.restart()
        execution = await world.resume(execution.run_id, body)
        await world.answer(execution, True)
        assert (await rest(execution)).result == [3, "very secret"]
        assert world.effects == {"odd": 1, "secret": 2}
        await world.close()

    asyncio.run(main())


def test_tables_from_a_step_are_arguments_of_the_next_after_a_restart() -> None:
    """A frame and an array that came back from the journal identify the same calls as before."""
    pd = pytest.importorskip("pandas")
    np = pytest.importorskip("numpy")

    async def main() -> None:
        world = World()

        @step
        def load(n: int) -> Any:
            world.did("load")
            return pd.DataFrame(
                {"a": range(n), "b": pd.Categorical(["x"] * n)}, index=pd.RangeIndex(5, 5 + n, name="i")
            )

        @step
        async def array(df: Any) -> Any:
            world.did("array")
            return np.asfortranarray(df[["a"]].to_numpy(dtype="float32"))

        @step
        def total(values: Any, df: Any) -> float:
            world.did("total")
            return float(values.sum() + df["a"].sum())

        async def body(ctx: Context) -> float:
            df = await load(1000)
            values = await array(df)
            got = await total(values, df)
            assert got == await total(values, df)  # the second occurrence
            await ctx.ui.confirm("Go on?", name="go", show=df.head())
            return got

        execution = await world.start(body)
        await asked(execution)
        await world.restart()
        execution = await world.resume(execution.run_id, body)
        await world.answer(execution, True)
        assert (await rest(execution)).result == 999_000.0
        assert world.effects == {"load": 1, "array": 1, "total": 2}
        assert types_of(execution).count("prompt.opened") == 1
        await world.close()

    asyncio.run(main())


def test_waits_of_one_run_outlive_another_run() -> None:
    """A retry that waits on a virtual clock goes on although the run that made the clock's timer first has ended."""

    async def main() -> None:
        clock = VirtualClock()
        world = World(clock)

        @step(retry=Retry(max_attempts=2, interval_s=50, max_interval_s=50, jitter=False))
        async def flaky(n: int) -> int:
            world.did(f"flaky {n}")
            if world.effects[f"flaky {n}"] == 1:
                raise OSError("down")
            return n

        async def short(ctx: Context) -> None:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(flaky(1), 0.001)

        async def long(ctx: Context) -> int:
            return await flaky(2)

        with clock.busy():
            first, second = await world.start(short), await world.start(long)
            await rest(first)
        assert (await rest(second)).result == 2
        await world.close()

    asyncio.run(main())
