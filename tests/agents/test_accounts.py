"""Accounts of providers beside the usual one, and the levels that models have."""

from __future__ import annotations

from typing import Any

import pytest

from loom_kernel.agents import catalogue
from loom_kernel.agents.accounts import asked, check, variable
from loom_kernel.errors import SettingsError


@pytest.mark.parametrize(
    ("name", "model", "account"),
    [
        ("openai-1/gpt-5-mini", "openai/gpt-5-mini", "openai-1"),
        ("together_ai-12/meta/llama", "together_ai/meta/llama", "together_ai-12"),
        ("openai/gpt-5-mini", "openai/gpt-5-mini", None),
        ("gpt-4", "gpt-4", None),  # a number, but no provider
        ("openai/gpt-4", "openai/gpt-4", None),
        ("us-east/claude", "us-east/claude", None),
        ("-1/x", "-1/x", None),
    ],
)
def test_only_a_numbered_provider_is_an_account(name: str, model: str, account: str | None) -> None:
    """What looks alike is left alone."""
    assert asked(name) == (model, account)


def test_the_key_of_an_account_is_in_the_environment_only() -> None:
    """Its variable has the account's name, or another one; a key in the file is refused without being shown."""
    assert variable("openai-1", {}) == "OPENAI_1_API_KEY"
    assert variable("openai-1", {"openai-1": {"api_key_env": "WORK_KEY"}}) == "WORK_KEY"
    good: dict[str, Any] = {"openai-1": {"api_key_env": "A", "api_base": "http://localhost"}}
    assert check(good) == good
    with pytest.raises(SettingsError, match=r"accounts.openai-1.*'api_key' is not known") as raised:
        check({"openai-1": {"api_key": "sk-secret-secret"}})
    assert "sk-secret" not in str(raised.value)
    with pytest.raises(SettingsError, match="openai-1 is a table"):
        check({"openai-1": "sk"})


def test_an_accounts_models_are_its_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same prices, under the account's name, and of the same provider, so that limits hold for both."""
    for names in catalogue.KEYS.values():
        for name in names:
            monkeypatch.delenv(name, raising=False)
    accounts: dict[str, Any] = {"openai-1": {"api_key_env": "WORK_KEY"}}
    assert catalogue.with_key(catalogue.priced(), accounts) == []
    monkeypatch.setenv("WORK_KEY", "x")
    found = {one.id: one for one in catalogue.with_key(catalogue.priced(), accounts)}
    assert "openai/gpt-5-mini" not in found  # that account has no key
    mine, usual = found["openai-1/gpt-5-mini"], catalogue.known("openai/gpt-5-mini")
    assert usual is not None
    assert (mine.provider, mine.input_cost, mine.efforts) == ("openai", usual.input_cost, usual.efforts)
    assert catalogue.known("openai-1/gpt-5-mini") == usual == catalogue.known("gpt-5-mini")


@pytest.mark.parametrize(
    ("model", "asked_for", "effective"),
    [
        ("openai/gpt-5", "xhigh", "high"),
        ("openai/gpt-5", "minimal", "minimal"),
        ("openai-1/gpt-5", "max", "high"),
        ("openai/gpt-5.1", "minimal", "low"),  # nothing below: its lowest
        ("openai/gpt-5.5", "max", "xhigh"),
        ("anthropic/claude-opus-4-6", "max", "max"),
        ("anthropic/claude-sonnet-4-5", "xhigh", "high"),
        ("openai/gpt-4o-mini", "high", None),
        ("local/smollm2-135m", "low", None),
        ("openai/gpt-4o-mini", "off", "off"),
        ("openai/gpt-5", None, None),
        ("scripted/demo", "max", "max"),
    ],
)
def test_a_level_that_a_model_has_not_is_the_nearest_that_it_has(
    model: str, asked_for: Any, effective: str | None
) -> None:
    """Source: "the selected model's capability map still governs whether xhigh or max is available"."""
    assert catalogue.effective(model, asked_for) == effective


def test_levels_to_choose_from_are_those_of_the_model() -> None:
    """``off`` is always one, where there are others; a model that does not reason has none."""
    assert catalogue.levels_of("openai/gpt-5") == ("off", "minimal", "low", "medium", "high")
    assert catalogue.levels_of("openai/gpt-4o-mini") == ()
    assert catalogue.levels_of("local/smollm2-135m") == ()
    assert len(catalogue.levels_of("scripted/demo")) == 7
