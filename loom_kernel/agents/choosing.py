"""Choosing a model by hand: which there are, fetching one, trying one. Behind ``loom model`` and ``%loom model``."""

from __future__ import annotations

import time
from difflib import get_close_matches
from typing import Any, NamedTuple

from loom_kernel.agents.catalogue import KEYS, Catalogue, ModelInfo, priced
from loom_kernel.agents.doors import candidate
from loom_kernel.agents.failures import RULES
from loom_kernel.agents.home import Agents
from loom_kernel.agents.local import catalogue as local
from loom_kernel.agents.local import store
from loom_kernel.agents.model import ModelFailure, Request
from loom_kernel.errors import SettingsError, StageFailed

COLUMNS = ("model", "state", "input $/M", "output $/M", "context")
PROMPT = "Say hello in at most five words."


def rows(home: Agents, text: str = "", *, everything: bool = False) -> list[list[Any]]:
    """Models as a table: those that can be asked here first; with ``everything`` also those without a key.

    Args:
        text: only models whose name holds it.
    """
    current = home.model()
    found: list[list[Any]] = []
    here = Catalogue(home).list_models()
    known = {info.id for info in here}
    others = [info for info in priced().values() if info.id not in known] if everything or text else []
    for info in [*here, *others]:
        if text.lower() in info.id.lower():
            chosen = current is not None and candidate(current).name == info.id
            found.append([info.id, "chosen" if chosen else _state(info, info.id in known), info.input_cost, info.output_cost, info.context_window])  # fmt: skip
    if current is not None and candidate(current).name not in {row[0] for row in found} and text.lower() in current:
        found.insert(0, [current, "chosen", None, None, None])
    return found


def _state(info: ModelInfo, usable: bool) -> str:
    if info.provider == "local":
        one = local.find(info.id)
        assert one is not None
        return "here" if store.present(one) else f"{one.size / 1e6:.0f} MB to fetch"
    if usable:
        return "ready"
    variables = KEYS.get(info.provider)
    return f"needs {variables[0]}" if variables else "needs its provider's key"


def check(name: str) -> str:
    """The name, where it can be a model's.

    Raises:
        SettingsError: it cannot; the nearest known ones are named.
    """
    one = candidate(name)
    if one.provider == "local" and local.find(one.name) is None:
        there = ", ".join(f"local/{info.name}" for info in local.known())
        raise SettingsError(f"there is no local model {name!r}; there are {there}, or any GGUF by LOOM_LOCAL_MODEL")
    if one.provider in ("scripted", "local") or one.name == "auto":
        return name
    known = priced()
    if (
        not known
        or one.name in known
        or ("/" in one.name and one.name.partition("/")[0] not in {i.provider for i in known.values()})
    ):
        return name
    near = get_close_matches(one.name, known, 3) or get_close_matches(one.name, [i.partition("/")[2] for i in known], 3)
    if "/" not in one.name:
        raise SettingsError(
            f"{name!r} names no provider; write provider/model" + (f", such as {_full(near[0])}" if near else "")
        )
    return name  # newer than the list, perhaps: its provider will say


def _full(name: str) -> str:
    return next((one for one in priced() if one == name or one.endswith(f"/{name}")), name)


def pull(name: str, progress: store.Progress | None, *, offline: bool) -> str:
    """Fetch a local model's bytes; where they lie then. Blocks.

    Raises:
        SettingsError: there is no such model.
        ModelBytesError: they cannot be had.
    """
    info = local.find(name)
    if info is None:
        there = ", ".join(one.name for one in local.known())
        raise SettingsError(f"there is no local model {name!r} to fetch; there are {there}")
    return str(store.ensure(info, progress, offline=offline))


class Tried(NamedTuple):
    """What a model said, and what that took."""

    model: str
    text: str
    seconds: float
    input_tokens: int
    output_tokens: int
    cost_usd: float | None


async def attempt(home: Agents, name: str | None, prompt: str | None = None, on_text: Any = None) -> Tried:
    """Ask a model one thing.

    Raises:
        StageFailed: it cannot; one sentence says why.
    """
    from loom_kernel.agents.stage import NO_MODEL

    chosen = name or home.model()
    if chosen is None:
        raise StageFailed("model", "missing_api_key", NO_MODEL)
    one = candidate(home.roles.get(chosen, chosen))
    began = time.perf_counter()
    try:
        reply = await home.doors.of(one).complete(
            Request(
                model=one.name,
                messages=[{"role": "user", "content": prompt or PROMPT}],
                level=one.level,
                max_tokens=200,
                timeout_s=120.0,
            ),
            on_text,
        )
    except ModelFailure as failure:
        message = home.redact(failure.message)
        raise StageFailed("model", failure.code, f"{one}: {message}", RULES[failure.code].disposition) from None
    used = reply.usage
    return Tried(
        str(one),
        home.redact(reply.text),
        time.perf_counter() - began,
        used.input_tokens,
        used.output_tokens,
        used.cost_usd,
    )
