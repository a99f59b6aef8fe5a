"""A stage's options, checked and with their defaults: what :mod:`.agent` works by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from loom_kernel.agents.structured import DEADLINE_S, Wanted
from loom_kernel.authoring.agents import MaxOutput, McpScope, ModelConstraints
from loom_kernel.errors import DefinitionError

MAX_TURNS = 50
"""Calls of models in one prompt."""


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What a stage is to be. Fields are those of :class:`~loom_kernel.authoring.agents.StageOptions`."""

    name: str
    system: str | None = None
    model: str | None = None
    fallback_models: tuple[str, ...] = ()
    scoped_models: tuple[str, ...] = ()
    model_constraints: tuple[ModelConstraints, ...] = ()
    wanted: Wanted | None = None
    schema_timeout_s: float = DEADLINE_S
    tools: tuple[Any, ...] | None = None
    no_tools: str | None = None
    excluded_tools: tuple[str, ...] = ()
    custom_tools: tuple[Any, ...] = ()
    approval: Any = None
    mcp: McpScope | None = None
    max_turns: int = MAX_TURNS
    temperature: float | None = None
    timeout_s: float = 600.0
    cwd: Path | None = None
    agent_dir: Path | None = None
    session_dir: Path | None = None
    fork_from: str | None = None
    group: str | bool | None = None
    output: Path | None = None
    file_only: bool = False
    max_output: MaxOutput = field(default_factory=MaxOutput)
    artifacts: bool = True
    reads: tuple[str, ...] = ()
    worktree: bool = False
    git_worktree_dir: Path | None = None
    base_branch: str | None = None
    images: tuple[Any, ...] = ()
    no_store: bool = False
    limit: str | None = None

    @property
    def declares_models(self) -> bool:
        """Whether the stage names its own chain, which is then all of it."""
        return self.model is not None or bool(self.fallback_models)


def spec_of(what: str, name: str, options: Mapping[str, Any]) -> Spec:
    """Check options that :func:`~loom_kernel.authoring.agents.check_options` let pass.

    Raises:
        DefinitionError: a value that cannot be, or two that exclude each other.
    """

    def refuse(sentence: str) -> DefinitionError:
        return DefinitionError(f"{what}: {sentence}")

    def texts(option: str) -> tuple[str, ...]:
        given = options.get(option) or ()
        if isinstance(given, str):
            given = (given,)
        found = tuple(str(one) if isinstance(one, (str, Path)) else one for one in given)
        if not all(isinstance(one, str) and one for one in found):
            raise refuse(f"{option}={options[option]!r}: a list of texts is needed")
        return found

    def path(option: str) -> Path | None:
        given = options.get(option)
        if given is None:
            return None
        if given == "":
            raise refuse(f'{option}="": a path is needed')
        return Path(given)

    def seconds(option: str, default: float) -> float:
        given = options.get(option, default)
        if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 < given < float("inf"):
            raise refuse(f"{option}={given!r}: seconds above zero are needed")
        return float(given)

    model = options.get("model")
    if model is not None and (not isinstance(model, str) or not model.strip()):
        raise refuse(f'model={model!r}: a model\'s name is needed, such as "openai/gpt-5-mini"')
    timeout_ms = options.get("schema_timeout_ms")
    if timeout_ms is not None and (isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int) or timeout_ms < 1):
        raise refuse(f"schema_timeout_ms={timeout_ms!r}: a whole number of milliseconds above zero is needed")
    constraints = options.get("model_constraints") or ()
    constraints = (constraints,) if isinstance(constraints, ModelConstraints) else tuple(constraints)
    context, fork_from = options.get("context", "fresh"), options.get("fork_from_session_id")
    if context not in ("fresh", "fork"):
        raise refuse(f'context={context!r}: it is "fresh" or "fork"')
    if (context == "fork") is not (fork_from is not None):
        raise refuse('context="fork" goes together with fork_from_session_id=')
    output = options.get("output")
    output = None if output is False or output is None else path("output")
    mode = options.get("output_mode", "inline")
    if mode not in ("inline", "file-only"):
        raise refuse(f'output_mode={mode!r}: it is "inline" or "file-only"')
    if mode == "file-only" and output is None:
        raise refuse('output_mode="file-only" needs output=')
    if options.get("worktree") and options.get("git_worktree_dir") is not None:
        raise refuse("worktree=True and git_worktree_dir= exclude each other")
    no_tools = options.get("no_tools")
    if no_tools not in (None, "all", "builtin"):
        raise refuse(f'no_tools={no_tools!r}: it is "all" or "builtin"')
    max_turns = options.get("max_turns", MAX_TURNS)
    if isinstance(max_turns, bool) or not isinstance(max_turns, int) or max_turns < 1:
        raise refuse(f"max_turns={max_turns!r}: a whole number of at least 1 is needed")
    given_output = options.get("max_output") or MaxOutput()
    try:
        max_output = given_output if isinstance(given_output, MaxOutput) else MaxOutput(**given_output)
    except (TypeError, ValueError) as error:
        raise refuse(f"max_output={given_output!r}: {error}") from None
    mcp = options.get("mcp")
    if isinstance(mcp, Mapping):
        try:
            mcp = McpScope(**mcp)
        except TypeError as error:
            raise refuse(f"mcp={mcp!r}: {error}") from None
    tools = options.get("tools")
    if isinstance(tools, str):
        tools = (tools,)
    wanted = None
    if options.get("schema") is not None:
        try:
            wanted = Wanted(options["schema"])
        except DefinitionError as error:
            raise refuse(str(error)) from None
    approval = options.get("approval")
    words = ("never", "ask", "always")
    if approval is not None:
        said = approval.values() if isinstance(approval, Mapping) else (approval,)
        if not all(one in words for one in said):
            raise refuse(f"approval={approval!r}: it is one of never, ask, always, or a mapping from tools to these")
    return Spec(
        name=name,
        system=options.get("system"),
        model=model,
        fallback_models=texts("fallback_models"),
        scoped_models=texts("scoped_models"),
        model_constraints=constraints,
        wanted=wanted,
        schema_timeout_s=timeout_ms / 1000 if timeout_ms is not None else DEADLINE_S,
        tools=None if tools is None else tuple(cast("Sequence[Any]", tools)),
        no_tools=no_tools,
        excluded_tools=texts("excluded_tools"),
        custom_tools=tuple(options.get("custom_tools") or ()),
        approval=approval,
        mcp=mcp,
        max_turns=max_turns,
        temperature=options.get("temperature"),
        timeout_s=seconds("timeout_s", 600.0),
        cwd=path("cwd"),
        agent_dir=path("agent_dir"),
        session_dir=path("session_dir"),
        fork_from=fork_from,
        group=options.get("group"),
        output=output,
        file_only=mode == "file-only",
        max_output=max_output,
        artifacts=options.get("artifacts", True) is not False,
        reads=() if options.get("reads") is False else texts("reads"),
        worktree=bool(options.get("worktree")),
        git_worktree_dir=path("git_worktree_dir"),
        base_branch=options.get("base_branch") or None,
        images=tuple(options.get("images") or ()),
        no_store=bool(options.get("no_store")),
        limit=options.get("limit"),
    )
