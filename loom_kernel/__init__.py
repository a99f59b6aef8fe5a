"""Durable workflows that live in Jupyter: watch them, answer them, restart them, query them.

The public names, loaded when they are first used, so that ``import loom_kernel`` and ``%load_ext loom_kernel`` cost
next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom_kernel._version import __version__

if TYPE_CHECKING:
    from loom_kernel.agents.adapters import StageAdapters, StageExecutionMeta, create_agent_session_adapter
    from loom_kernel.agents.compaction import keep_context
    from loom_kernel.agents.retention import WORKFLOW_ARTIFACT_RETENTION_MS
    from loom_kernel.agents.tools import Tool, ToolTurn
    from loom_kernel.authoring.agents import (
        Artifact,
        Image,
        MaxOutput,
        McpScope,
        ModelAttempt,
        ModelConstraints,
        ModelUsage,
        RouterSelection,
        StageHandle,
        Step,
        TaskResult,
        WorkflowControlEvent,
        WorkflowDetails,
        WorkflowIntercomSummary,
    )
    from loom_kernel.authoring.context import CancelToken, Context
    from loom_kernel.authoring.lint import WorkflowLintWarning
    from loom_kernel.authoring.people import People
    from loom_kernel.authoring.registry import (
        Registry,
        create_registry,
        normalize_workflow_name,
        registry,
        workflow_names_equal,
    )
    from loom_kernel.authoring.result import RunResult
    from loom_kernel.authoring.step import (
        StepCall,
        StepDefinition,
        StepHandle,
        UnrecordedStepWarning,
        current_step,
        step,
    )
    from loom_kernel.authoring.unknown import Finished, UnknownAttempt
    from loom_kernel.authoring.workflow import WorkflowDefinition, resolve_inputs, workflow
    from loom_kernel.engine.frontier import GraphFrontierTracker
    from loom_kernel.errors import (
        AnswerError,
        ChildWorkflowError,
        DefinitionError,
        FatalError,
        ForkError,
        InputError,
        InsufficientStateError,
        JournalError,
        LoomError,
        MutatedArgumentError,
        NeedsAnswer,
        OutputError,
        ParallelFailure,
        ResumeError,
        RetryableError,
        RunError,
        RunFailed,
        RunStopped,
        SettingsError,
        SqlError,
        StageFailed,
        StepFailed,
        StepTimeout,
        StorageUnavailableError,
        UnhashableArgumentError,
        UnknownRunError,
        UnknownWorkflowError,
        ValueNotStorableError,
        WorkflowBudgetExceededError,
        WorkflowInfrastructureError,
        WouldBlock,
        is_retryable_workflow_error,
    )
    from loom_kernel.policies import (
        INTERACTIVE_POLICY,
        NON_INTERACTIVE_POLICY,
        Budget,
        ExecutionMode,
        ExecutionPolicy,
        Retry,
        RuntimeConfig,
    )
    from loom_kernel.project.worktrees import WorktreeSetup, setup_git_worktree
    from loom_kernel.runtime.api import configure, get_run, resume, run, runs, sql
    from loom_kernel.runtime.cancellation import (
        CancellationRegistry,
        CancelScope,
        cancellation_registry,
        create_cancellation_registry,
    )
    from loom_kernel.runtime.options import Continuation, ParentRun
    from loom_kernel.runtime.run import Run
    from loom_kernel.runtime.store import store
    from loom_kernel.views.notices import WorkflowNotice
    from loom_kernel.views.run_snapshot import RunSnapshot, StageSnapshot, ToolEvent
    from loom_kernel.views.store import Store, StoreSnapshot, create_store

_HOMES = {
    "loom_kernel.authoring.agents": (
        "Artifact", "Image", "MaxOutput", "McpScope", "ModelAttempt", "ModelConstraints", "ModelUsage", "RouterSelection",
        "StageHandle", "Step", "TaskResult", "WorkflowControlEvent", "WorkflowDetails", "WorkflowIntercomSummary",
    ),
    "loom_kernel.agents.adapters": ("StageAdapters", "StageExecutionMeta", "create_agent_session_adapter"),
    "loom_kernel.agents.compaction": ("keep_context",),
    "loom_kernel.agents.retention": ("WORKFLOW_ARTIFACT_RETENTION_MS",),
    "loom_kernel.agents.tools": ("Tool", "ToolTurn"),
    "loom_kernel.project.worktrees": ("WorktreeSetup", "setup_git_worktree"),
    "loom_kernel.authoring.context": ("CancelToken", "Context"),
    "loom_kernel.authoring.lint": ("WorkflowLintWarning",),
    "loom_kernel.authoring.people": ("People",),
    "loom_kernel.authoring.registry": (
        "Registry", "create_registry", "normalize_workflow_name", "registry", "workflow_names_equal",
    ),
    "loom_kernel.authoring.result": ("RunResult",),
    "loom_kernel.authoring.step": (
        "StepCall", "StepDefinition", "StepHandle", "UnrecordedStepWarning", "current_step", "step",
    ),
    "loom_kernel.authoring.unknown": ("Finished", "UnknownAttempt"),
    "loom_kernel.authoring.workflow": ("WorkflowDefinition", "resolve_inputs", "workflow"),
    "loom_kernel.errors": (
        "AnswerError", "ChildWorkflowError", "DefinitionError", "FatalError", "ForkError", "InputError", "InsufficientStateError", "JournalError", "LoomError",
        "MutatedArgumentError", "NeedsAnswer", "OutputError", "ParallelFailure", "ResumeError", "RetryableError",
        "RunError", "RunFailed", "RunStopped", "SettingsError", "SqlError", "StageFailed", "StepFailed", "StepTimeout",
        "StorageUnavailableError", "UnhashableArgumentError", "UnknownRunError", "UnknownWorkflowError",
        "ValueNotStorableError", "WorkflowBudgetExceededError", "WorkflowInfrastructureError", "WouldBlock",
        "is_retryable_workflow_error",
    ),
    "loom_kernel.engine.frontier": ("GraphFrontierTracker",),
    "loom_kernel.policies": (
        "Budget", "ExecutionMode", "ExecutionPolicy", "INTERACTIVE_POLICY", "NON_INTERACTIVE_POLICY", "Retry", "RuntimeConfig",
    ),
    "loom_kernel.runtime.api": ("configure", "get_run", "resume", "run", "runs", "sql"),
    "loom_kernel.runtime.cancellation": (
        "CancelScope", "CancellationRegistry", "cancellation_registry", "create_cancellation_registry",
    ),
    "loom_kernel.runtime.options": ("Continuation", "ParentRun"),
    "loom_kernel.runtime.run": ("Run",),
    "loom_kernel.runtime.store": ("store",),
    "loom_kernel.views.notices": ("WorkflowNotice",),
    "loom_kernel.views.run_snapshot": ("RunSnapshot", "StageSnapshot", "ToolEvent"),
    "loom_kernel.views.store": ("Store", "StoreSnapshot", "create_store"),
}  # fmt: skip
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "INTERACTIVE_POLICY",
    "NON_INTERACTIVE_POLICY",
    "WORKFLOW_ARTIFACT_RETENTION_MS",
    "AnswerError",
    "Artifact",
    "Budget",
    "CancelScope",
    "CancelToken",
    "CancellationRegistry",
    "ChildWorkflowError",
    "Context",
    "Continuation",
    "DefinitionError",
    "ExecutionMode",
    "ExecutionPolicy",
    "FatalError",
    "Finished",
    "ForkError",
    "GraphFrontierTracker",
    "Image",
    "InputError",
    "InsufficientStateError",
    "JournalError",
    "LoomError",
    "MaxOutput",
    "McpScope",
    "ModelAttempt",
    "ModelConstraints",
    "ModelUsage",
    "MutatedArgumentError",
    "NeedsAnswer",
    "OutputError",
    "ParallelFailure",
    "ParentRun",
    "People",
    "Registry",
    "ResumeError",
    "Retry",
    "RetryableError",
    "RouterSelection",
    "Run",
    "RunError",
    "RunFailed",
    "RunResult",
    "RunSnapshot",
    "RunStopped",
    "RuntimeConfig",
    "SettingsError",
    "SqlError",
    "StageAdapters",
    "StageExecutionMeta",
    "StageFailed",
    "StageHandle",
    "StageSnapshot",
    "Step",
    "StepCall",
    "StepDefinition",
    "StepFailed",
    "StepHandle",
    "StepTimeout",
    "StorageUnavailableError",
    "Store",
    "StoreSnapshot",
    "TaskResult",
    "Tool",
    "ToolEvent",
    "ToolTurn",
    "UnhashableArgumentError",
    "UnknownAttempt",
    "UnknownRunError",
    "UnknownWorkflowError",
    "UnrecordedStepWarning",
    "ValueNotStorableError",
    "WorkflowBudgetExceededError",
    "WorkflowControlEvent",
    "WorkflowDefinition",
    "WorkflowDetails",
    "WorkflowInfrastructureError",
    "WorkflowIntercomSummary",
    "WorkflowLintWarning",
    "WorkflowNotice",
    "WorktreeSetup",
    "WouldBlock",
    "__version__",
    "cancellation_registry",
    "configure",
    "create_agent_session_adapter",
    "create_cancellation_registry",
    "create_registry",
    "create_store",
    "current_step",
    "get_run",
    "is_retryable_workflow_error",
    "keep_context",
    "load_ipython_extension",
    "normalize_workflow_name",
    "registry",
    "resolve_inputs",
    "resume",
    "run",
    "runs",
    "setup_git_worktree",
    "sql",
    "step",
    "store",
    "unload_ipython_extension",
    "workflow",
    "workflow_names_equal",
]


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext loom_kernel``."""
    from loom_kernel.notebook import magics

    magics.load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """``%unload_ext loom_kernel``."""
    from loom_kernel.notebook import magics

    magics.unload(shell)


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
