"""``model="auto"``: which of the models that are allowed suits a prompt; and what constraints leave of a chain."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from loom_kernel import events as ev
from loom_kernel.agents.accounts import asked
from loom_kernel.agents.asking import Asker
from loom_kernel.agents.catalogue import Catalogue, ModelInfo, known
from loom_kernel.agents.doors import Candidate, candidate
from loom_kernel.agents.spec import Spec
from loom_kernel.agents.structured import Invalid, Wanted
from loom_kernel.authoring.agents import ModelConstraints
from loom_kernel.engine.stages import Turn
from loom_kernel.errors import StageFailed

if TYPE_CHECKING:
    from loom_kernel.agents.home import Agents

OFFERED = 40
"""Candidates that the router is shown, the cheapest first."""

FALLBACKS = 3

_ASK = (
    "Choose the model that should do the task below: the cheapest that will surely do it well. Rank up to three others "
    "that could stand in for it. Answer with ids from the list only."
)


@dataclass(frozen=True, kw_only=True)
class Routing:
    """``[model_routing]`` in ``loom.toml``: the person's own limits, for ``auto`` only; no stage can widen them."""

    allowed_models: Sequence[str] | None = None
    excluded_models: Sequence[str] = ()
    allowed_providers: Sequence[str] | None = None
    excluded_providers: Sequence[str] = ()
    router_model: str | None = field(default=None)

    def admits(self, info: ModelInfo) -> bool:
        """Whether a model may be chosen."""
        return (
            (self.allowed_models is None or info.id in self.allowed_models)
            and info.id not in self.excluded_models
            and (self.allowed_providers is None or info.provider in self.allowed_providers)
            and info.provider not in self.excluded_providers
        )


def admits(limits: ModelConstraints, info: ModelInfo) -> bool:
    """Whether a model keeps the limits. What nobody knows of a model keeps no limit on it."""

    def at_most(value: float | None, ceiling: float | None) -> bool:
        return ceiling is None or (value is not None and value <= ceiling)

    return (
        (limits.allowed_models is None or info.id in limits.allowed_models)
        and (limits.allowed_providers is None or info.provider in limits.allowed_providers)
        and info.provider not in (limits.excluded_providers or ())
        and (limits.allowed_efforts is None or any(e in limits.allowed_efforts for e in info.efforts))
        and at_most(info.input_cost, limits.max_input_cost)
        and at_most(info.output_cost, limits.max_output_cost)
        and (limits.min_context_window is None or (info.context_window or 0) >= limits.min_context_window)
        and all(kind in info.inputs for kind in limits.required_inputs or ())
    )


def efforts(info: ModelInfo, limits: Iterable[ModelConstraints]) -> list[str | None]:
    """Levels that a model has and all limits allow."""
    return [e for e in info.efforts if all(one.allowed_efforts is None or e in one.allowed_efforts for one in limits)]


async def route(home: Agents, turn: Turn, spec: Spec, chain: Sequence[Candidate], text: str) -> list[Candidate]:
    """The chain as it is asked: ``auto`` replaced by a choice and its fallbacks, excluded candidates left out.

    The choice is made once a turn and recorded.

    Raises:
        StageFailed: nothing is left; the sentence names the limits.
    """
    limits = spec.model_constraints
    found: list[Candidate] = []
    for one in chain:
        if one.name == "auto":
            found += await _auto(home, turn, spec, limits, text)
        elif all(admits(limit, _known(home, one)) and _level_fits(limit, one) for limit in limits):
            found.append(one)
    unique = list(dict.fromkeys(found))
    if not unique:
        raise StageFailed(spec.name, "unknown", f"none of {', '.join(map(str, chain))} keeps its model_constraints")
    return unique


def _known(home: Agents, one: Candidate) -> ModelInfo:
    info = known(one.name)
    if info is not None:
        return dataclasses.replace(info, id=one.name)
    info = next((m for m in Catalogue(home).list_models() if m.id == one.name), None)
    return info or ModelInfo(id=one.name, provider=asked(one.name).model.partition("/")[0])


def _level_fits(limit: ModelConstraints, one: Candidate) -> bool:
    return limit.allowed_efforts is None or one.level is None or one.level in limit.allowed_efforts


async def _auto(home: Agents, turn: Turn, spec: Spec, limits: Sequence[ModelConstraints], text: str) -> list[Candidate]:
    routed = turn.routed
    if routed is None:
        eligible = [
            info
            for info in Catalogue(home).list_models()
            if home.routing.admits(info) and all(admits(limit, info) for limit in limits)
        ]
        if not eligible:
            raise StageFailed(
                spec.name,
                "unknown",
                'model="auto" finds no model: none that has a key here keeps the limits of model_routing and model_constraints',
            )
        eligible.sort(key=lambda info: ((info.input_cost or 0) + (info.output_cost or 0), info.id))
        routed = await _choose(home, turn, spec, eligible, limits, text)
        await turn.record(routed)
    first = f"{routed.model}:{routed.effort}" if routed.effort else routed.model
    return [candidate(first), *map(candidate, routed.fallbacks)]


async def _choose(
    home: Agents, turn: Turn, spec: Spec, eligible: list[ModelInfo], limits: Sequence[ModelConstraints], text: str
) -> ev.ModelRouted:
    ids = [info.id for info in eligible]
    by_id = {info.id: info for info in eligible}
    default = ev.ModelRouted(
        model=ids[0], effort=_effort(by_id[ids[0]], limits, None), fallbacks=ids[1 : 1 + FALLBACKS], candidates=ids
    )
    asked_of = home.routing.router_model or home.model()
    if len(ids) == 1 or asked_of is None or asked_of == "auto":
        return default
    offered = ids[:OFFERED]
    levels = sorted({e for one in offered for e in efforts(by_id[one], limits) if e is not None})
    wanted = Wanted(
        {
            "type": "object",
            "properties": {
                "model": {"type": "string", "enum": offered},
                "effort": {"type": "string", "enum": [*levels, "none"]},
                "fallbacks": {"type": "array", "items": {"type": "string", "enum": offered}, "maxItems": FALLBACKS},
            },
            "required": ["model"],
        }
    )
    listed = "\n".join(
        f"- {info.id}: ${info.input_cost or 0:g} in, ${info.output_cost or 0:g} out, {info.context_window or '?'} tokens"
        for info in map(by_id.__getitem__, offered)
    )
    asker = Asker(
        spec.name,
        [candidate(asked_of)],
        home.doors,
        retry=dataclasses.replace(home.retry, enabled=False),
        timeout_s=60.0,
    )
    messages = [
        {"role": "system", "content": f"{_ASK}\n\n{listed}"},
        {"role": "user", "content": text},
    ]
    try:
        answer = await asker.ask(
            turn, messages, tools=(), response_format=wanted.response_format, deadline_s=None, on_text=None
        )
        await turn.record(answer.event)
        chosen = wanted.read(answer.reply.text)
    except (StageFailed, Invalid) as error:
        turn.say(f"the router could not choose ({error}); the cheapest is taken")
        return default
    effort = _effort(by_id[chosen["model"]], limits, chosen.get("effort"))
    others = [one for one in dict.fromkeys(chosen.get("fallbacks", ())) if one != chosen["model"]]
    return ev.ModelRouted(model=chosen["model"], effort=effort, fallbacks=others, candidates=ids)


def _effort(info: ModelInfo, limits: Sequence[ModelConstraints], asked: str | None) -> str:
    """The level that was asked for where the model has it, else the first that limits leave; empty for none."""
    there = [e for e in efforts(info, limits) if e is not None]
    if asked in there:
        return str(asked)
    if None in efforts(info, limits) or not any(one.allowed_efforts is not None for one in limits):
        return ""
    return str(there[0]) if there else ""
