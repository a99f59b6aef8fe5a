"""The slot through which a definition starts runs. Authors' rooms do not know who runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from loom_kernel.errors import DefinitionError
from loom_kernel.policies import Budget

if TYPE_CHECKING:
    from loom_kernel.authoring.result import RunResult
    from loom_kernel.authoring.workflow import WorkflowDefinition


@dataclass(frozen=True, kw_only=True)
class Options:
    """What ``definition.options(...)`` sets; apart from the inputs so that the names never collide.

    Args:
        key: identity of the run among the unfinished ones: a start with the same key attaches or resumes.
        budget: replaces the definition's own.
        tags: labels to find the run by.
        fresh: always make a new run.
        show: show the live view where there is one.
        answers: a script of answers for this run, as name or glob to answer.
        by: who starts it, for the record.
        worker: leave the run to a worker (``loom worker FILE``) that has this version of the definition; here it is
            only recorded and can be followed.
    """

    key: str | None = None
    budget: Budget | None = None
    tags: tuple[str, ...] = ()
    fresh: bool = False
    show: bool = True
    answers: Mapping[str, Any] | None = None
    by: str = ""
    worker: bool = False

    def __post_init__(self) -> None:
        """Raises: DefinitionError when one is of another type: what is stored could not be read again."""
        for name, types, words in _TYPES:
            value = getattr(self, name)
            if not isinstance(value, types):
                raise DefinitionError(f"options({name}={value!r}): {words} is needed, not a {type(value).__name__}")
        for tag in self.tags:
            if not isinstance(tag, str):
                raise DefinitionError(f"options(tags=...): {tag!r} is a {type(tag).__name__}; tags are texts")


_TYPES: tuple[tuple[str, Any, str], ...] = (
    ("key", (str, type(None)), "a text"),
    ("budget", (Budget, type(None)), "a Budget(...)"),
    ("tags", tuple, "a tuple of texts"),
    ("answers", (Mapping, type(None)), "a mapping of questions to answers"),
    ("by", str, "a text"),
)


class Launcher(Protocol):
    """Starts and runs workflows."""

    def start(self, definition: WorkflowDefinition[..., Any], inputs: dict[str, Any], options: Options) -> Any:
        """A ``Run``; it is durable when this returns."""
        ...

    async def start_async(
        self, definition: WorkflowDefinition[..., Any], inputs: dict[str, Any], options: Options
    ) -> Any:
        """Twin of ``start``."""
        ...

    async def run(
        self, definition: WorkflowDefinition[..., Any], inputs: dict[str, Any], options: Options
    ) -> RunResult[Any]:
        """Start a run and return what it came to; never raises for the run's outcome."""
        ...

    def plan(self, definition: WorkflowDefinition[..., Any], inputs: dict[str, Any]) -> Any:
        """What a new run would do now, with nothing done."""
        ...

    async def plan_async(self, definition: WorkflowDefinition[..., Any], inputs: dict[str, Any]) -> Any:
        """Twin of ``plan``."""
        ...

    def live(self) -> bool:
        """Whether any run is being executed in this process."""
        ...


launcher: Launcher | None = None
"""The one in use. ``loom_kernel.runtime`` fills it, and is loaded for that when a definition is first started."""

host_maker: Callable[[], Any] | None = None
"""Filled by the notebook, which is loaded before the runtime: makes the host of runs once there is a runtime."""

_FILLED_BY = "loom_kernel.runtime"


def get_launcher() -> Launcher:
    """The launcher, loaded if need be."""
    if launcher is None:
        # By name and late: authors' rooms do not know who runs them, and defining a workflow loads no engine.
        import_module(_FILLED_BY).get_runtime()
    assert launcher is not None
    return launcher
