"""Steps: how they are declared, what a call of one is, and what happens outside of a run."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from loom_kernel.authoring.context import current, in_step
from loom_kernel.authoring.step import StepCall, StepDefinition, current_step, step
from loom_kernel.errors import DefinitionError, LoomError
from loom_kernel.policies import Retry


@step
def double(x: int, factor: int = 2) -> int:
    """Twice as much."""
    return x * factor


@step(name="slowly", timeout_s=5, retry=Retry(max_attempts=3), ignore="note")
async def later(x: int, note: str = "") -> int:
    await asyncio.sleep(0)
    return x


def test_a_step_keeps_what_its_function_says() -> None:
    """Name, documentation and signature stay readable for people and editors."""
    assert double.name == "double"
    assert double.__doc__ == "Twice as much."
    assert list(inspect.signature(double).parameters) == ["x", "factor"]
    assert double.fn(3) == 6
    assert repr(double) == "<step double>"


def test_options_are_kept_as_given() -> None:
    """What the author asked for is on the definition."""
    assert later.name == "slowly"
    assert later.is_async
    assert later.retry.max_attempts == 3
    assert later.ignore == ("note",)
    assert (double.retry.max_attempts, double.timeout_s, double.executor, double.store) == (1, None, "thread", "full")


def test_a_name_alone_may_stand_in_the_parentheses() -> None:
    """``@step("load")`` reads well."""
    assert step("load")(lambda: 1).name == "load"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"timeout_s": 0}, "timeout_s=0"),
        ({"timeout_s": float("inf")}, "timeout_s=inf"),
        ({"limit": 0}, "limit=0"),
        ({"limit": True}, "limit=True"),
        ({"executor": "moon"}, "executor='moon' is none of thread, process, dask"),
        ({"on_unknown": "guess"}, "on_unknown='guess'"),
        ({"store": "attic"}, "store='attic'"),
        ({"ignore": ("con",)}, "ignore names 'con'"),
        ({"retry": 3}, "retry=3 should be a Retry"),
        ({"key": "x"}, "key should be a function"),
        ({"name": "a/b"}, "name"),
        ({"name": ""}, "name"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], says: str) -> None:
    """A wrong option is named when the step is defined, not when it runs."""
    with pytest.raises(DefinitionError, match="step") as caught:
        StepDefinition(double.fn, **options)
    assert says in str(caught.value)


def test_generators_and_classes_are_refused() -> None:
    """A generator has no result to keep, and a class is not a function."""

    def numbers() -> Any:
        yield 1

    async def more() -> Any:
        yield 1

    for fn in (numbers, more):
        with pytest.raises(DefinitionError, match="collect what it yields in a list"):
            step(fn)
    with pytest.raises(DefinitionError, match="above a function"):
        step(dict)


async def _gather() -> list[int]:
    return list(await asyncio.gather(double(1), later(2)))


async def _group() -> list[int]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(double(1)), group.create_task(later(2))]
    return [t.result() for t in tasks]


async def _wait_for() -> list[int]:
    return [await asyncio.wait_for(double(1), 5), await asyncio.wait_for(later(2), 5)]


async def _as_completed() -> list[int]:
    return sorted([await c for c in asyncio.as_completed([double(1), later(2)])])


async def _shield() -> list[int]:
    return [await asyncio.shield(double(1)), await asyncio.shield(later(2))]


@pytest.mark.parametrize("way", [_gather, _group, _wait_for, _as_completed, _shield])
def test_a_call_is_a_coroutine_to_asyncio(way: Callable[[], Coroutine[Any, Any, list[int]]]) -> None:
    """A call works wherever asyncio takes a coroutine."""
    assert asyncio.run(way()) == [2, 2]
    call = double(1)
    assert asyncio.iscoroutine(call)
    call.close()


def test_a_call_binds_its_arguments_when_it_is_made() -> None:
    """Defaults are part of what identifies the call, however it was written."""
    calls = [double(3), double(x=3), double(3, 2), double(factor=2, x=3)]
    assert all(c.arguments == {"x": 3, "factor": 2} for c in calls)
    assert calls[0].where.startswith("test_step.py, line ")
    for call in calls:
        call.close()


def test_wrong_arguments_raise_at_the_call() -> None:
    """Like a plain function, and with its name."""
    with pytest.raises(TypeError, match=r"double\(\) missing a required argument: 'x'"):
        double()  # type: ignore[call-arg]


def test_within_a_step_another_is_the_plain_function() -> None:
    """A step within a step is part of it."""

    @step
    def outer(x: int) -> int:
        return double(x) + 1  # type: ignore[operator]

    async def body() -> int:
        return await outer(2)

    assert asyncio.run(body()) == 5
    assert in_step.get() is None


def test_a_call_that_is_never_awaited_is_a_warning_with_its_line() -> None:
    """Forgetting ``await`` is the commonest mistake, so it is named."""
    with pytest.warns(RuntimeWarning, match=r"step 'double' was called at test_step.py, line \d+ and never awaited"):
        double(1)


def test_a_call_is_made_by_the_run_it_belongs_to() -> None:
    """The engine sees a call when it is made and runs it when it is awaited."""
    seen: list[str] = []

    class Fake:
        def _call_step(self, call: StepCall[Any]) -> Coroutine[Any, Any, Any]:
            seen.append("made")

            async def work() -> Any:
                seen.append("awaited")
                return call.arguments["x"] * 100

            return work()

    async def body() -> int:
        token = current.set(Fake())  # type: ignore[arg-type]
        try:
            call = double(2)
            assert seen == ["made"]
            return await call
        finally:
            current.reset(token)

    assert asyncio.run(body()) == 200
    assert seen == ["made", "awaited"]


def test_current_step_knows_the_attempt_and_only_within_a_step(capsys: pytest.CaptureFixture[str]) -> None:
    """Code of a step may be tried outside of a run without changing it."""

    @step
    def speak() -> int:
        current_step().progress(1, 2)
        current_step().log("hello")
        assert not current_step().cancelled
        return current_step().attempt

    async def body() -> int:
        return await speak()

    assert asyncio.run(body()) == 1
    assert capsys.readouterr().out == "hello\n"
    with pytest.raises(LoomError, match="inside the body of a @step"):
        current_step()


def test_a_step_on_a_class_gets_its_instance() -> None:
    """A method may be a step; its instance is an argument like others."""

    class Reader:
        def __init__(self) -> None:
            self.base = 10

        @step(ignore=("self",))
        def read(self, x: int) -> int:
            return self.base + x

    async def body() -> int:
        return await Reader().read(1)

    assert asyncio.run(body()) == 11


def test_code_changes_only_with_the_code() -> None:
    """Comments and formatting of a step do not make it another one."""
    assert double.code == StepDefinition(double.fn, name="other").code
    assert double.code != later.code
    assert len(StepDefinition(functools.partial(print, 1)).code) == 16
