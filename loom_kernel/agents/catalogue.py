"""Which models there are and what they cost: litellm's price list, the local ones, the scripted ones.

The list is a file of the installed package and is read as such: looking at it imports no litellm, which takes seconds.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loom_kernel.agents import scripted
from loom_kernel.agents.accounts import asked, variable
from loom_kernel.agents.model import LEVELS, ThinkingLevel

if TYPE_CHECKING:
    from loom_kernel.agents.home import Agents

KEYS: dict[str, tuple[str, ...]] = {
    "openai": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "mistral": ("MISTRAL_API_KEY",),
    "groq": ("GROQ_API_KEY",),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "xai": ("XAI_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY",),
    "together_ai": ("TOGETHERAI_API_KEY",),
    "fireworks_ai": ("FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY"),
    "cohere": ("COHERE_API_KEY", "CO_API_KEY"),
    "perplexity": ("PERPLEXITYAI_API_KEY",),
}
"""Environment variables that hold a provider's key, any of them."""


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """One model. Costs are US dollars a million tokens, the highest of its tiers; None where nobody says.

    ``bare`` is whether litellm knows it without its provider's name, too.
    """

    id: str
    provider: str
    input_cost: float | None = None
    output_cost: float | None = None
    context_window: int | None = None
    inputs: tuple[str, ...] = ("text",)
    efforts: tuple[str | None, ...] = (None,)
    bare: bool = False


class Catalogue:
    """``ctx.models``.

    Args:
        home: the process's agents.
    """

    def __init__(self, home: Agents) -> None:
        self._home = home

    @property
    def current_model(self) -> str | None:
        """The model that stages use which name none."""
        return self._home.model()

    def list_models(self, provider: str | None = None) -> list[ModelInfo]:
        """Models that can be asked here: of providers whose key is there, local and scripted ones."""
        found = [*scripted_models(self._home.script), *local_models(), *with_key(priced(), self._home.accounts)]
        return [one for one in found if provider is None or one.provider == provider]

    def __repr__(self) -> str:
        return f"Models(current_model={self.current_model!r})"


def scripted_models(script: str | Path | None) -> list[ModelInfo]:
    """Those that a script is there for."""
    return [
        ModelInfo(id=f"scripted/{name}", provider="scripted", input_cost=0.0, output_cost=0.0, context_window=1_000_000)
        for name in scripted.names(script)
    ]


def local_models() -> list[ModelInfo]:
    """Those that run on this machine, as soon as their bytes are there."""
    catalogue = importlib.import_module("loom_kernel.agents.local.catalogue")
    return [
        ModelInfo(id=f"local/{one.name}", provider="local", input_cost=0.0, output_cost=0.0, context_window=one.context)
        for one in catalogue.known()
    ]


def with_key(models: Mapping[str, ModelInfo], accounts: Mapping[str, Any]) -> list[ModelInfo]:
    """Of these the ones whose provider has a key in the environment, or an account in the settings.

    Those of a numbered account go by its name (``openai-1/...``); their provider is still the account's source, so that
    what limits a provider limits all its accounts.
    """
    open_to = {provider for provider, names in KEYS.items() if any(os.environ.get(name) for name in names)}
    numbered: dict[str, list[str]] = {}
    for account in accounts:
        source = asked(f"{account}/")
        if source.account is None:
            open_to.add(account)
        elif os.environ.get(variable(account, accounts)):
            numbered.setdefault(source.model.rstrip("/"), []).append(account)
    return [one for one in models.values() if one.provider in open_to] + [
        dataclasses.replace(one, id=f"{account}/{one.id.removeprefix(f'{one.provider}/')}")
        for one in models.values()
        for account in numbered.get(one.provider, ())
    ]


def efforts_of(name: str) -> tuple[str | None, ...]:
    """Levels that a model has, by the price list; ``(None,)`` for one that does not reason, or that nobody knows."""
    info = known(name)
    return info.efforts if info is not None else (None,)


def known(name: str) -> ModelInfo | None:
    """What the price list says of a model, of whichever account."""
    return priced().get(asked(name).model) or _bare().get(name)


def effective(name: str, level: ThinkingLevel | None) -> ThinkingLevel | None:
    """The level that a model is asked for: that one, the nearest below it that the model has, or its lowest.

    ``off`` stays; None where the model does not reason. Scripted models take any.
    """
    if level is None or level == "off" or name.startswith("scripted/"):
        return level
    there = [one for one in LEVELS if one != "off" and one in efforts_of(name)]
    below = [one for one in there if LEVELS.index(one) <= LEVELS.index(level)]
    return below[-1] if below else there[0] if there else None


def levels_of(name: str) -> tuple[ThinkingLevel, ...]:
    """Levels that somebody may choose from for a model, ``off`` among them; empty where it does not reason."""
    if known(name) is None:
        return () if name.startswith("local/") else LEVELS
    there = efforts_of(name)
    return () if there == (None,) else tuple(one for one in LEVELS if one == "off" or one in there)


@functools.cache
def _bare() -> dict[str, ModelInfo]:
    """By the names that litellm takes without a provider."""
    return {info.id.removeprefix(f"{info.provider}/"): info for info in priced().values() if info.bare}


@functools.cache
def priced() -> dict[str, ModelInfo]:
    """Chat models of litellm's price list by id; empty where it is not installed."""
    spec = importlib.util.find_spec("litellm")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        file = Path(place) / "model_prices_and_context_window_backup.json"
        if file.is_file():
            listed = json.loads(file.read_text(encoding="utf-8"))
            return {info.id: info for name, entry in listed.items() if (info := _info(name, entry)) is not None}
    return {}


def _info(name: str, entry: Any) -> ModelInfo | None:
    if not isinstance(entry, dict) or entry.get("mode") != "chat" or name == "sample_spec":
        return None
    provider = str(entry.get("litellm_provider") or "")
    if not provider:
        return None
    id = name if name.startswith(f"{provider}/") else f"{provider}/{name}"

    def cost(kind: str) -> float | None:
        tiers = [v for k, v in entry.items() if k.startswith(f"{kind}_cost_per_token") and isinstance(v, (int, float))]
        return max(tiers) * 1e6 if tiers else None

    window = entry.get("max_input_tokens") or entry.get("max_tokens")
    return ModelInfo(
        id=id,
        provider=provider,
        input_cost=cost("input"),
        output_cost=cost("output"),
        context_window=int(window) if isinstance(window, (int, float)) else None,
        inputs=("text", "image") if entry.get("supports_vision") else ("text",),
        efforts=_efforts(entry, provider),
        bare="/" not in name,
    )


def _efforts(entry: Mapping[str, Any], provider: str) -> tuple[str | None, ...]:
    """Levels of a model. Where the list says nothing, low to high are what all that reason have."""
    said = entry.get("reasoning_effort_levels")
    if isinstance(said, list):
        words = {"off" if one == "none" else one for one in said}
        return tuple(one for one in LEVELS if one in words) or (None,)
    if not entry.get("supports_reasoning"):
        return (None,)
    has = {
        "off": entry.get("supports_none_reasoning_effort") is True,
        "minimal": entry.get("supports_minimal_reasoning_effort", provider in _BY_BUDGET) is True,
        "low": entry.get("supports_low_reasoning_effort") is not False,
        "xhigh": entry.get("supports_xhigh_reasoning_effort") is True,
        "max": entry.get("supports_max_reasoning_effort") is True,
    }
    return tuple(one for one in LEVELS if has.get(one, True))


_BY_BUDGET = frozenset({"anthropic", "gemini", "bedrock", "vertex_ai"})
"""Providers for whom litellm makes a budget of tokens of a level, so that the least one exists, too."""
