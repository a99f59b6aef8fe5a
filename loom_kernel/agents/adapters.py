"""Other ways to answer a stage than our own agent: adapters, handed to ``run(adapters=...)``.

An adapter makes the session of each stage. :func:`create_agent_session_adapter` makes our own with options for all stages,
and one that delegates to it may change them stage by stage; one that makes another session answers by itself, and what it
says is recorded as the stage's. Source: Atomic's adapters.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from loom_kernel.authoring.agents import HOST_ONLY, STAGE_OPTIONS, check_options
from loom_kernel.errors import DefinitionError


@dataclass(frozen=True, kw_only=True)
class StageExecutionMeta:
    """Whose session is made.

    Args:
        signal: the run's CancelToken.
        mode: ``"interactive"`` or ``"non_interactive"``.
    """

    run_id: str
    stage_id: str
    stage_name: str
    group: str | None
    signal: Any
    mode: str


@runtime_checkable
class StageSessionRuntime(Protocol):
    """A session that answers by itself.

    It may also have ``subscribe(listener)``, for its events, and ``close()``; both plain or async.
    """

    async def prompt(self, text: str) -> str:
        """The answer to a prompt."""
        ...


class AgentSessionAdapter(Protocol):
    """Makes the session of a stage."""

    async def create(self, options: Mapping[str, Any], meta: StageExecutionMeta) -> Any:
        """A session, or ``{"session": ...}``: a :class:`StageSessionRuntime`, or what our own adapter gave."""
        ...


@dataclass(frozen=True)
class OwnSession:
    """Our own agent, with these options."""

    options: Mapping[str, Any] = field(default_factory=dict)


class _OwnAdapter:
    def __init__(self, base: Mapping[str, Any]) -> None:
        self._base = dict(base)

    async def create(self, options: Mapping[str, Any], meta: StageExecutionMeta | None = None) -> OwnSession:
        return OwnSession({**self._base, **options})


def create_agent_session_adapter(**base: Any) -> AgentSessionAdapter:
    """Our own agent with options for every stage; what a stage says itself wins.

    Raises:
        DefinitionError: an unknown option. ``session_manager`` is none: every stage has a session of its own.
    """
    if "session_manager" in base:
        raise DefinitionError("create_agent_session_adapter: session_manager cannot be shared; every stage has its own")
    known = {name: value for name, value in base.items() if name not in HOST_ONLY}
    return _OwnAdapter(check_options("create_agent_session_adapter", known, STAGE_OPTIONS))


@dataclass(frozen=True, kw_only=True)
class StageAdapters:
    """``run(adapters=...)``; a mapping of the same fields will do.

    Args:
        agent_session: makes the session of each stage.
        prompt: ``await prompt(text, meta)`` answers stages' prompts itself, where there is no ``agent_session``.
        complete: ``await complete(text, options, meta)`` answers ``stage.complete``.
    """

    agent_session: AgentSessionAdapter | None = None
    prompt: Callable[[str, StageExecutionMeta], Awaitable[str]] | None = None
    complete: Callable[[str, Mapping[str, Any], StageExecutionMeta], Awaitable[str]] | None = None

    @classmethod
    def of(cls, given: Any) -> StageAdapters:
        """Raises: DefinitionError: it is neither, or has a field that does not exist."""
        if isinstance(given, cls):
            return given
        if given is None:
            return cls()
        if not isinstance(given, Mapping):
            raise DefinitionError(
                f"run(adapters=...): StageAdapters or a mapping is needed, not a {type(given).__name__}"
            )
        try:
            return cls(**given)
        except TypeError:
            known = ", ".join(cls.__dataclass_fields__)
            raise DefinitionError(f"run(adapters=...): {', '.join(given)}: there are {known}") from None


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """What one run's start brought for its stages, and for those of its children."""

    adapters: StageAdapters = field(default_factory=StageAdapters)
    models: Any = None
    confirm_stage_readiness: Callable[..., Any] | None = None
    on_stage_session_event: Callable[[str, str, Mapping[str, Any]], Any] | None = None
    interactive: bool | None = None


NO_HOOKS = Hooks()


async def session_of(
    adapters: StageAdapters, options: Mapping[str, Any], meta: StageExecutionMeta
) -> OwnSession | StageSessionRuntime:
    """The session that the run's adapters make for a stage.

    Raises:
        DefinitionError: what came is no session.
    """
    if adapters.agent_session is None:
        return OwnSession(options) if adapters.prompt is None else _Prompting(adapters.prompt, meta)
    made = await adapters.agent_session.create(options, meta)
    if isinstance(made, Mapping):
        made = made.get("session")
    if isinstance(made, OwnSession):
        return made
    if not callable(getattr(made, "prompt", None)):
        raise DefinitionError(
            f"the session adapter gave a {type(made).__name__}; a session with an async prompt(text) is needed"
        )
    return made


class _Prompting:
    """Answers prompts with a function."""

    def __init__(self, answer: Callable[[str, StageExecutionMeta], Awaitable[str]], meta: StageExecutionMeta) -> None:
        self._answer, self._meta = answer, meta

    async def prompt(self, text: str) -> str:
        return await self._answer(text, self._meta)


async def closed(session: Any) -> None:
    """End a session that can be ended."""
    close = getattr(session, "close", None)
    if callable(close):
        done = close()
        if inspect.isawaitable(done):
            await done
