"""Models and agents as this process has them: the room ``agents`` with its settings and what it needs from elsewhere."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from loom_kernel.agents import mcp
from loom_kernel.agents.accounts import check
from loom_kernel.agents.adapters import Hooks, StageAdapters
from loom_kernel.agents.asking import RetrySettings
from loom_kernel.agents.doors import Doors
from loom_kernel.agents.home import Agents
from loom_kernel.agents.routing import Routing
from loom_kernel.errors import DefinitionError, SettingsError
from loom_kernel.project.worktrees import SYMLINKED

if TYPE_CHECKING:
    from loom_kernel.runtime.core import Runtime
    from loom_kernel.runtime.options import RunOptions

log = logging.getLogger("loom_kernel")

SQL_ROWS = 50
"""Rows of an answer that a model gets."""

T = TypeVar("T")


def agents(runtime: Runtime) -> Agents:
    """What the model stages of a runtime share.

    Raises:
        SettingsError: a table of the settings has a field that does not exist.
    """
    settings = runtime.settings
    accounts = check(settings.get("accounts") or {})
    at_once = settings.get("stages_at_once")

    def folder() -> Path | None:
        if settings.get("test") and settings.find("home").value is None:
            return None  # a journal that is thrown away leaves nothing behind
        return Path(settings.home().value) / "runs"

    def agent_dir() -> Path:
        found = settings.get("agent_dir")
        return Path(found) if found is not None else Path(settings.home().value) / "agent"

    script = settings.get("script")
    return Agents(
        doors=Doors(
            script=script,
            accounts=accounts,
            sleep=runtime.clock.sleep,
            notify=runtime.notify,
            local_file=settings.get("local_model"),
            offline=bool(settings.get("offline")),
        ),
        model=lambda: settings.get("model"),
        fallback_models=tuple(settings.get("fallback_models") or ()),
        roles=dict(settings.get("roles") or {}),
        retry=_table(RetrySettings, "retry", settings.get("retry")),
        routing=_table(Routing, "model_routing", settings.get("model_routing")),
        at_once=int(at_once) if at_once is not None else None,
        folder=folder,
        agent_dir=agent_dir,
        patterns=tuple(settings.get("redact") or ()),
        symlinked=tuple(settings.get("symlink_directories") or SYMLINKED),
        script=script,
        accounts=accounts,
        limiter=runtime.rates,
        mcp=mcp.check(settings.get("mcp") or {}),
        plugs=_plugs(runtime),
        interactive=lambda: not runtime.host.place().headless,
    )


def _plugs(runtime: Runtime) -> dict[str, Any]:
    """What tools need that agents know nothing of."""

    async def sql(query: str) -> str:
        # Nobody is asked for this tool's calls, so it is no way around what is closed to the others.
        relation = await runtime.sql_async(query, runtime.namespace(), files=False)
        return await asyncio.to_thread(lambda: str(relation.limit(SQL_ROWS)))

    plugs: dict[str, Any] = {"sql": sql}
    if hasattr(runtime.host, "run_cell"):
        plugs["notebook"] = runtime.host.run_cell
    return plugs


def _table(cls: type[T], name: str, values: Mapping[str, Any] | None) -> T:
    try:
        return cls(**(values or {}))
    except TypeError:
        known = ", ".join(cls.__dataclass_fields__)  # type: ignore[attr-defined]
        raise SettingsError(
            f"[{name}] in loom.toml: one of {', '.join(values or ())} is not known; there are: {known}"
        ) from None


def prepare(runtime: Runtime, run_id: str, more: RunOptions) -> None:
    """Keep what a start brings for the model stages of its run.

    Raises:
        DefinitionError: it is not what it should be.
    """
    given = (more.adapters, more.models, more.confirm_stage_readiness, more.on_stage_session_event, more.policy)
    if all(one is None for one in given):
        return
    for name in ("confirm_stage_readiness", "on_stage_session_event"):
        fn = getattr(more, name)
        if fn is not None and not callable(fn):
            raise DefinitionError(f"run({name}=...): a function is needed, not a {type(fn).__name__}")
    runtime.agents.hooks[run_id] = Hooks(
        adapters=StageAdapters.of(more.adapters),
        models=more.models,
        confirm_stage_readiness=more.confirm_stage_readiness,
        on_stage_session_event=more.on_stage_session_event,
        interactive=None if more.policy is None else more.policy.allow_human_input,
    )


def tell(runtime: Runtime, run_id: str, node_id: str, event: Mapping[str, Any]) -> None:
    """An event of a stage's session for whoever asked at the start; what they raise is of no concern."""
    execution = runtime.engine.executions.get(run_id)
    root = (execution.root_run_id if execution is not None else None) or run_id
    fn = runtime.agents.hooks_of(root).on_stage_session_event
    if fn is None:
        return
    try:
        done = fn(run_id, node_id, event)
    except Exception as error:
        log.debug("on_stage_session_event raised %r", error)
        return
    if inspect.isawaitable(done):
        task = asyncio.ensure_future(_ignoring(done))
        _telling.add(task)
        task.add_done_callback(_telling.discard)


_telling: set[asyncio.Future[None]] = set()


async def _ignoring(work: Awaitable[Any]) -> None:
    try:
        await work
    except Exception as error:
        log.debug("on_stage_session_event raised %r", error)
