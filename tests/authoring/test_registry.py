"""Names of workflows and where they are found."""

from __future__ import annotations

import pytest

from loom_kernel.authoring.context import Context
from loom_kernel.authoring.registry import create_registry, normalize_workflow_name, workflow_names_equal
from loom_kernel.authoring.workflow import define
from loom_kernel.errors import DefinitionError, UnknownWorkflowError


async def clean_up(ctx: Context) -> None: ...


@pytest.mark.parametrize(
    ("name", "normalized"),
    [
        ("digest", "digest"),
        (" Clean_Up  Data! ", "clean-up-data"),
        ("a--b__c", "a-b-c"),
        ("-x-", "x"),
        ("Über 3", "ber-3"),
    ],
)
def test_names_are_normalized(name: str, normalized: str) -> None:
    """Case, spaces and underscores do not tell workflows apart."""
    assert normalize_workflow_name(name) == normalized
    assert workflow_names_equal(name, normalized)


@pytest.mark.parametrize("name", ["", "  ", "!!!", "__", 3])
def test_a_name_without_letters_is_refused(name: str) -> None:
    """Nothing would be left to find it by."""
    with pytest.raises(DefinitionError):
        normalize_workflow_name(name)


def test_registering_again_replaces() -> None:
    """Running a cell again gives the newer definition; a body that runs keeps its own."""
    registry = create_registry()
    old, new = define(clean_up), define(clean_up)
    assert registry.register(old) is old
    registry.register(new)
    assert registry.get("Clean Up") is new
    assert registry.names() == ["clean_up"]
    assert registry.all() == [new]
    assert "clean-up" in registry
    assert registry.remove("CLEAN UP")
    assert not registry.remove("clean_up")
    assert len(registry) == 0


def test_an_unknown_name_lists_the_known() -> None:
    """What to type instead is in the sentence."""
    registry = create_registry()
    with pytest.raises(UnknownWorkflowError, match="none yet; run the cell"):
        registry.get("clean")
    registry.register(define(clean_up))
    with pytest.raises(UnknownWorkflowError, match="Known: clean_up"):
        registry.get("clean")


def test_merging_makes_a_new_one() -> None:
    """On equal names the other wins; neither is changed."""
    one, two = create_registry(), create_registry()
    first, second = define(clean_up), define(clean_up)
    one.register(first)
    two.register(second)
    two.register(define(clean_up, name="other"))
    merged = one.merge(two)
    assert merged.get("clean_up") is second
    assert len(merged) == 2
    assert one.get("clean_up") is first


def test_a_registry_may_begin_with_definitions() -> None:
    """``has`` and ``get`` take either spelling of a name."""
    registry = create_registry([define(clean_up, name="Clean Up"), define(clean_up, name="other")])
    assert registry.names() == ["Clean Up", "other"] and registry.has("clean_up") and not registry.has("clean")
    assert registry.get("CLEAN-UP").name == "Clean Up"


def test_only_definitions_are_registered() -> None:
    """A function without the decorator is not a workflow."""
    with pytest.raises(DefinitionError, match="write @workflow above an async function"):
        create_registry().register(clean_up)  # type: ignore[arg-type]
