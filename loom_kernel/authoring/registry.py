"""Names of workflows: how they are written, compared and found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from loom_kernel.errors import DefinitionError, UnknownWorkflowError
from loom_kernel.once import once

if TYPE_CHECKING:
    from loom_kernel.authoring.workflow import WorkflowDefinition


def normalize_workflow_name(name: str) -> str:
    """The name that identifies a workflow: ``" Clean_Up  Data! "`` becomes ``"clean-up-data"``.

    Trimmed, lower case, white space and underscores to one hyphen, everything but ``a-z0-9-`` dropped.

    Raises:
        DefinitionError: not a string, or nothing is left.
    """
    if not isinstance(name, str):
        raise DefinitionError(f"a workflow's name is a string, not a {type(name).__name__}")
    text = re.sub(r"[\s_]+", "-", name.strip().lower())
    text = re.sub(r"-+", "-", re.sub(r"[^a-z0-9-]", "", text)).strip("-")
    if not text:
        raise DefinitionError(f"the workflow name {name!r} has no letter or digit in it; use some of a-z and 0-9")
    return text


def workflow_names_equal(a: str, b: str) -> bool:
    """Whether both names mean the same workflow."""
    return normalize_workflow_name(a) == normalize_workflow_name(b)


class Registry:
    """Definitions by normalized name. Registering a name again replaces it; running bodies keep theirs."""

    def __init__(self) -> None:
        self._definitions: dict[str, WorkflowDefinition[..., Any]] = {}

    def register(self, definition: WorkflowDefinition[..., Any]) -> WorkflowDefinition[..., Any]:
        """Add or replace; returns the definition.

        Raises:
            DefinitionError: it is not a workflow definition.
        """
        name = getattr(definition, "normalized_name", None)
        if not isinstance(name, str):
            raise DefinitionError(
                f"a {type(definition).__name__} is not a workflow; write @workflow above an async function"
            )
        self._definitions[name] = definition
        return definition

    def get(self, name: str) -> WorkflowDefinition[..., Any]:
        """Raises: UnknownWorkflowError, which lists the known names."""
        try:
            return self._definitions[normalize_workflow_name(name)]
        except (KeyError, DefinitionError):
            raise UnknownWorkflowError(str(name), (d.name for d in self._definitions.values())) from None

    def has(self, name: str) -> bool:
        """Whether a workflow of that name is here."""
        try:
            return normalize_workflow_name(name) in self._definitions
        except DefinitionError:
            return False

    def names(self) -> list[str]:
        """The display names, sorted."""
        return sorted(d.name for d in self._definitions.values())

    def all(self) -> list[WorkflowDefinition[..., Any]]:
        """The definitions, in the order of their names."""
        return sorted(self._definitions.values(), key=lambda d: d.name)

    def merge(self, other: Registry) -> Registry:
        """A new registry with both; on equal names ``other`` wins."""
        merged = Registry()
        merged._definitions = {**self._definitions, **other._definitions}
        return merged

    def remove(self, name: str) -> bool:
        """Forget a name; False when it was not there."""
        return self.has(name) and self._definitions.pop(normalize_workflow_name(name), None) is not None

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.has(name)

    def __iter__(self) -> Iterator[WorkflowDefinition[..., Any]]:
        return iter(self.all())

    def __len__(self) -> int:
        return len(self._definitions)

    def __repr__(self) -> str:
        return f"Registry({', '.join(self.names())})"


def create_registry(initial: Iterable[WorkflowDefinition[..., Any]] = ()) -> Registry:
    """A registry of its own, apart from the one that ``@workflow`` fills.

    Args:
        initial: what is in it from the beginning; of equal names the last counts.
    """
    made = Registry()
    for definition in initial:
        made.register(definition)
    return made


registry: Registry = once("registry", Registry)
"""Where ``@workflow`` and ``%%workflow`` register what they define; the same one when this is loaded again."""
