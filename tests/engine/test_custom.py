"""Questions with a widget: when it is made, when it is gone, what it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from loom_kernel import events as ev
from loom_kernel.authoring.context import Context
from loom_kernel.authoring.people import Done
from loom_kernel.errors import AnswerError, LoomError
from tests.engine.harness import World, asked, engine_on, events_of, rest, until

pytestmark = pytest.mark.timeout(30)


class Wall:
    """Where widgets hang; anything is one."""

    def __init__(self) -> None:
        self.hung: list[Any] = []

    def check(self, widget: Any) -> None:
        if widget is None:
            raise LoomError("no widget")

    def open(self, run_id: str, widget: Any) -> Callable[[], None]:
        self.hung.append(widget)
        return lambda: self.hung.remove(widget)


class Walled(World):
    """A world whose workers can show widgets, as long as there is a wall."""

    def __init__(self) -> None:
        super().__init__()
        self.wall: Wall | None = Wall()
        self._open()

    def _open(self) -> None:
        self.engine = engine_on(self.journal, self.clock, widgets=lambda: self.wall)

    async def restart(self) -> None:
        await self.engine.close()
        self._open()


def test_another_identity_is_asked_again() -> None:
    """An answer holds for the widget's meaning: the same is replayed without a widget, another is asked anew."""

    async def main() -> None:
        world = Walled()
        wall = world.wall
        assert wall is not None

        async def body(ctx: Context) -> list[Any]:
            found = await ctx.ui.custom(lambda done: done, label=label, name="pick", replay_identity=identity)
            return [found, await ctx.ui.confirm("Done?", name="done")]

        label, identity = "Pick", "1"
        execution = await world.start(body)
        await until(lambda: wall.hung)
        wall.hung[0]({"a": 1})
        await asked(execution, "done")
        assert wall.hung == []
        await world.restart()
        label = "Pick one"
        execution = await world.resume(execution.run_id, body)
        await until(lambda: len(execution.prompts) == 1)
        assert wall.hung == [], "a label is for people"
        await world.restart()
        identity = "2"
        execution = await world.resume(execution.run_id, body)
        await until(lambda: wall.hung)
        wall.hung[0]("again")
        await world.answer(execution, True, "done")
        assert (await rest(execution)).result == ["again", True]
        await world.close()

    asyncio.run(main())


def test_without_a_place_it_fails_and_can_be_asked_later() -> None:
    """One sentence at the call, nothing is opened; what was answered needs no place."""

    async def main() -> None:
        world = Walled()
        wall, world.wall = world.wall, None

        async def body(ctx: Context) -> Any:
            return await ctx.ui.custom(lambda done: done(7) or "widget", label="Pick")

        execution = await world.start(body)
        result = await rest(execution)
        assert "ctx.ui.custom('Pick') needs an interactive notebook" in str(result.error)
        assert events_of(execution, ev.PromptOpened) == []
        world.wall = wall
        execution = await world.resume(execution.run_id, body)
        assert (await rest(execution)).result == 7
        await world.close()

    asyncio.run(main())


def test_a_deadline_takes_the_default_and_the_widget_down() -> None:
    """After that `done` says so; an async factory is awaited; a factory that fails fails the call."""

    async def main() -> None:
        world = Walled()
        kept: list[Done] = []

        async def pick(done: Done) -> str:
            kept.append(done)
            return "widget"

        def broken(done: Done) -> None:
            raise ZeroDivisionError

        async def body(ctx: Context) -> Any:
            with pytest.raises(ZeroDivisionError):
                await ctx.ui.custom(broken)
            return await ctx.ui.custom(pick, timeout_s=0.05, default={"b": None})

        execution = await world.start(body)
        assert (await rest(execution)).result == {"b": None}
        assert world.wall is not None and world.wall.hung == []
        with pytest.raises(AnswerError, match="'custom-prompt' is not open any more"):
            kept[0](1)
        await world.close()

    asyncio.run(main())
