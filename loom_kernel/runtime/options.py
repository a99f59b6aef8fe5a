"""What ``run()`` may be told beside inputs and callbacks. Source: Atomic's ``RunOpts``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loom_kernel.authoring.registry import Registry
from loom_kernel.errors import DefinitionError
from loom_kernel.policies import POLICIES, Budget, ExecutionMode, ExecutionPolicy, RuntimeConfig
from loom_kernel.runtime.cancellation import CancellationRegistry, check_signal
from loom_kernel.views.store import Store

if TYPE_CHECKING:
    from loom_kernel.runtime.run import Run


@dataclass(frozen=True, kw_only=True)
class ParentRun:
    """What a run is nested in. It is listed and drawn as that run's, and silent; it ends and is resumed by itself.

    Args:
        run_id: the run that started it.
        stage_id: the node of that run which stands for it.
        root_run_id: the outermost run; ``run_id`` when left out.
    """

    run_id: str
    stage_id: str | None = None
    root_run_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """Going on with a run that failed or is blocked, as another run: finished work of the source is not repeated.

    Args:
        source: the run, its id, or its snapshot.
        resume_from: the node that runs again, with all that came after it: its name, id, or ``child/name``; what the
            source failed at when left out.
    """

    source: Run[Any] | str | Mapping[str, Any]
    resume_from: str | None = None

    @property
    def source_id(self) -> str:
        """The id of the source.

        Raises:
            DefinitionError: the source is none of those.
        """
        source = self.source
        found = source.get("id") if isinstance(source, Mapping) else getattr(source, "id", source)
        if not isinstance(found, str) or not found:
            raise DefinitionError(
                f"Continuation(source=...): a run, its id or its snapshot is needed, not a {type(source).__name__}"
            )
        return found


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """See ``loom_kernel.run``, which has one argument for each.

    Raises:
        DefinitionError: one of them cannot work; nothing was started.
    """

    cwd: str | os.PathLike[str] | None = None
    ui: Any = None
    execution_mode: ExecutionMode | None = None
    signal: Any = None
    cancellation: CancellationRegistry | None = None
    defer_workflow_start: bool = False
    config: RuntimeConfig | Mapping[str, Any] | None = None
    journal: Any = None
    registry: Registry | None = None
    depth: int = 0
    run_id: str | None = None
    continuation: Continuation | Mapping[str, Any] | None = None
    parent_run: ParentRun | Mapping[str, Any] | None = None
    store: Store | None = None
    adapters: Any = None
    models: Any = None
    confirm_stage_readiness: Callable[..., Any] | None = None
    on_stage_session_event: Callable[..., Any] | None = None
    """These four are for model stages, which take them from here."""

    def __post_init__(self) -> None:
        for name, cls in (("config", RuntimeConfig), ("continuation", Continuation), ("parent_run", ParentRun)):
            object.__setattr__(self, name, _made(name, cls, getattr(self, name)))
        for name, types, words in _TYPES:
            value = getattr(self, name)
            if value is not None and not isinstance(value, types):
                raise DefinitionError(f"run({name}=...): {words} is needed, not a {type(value).__name__}")
        if self.execution_mode is not None and self.execution_mode not in POLICIES:
            raise DefinitionError(f"run(execution_mode={self.execution_mode!r}): it is {' or '.join(POLICIES)}")
        if isinstance(self.depth, bool) or not isinstance(self.depth, int) or self.depth < 0:
            raise DefinitionError(f"run(depth={self.depth!r}): a whole number that is not negative is needed")
        if self.run_id is not None and not _is_id(self.run_id):
            raise DefinitionError(
                f"run(run_id={self.run_id!r}): an id has 1 to 64 letters, digits, hyphens and underscores, a letter or digit first"
            )
        if self.signal is not None:
            check_signal(self.signal)
        if self.cwd is not None:
            folder = Path(self.cwd).expanduser().absolute()
            if not folder.is_dir():
                raise DefinitionError(f"run(cwd={str(self.cwd)!r}): there is no such folder")
            object.__setattr__(self, "cwd", folder)
        if isinstance(self.continuation, Continuation):
            _ = self.continuation.source_id

    @property
    def policy(self) -> ExecutionPolicy | None:
        """What may be expected of people; None where the place of the call says it."""
        return POLICIES[self.execution_mode] if self.execution_mode is not None else None

    @property
    def new(self) -> bool:
        """Whether a run that is there already cannot be meant."""
        return self.run_id is not None or self.continuation is not None or self.parent_run is not None


_TYPES: tuple[tuple[str, Any, str], ...] = (
    ("cwd", (str, os.PathLike), "a folder"),
    ("run_id", str, "a text"),
    ("registry", Registry, "a Registry"),
    ("store", Store, "a Store"),
    ("cancellation", CancellationRegistry, "a CancellationRegistry"),
)


def _is_id(text: str) -> bool:
    rest = text.replace("-", "").replace("_", "")
    return 0 < len(text) <= 64 and text[0].isalnum() and rest.isalnum() and text.isascii()


def _made(name: str, cls: type[Any], value: Any) -> Any:
    """The value as an instance of its class, from a mapping too."""
    if value is None or isinstance(value, cls):
        return value
    if not isinstance(value, Mapping):
        raise DefinitionError(f"run({name}=...): a {cls.__name__} or a mapping is needed, not a {type(value).__name__}")
    known = [field.name for field in fields(cls)]
    for key in value:
        if key not in known:
            raise DefinitionError(f"run({name}=...): {key!r} is not known; there are {', '.join(known)}")
    given = dict(value)
    try:
        if cls is RuntimeConfig and isinstance(given.get("budget"), Mapping):
            given["budget"] = Budget(**given["budget"])
        return cls(**given)
    except (TypeError, ValueError) as error:
        raise DefinitionError(f"run({name}=...): {error}") from None


NOTHING = RunOptions()
"""A plain start."""
