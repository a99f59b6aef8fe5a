"""``model="auto"``: what may be chosen, who chooses, and that it is chosen once."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from loom_kernel import events as ev
from loom_kernel.agents import catalogue
from loom_kernel.agents.catalogue import ModelInfo
from loom_kernel.agents.routing import Routing, admits
from loom_kernel.agents.scripted import script
from loom_kernel.authoring.agents import ModelConstraints
from loom_kernel.authoring.context import Context
from loom_kernel.errors import LoomError
from tests.agents.harness import ModelWorld
from tests.engine.harness import asked, events_of, rest

CHEAP = ModelInfo(id="a/cheap", provider="a", input_cost=1.0, output_cost=2.0, context_window=8_000)
DEAR = ModelInfo(
    id="b/dear", provider="b", input_cost=10.0, output_cost=30.0, context_window=200_000, inputs=("text", "image"), efforts=("low", "high"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("limits", "cheap", "dear"),
    [
        ({}, True, True),
        ({"allowed_models": ["b/dear"]}, False, True),
        ({"allowed_models": []}, False, False),
        ({"allowed_providers": ["a"]}, True, False),
        ({"excluded_providers": ["a"]}, False, True),
        ({"max_input_cost": 5.0}, True, False),
        ({"max_output_cost": 30.0}, True, True),
        ({"min_context_window": 100_000}, False, True),
        ({"required_inputs": ["image"]}, False, True),
        ({"allowed_efforts": [None]}, True, False),
        ({"allowed_efforts": ["high"]}, False, True),
    ],
)
def test_constraints_hold_each_by_itself(limits: dict[str, Any], cheap: bool, dear: bool) -> None:
    """An empty list admits none; what nobody knows keeps no limit."""
    constraints = ModelConstraints(**limits)
    assert [admits(constraints, CHEAP), admits(constraints, DEAR)] == [cheap, dear]
    unknown = ModelInfo(id="c/x", provider="c")
    assert admits(ModelConstraints(max_input_cost=1.0), unknown) is False


def test_auto_asks_the_router_once_and_keeps_its_choice() -> None:
    """It sees the whole prompt and the candidates; a restart asks nobody; the result says what was chosen from what."""

    async def main() -> None:
        world = ModelWorld(
            routing=Routing(router_model="scripted/router", excluded_models=["scripted/router", *_others()])
        )

        async def body(ctx: Context) -> Any:
            found = await ctx.task(
                "t", prompt="do the work", previous="of yesterday", model="auto", tools=["ask_user_question"]
            )
            return [found.text, found.router_selection, found.model]

        choice = {"model": "scripted/two", "fallbacks": ["scripted/one"]}
        ask = {"tool": {"name": "ask_user_question", "arguments": {"question": "Which?"}}}
        with script("router", [{"json": choice}]) as router, script("one", ["1"]), script("two", [ask, "2"]) as two:
            execution = await world.start(body)
            await asked(execution)
            await world.restart()
            execution = await world.resume(execution.run_id, body)
            await world.answer(execution, "x")
            await world.answer(execution, "Ready to move on", "t-ready")
            text, selection, model = (await rest(execution)).result
        assert (text, model, len(router.requests), len(two.requests)) == ("2", "scripted/two", 1, 2)
        assert (selection.model, selection.fallbacks) == ("scripted/two", ("scripted/one",))
        assert set(selection.candidates) == {"scripted/one", "scripted/two"}
        assert "do the work" in router.requests[0].messages[1]["content"]
        assert "of yesterday" in router.requests[0].messages[1]["content"]
        assert len(events_of(execution, ev.ModelRouted)) == 1
        await world.close()

    asyncio.run(main())


def _others() -> list[str]:
    """Models that this machine has beside the scripted ones."""
    return [one.id for one in itertools.chain(catalogue.local_models(), catalogue.with_key(catalogue.priced(), {}))]


def test_the_persons_limits_cannot_be_widened() -> None:
    """A stage's own constraints hold beside them; where nothing is left, nothing is asked."""

    async def main() -> None:
        world = ModelWorld(routing=Routing(allowed_models=["scripted/one"]))

        async def body(ctx: Context) -> Any:
            return (await ctx.task("t", prompt="x", model="auto")).model

        async def more(ctx: Context) -> Any:
            allowed = ModelConstraints(allowed_models=["scripted/two"])
            return (await ctx.task("t", prompt="x", model="auto", model_constraints=allowed)).model

        with script("one", ["1"]), script("two", []) as two:
            assert (await world.run(body)).result == "scripted/one"  # one candidate needs no router
            refused = await world.run(more)
        assert "finds no model" in str(refused.error)
        assert two.requests == []
        await world.close()

    asyncio.run(main())


def test_a_router_that_cannot_choose_leaves_the_cheapest_and_fixed_chains_keep_constraints() -> None:
    """An answer that names another model is none."""

    async def main() -> None:
        excluded = ["scripted/router", *_others()]
        world = ModelWorld(routing=Routing(router_model="scripted/router", excluded_models=excluded))

        async def body(ctx: Context) -> Any:
            chosen = await ctx.task("t", prompt="x", model="auto")
            fixed = await ctx.task(
                "u", prompt="x", model="scripted/one", fallback_models=["scripted/two"],
                model_constraints=ModelConstraints(allowed_models=["scripted/two"]),
            )  # fmt: skip
            return [chosen.model, fixed.model]

        with script("router", [{"json": {"model": "gpt-9"}}]), script("one", ["1"]), script("two", ["2"]):
            assert (await world.run(body)).result == ["scripted/one", "scripted/two"]
        await world.close()

    asyncio.run(main())


def test_before_its_first_prompt_an_auto_stage_has_no_model() -> None:
    """What needs one says so."""

    async def main() -> None:
        world = ModelWorld()

        async def body(ctx: Context) -> Any:
            stage = ctx.stage("s", model="auto", scoped_models=["scripted/one", "scripted/two"])
            said = []
            for needs in (stage.compact, stage.cycle_model):
                try:
                    await needs()
                except LoomError as error:
                    said.append(str(error))
            return said

        with script("one", []):
            said = (await world.run(body)).result
        assert len(said) == 2
        assert all("call prompt() first" in one for one in said)
        await world.close()

    asyncio.run(main())
