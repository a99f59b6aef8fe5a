"""What all stages of a process share: the doors to models, settings, tools, and what the notebook plugs in."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loom_kernel import events as ev
from loom_kernel.agents import mcp
from loom_kernel.agents.adapters import NO_HOOKS, Hooks
from loom_kernel.agents.approval import allowed
from loom_kernel.agents.asking import Limiter, RetrySettings
from loom_kernel.agents.builtin.python import ScratchKernel
from loom_kernel.agents.doors import Candidate, Doors
from loom_kernel.agents.messaging import Bus
from loom_kernel.agents.routing import Routing, route
from loom_kernel.agents.spec import Spec
from loom_kernel.agents.toolbox import builtin, resolve, servers
from loom_kernel.agents.tools import Tool
from loom_kernel.authoring.agents import RouterSelection
from loom_kernel.engine.redact import BLOT, redact_shapes
from loom_kernel.errors import SettingsError
from loom_kernel.project.worktrees import SYMLINKED

if TYPE_CHECKING:
    from loom_kernel.agents.run_models import RunModels
    from loom_kernel.agents.stage import Stage
    from loom_kernel.engine.stages import StagePort, Turn


@dataclass(kw_only=True)
class Agents:
    """One for each runtime; ``for_run`` is the capability ``models``.

    Args:
        doors: to the models.
        model: the name of the model that stages use which name none; asked each time, since it may be configured.
        fallback_models: the chain behind it.
        roles: names that stand for models.
        retry: how often a candidate is tried.
        at_once: turns at work in one family of runs.
        folder: where runs keep files: transcripts.
        patterns: regular expressions of further secrets.
        limiter: of rates, by name.
        bus: carries messages between stages.
        hooks: what starts of runs brought along, by the outermost run.
        routing: the person's limits for ``model="auto"``.
        script: the file of scripted models.
        accounts: further credentials, by account.
        mcp: MCP servers, by name.
        symlinked: folders that temporary worktrees share with their checkout.
        agent_dir: where prompt templates and skills are.
        plugs: what tools need from outside: ``sql``, ``notebook``, ``delegate``.
        interactive: whether somebody is there to be asked.
    """

    doors: Doors
    model: Callable[[], str | None]
    fallback_models: tuple[str, ...] = ()
    roles: Mapping[str, str] = field(default_factory=dict)
    retry: RetrySettings = field(default_factory=RetrySettings)
    at_once: int | None = None
    folder: Callable[[], Path | None] = lambda: None
    patterns: tuple[str, ...] = ()
    plugs: Mapping[str, Callable[..., Awaitable[Any]]] = field(default_factory=dict)
    interactive: Callable[[], bool] = lambda: True
    limiter: Limiter | None = None
    bus: Bus = field(default_factory=Bus)
    hooks: dict[str, Hooks] = field(default_factory=dict)
    routing: Routing = field(default_factory=Routing)
    script: str | Path | None = None
    accounts: Mapping[str, Any] = field(default_factory=dict)
    mcp: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    symlinked: Sequence[str] = SYMLINKED
    agent_dir: Callable[[], Path | None] = lambda: None

    def __post_init__(self) -> None:
        try:
            self._secrets = [re.compile(pattern) for pattern in self.patterns]
        except re.error as error:
            raise SettingsError(f"redact in loom.toml: {error.pattern!r} is no regular expression: {error}") from None

    def hooks_of(self, root_run_id: str) -> Hooks:
        """What the run's start brought along."""
        return self.hooks.get(root_run_id, NO_HOOKS)

    def somebody(self, root_run_id: str) -> bool:
        """Whether a person can be asked in that run."""
        said = self.hooks_of(root_run_id).interactive
        return self.interactive() if said is None else said

    def redact(self, text: str) -> str:
        """The text without what has the shape of a key, and what the project says is one."""
        text = redact_shapes(text)
        for pattern in self._secrets:
            text = pattern.sub(BLOT, text)
        return text

    def expand(self, text: str, spec: Spec) -> str:
        """``/name arguments`` and ``/skill:name`` as what their files say."""
        from loom_kernel.agents.templates import expand

        return expand(text, spec.agent_dir or self.agent_dir())

    @contextlib.asynccontextmanager
    async def tools_of(self, spec: Spec, turn: Turn, stage: Stage) -> AsyncIterator[dict[str, Tool]]:
        """The stage's tools by name, while it is at work."""
        async with contextlib.AsyncExitStack() as stack:
            kernel = await stack.enter_async_context(ScratchKernel())
            tools: list[Tool] = []
            if wanted := {name: self.mcp[name] for name in servers(spec, self.mcp)}:
                at_hand = mcp.served(spec.name, wanted, spec.mcp, retry=self.retry, sleep=turn.sleep)
                tools = await stack.enter_async_context(at_hand)
            known = builtin({**self.plugs, "delegate": stage.delegate}, kernel)
            known["intercom"] = stack.enter_context(stage.joined(turn, spec))
            yield resolve(stage.what, spec, known, tools, interactive=self.somebody(turn.root_run_id))

    async def approve(
        self, spec: Spec, tool: Tool, arguments: dict[str, Any], turn: Turn, call_id: str, approved: set[str]
    ) -> bool | str:
        """Whether the call may be made: True, or the sentence that the model is told."""
        return await allowed(spec, tool, arguments, turn, call_id, approved)

    async def route(self, turn: Turn, spec: Spec, chain: list[Candidate], text: str) -> list[Candidate]:
        """The chain with ``auto`` chosen, and without what the constraints exclude."""
        return await route(self, turn, spec, chain, text)

    def selection(self, routed: ev.ModelRouted) -> RouterSelection:
        """As results have it."""
        return RouterSelection(
            model=routed.model,
            effort=routed.effort or None,
            fallbacks=tuple(routed.fallbacks),
            candidates=tuple(routed.candidates),
        )

    def for_run(self, port: StagePort) -> RunModels:
        """What ``ctx.task`` and its like do in one run."""
        from loom_kernel.agents.run_models import RunModels

        return RunModels(self, port)
