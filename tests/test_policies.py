"""Execution policies and what one start may set."""

from __future__ import annotations

import dataclasses
from typing import get_args

import pytest

from loom_kernel.policies import (
    INTERACTIVE_POLICY,
    NON_INTERACTIVE_POLICY,
    POLICIES,
    Budget,
    ExecutionMode,
    RuntimeConfig,
)


def test_the_two_policies_are_as_the_reference_has_them_and_frozen() -> None:
    """Interactive: people answer and are asked for inputs. Non-interactive: neither, and the end is waited for."""
    assert dataclasses.astuple(INTERACTIVE_POLICY) == ("interactive", True, False, True)
    assert dataclasses.astuple(NON_INTERACTIVE_POLICY) == ("non_interactive", False, True, False)
    assert set(POLICIES) == set(get_args(ExecutionMode))
    with pytest.raises(dataclasses.FrozenInstanceError):
        INTERACTIVE_POLICY.allow_human_input = False  # type: ignore[misc]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"default_concurrency": 0}, "default_concurrency=0"),
        ({"max_depth": True}, "max_depth=True"),
        ({"budget": {"max_cost": 1}}, r"a Budget\(\.\.\.\) is needed"),
    ],
    ids=["concurrency", "depth", "budget"],
)
def test_a_config_is_checked(wrong: dict[str, object], said: str) -> None:
    """Each in one sentence."""
    with pytest.raises(ValueError, match=said):
        RuntimeConfig(**wrong)  # type: ignore[arg-type]
    assert RuntimeConfig(budget=Budget(max_cost=1), max_depth=2).persist_runs
