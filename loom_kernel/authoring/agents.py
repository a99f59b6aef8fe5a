"""What an author says of a model stage, and what comes back: options, steps, results, handles.

Names are the reference's in Python spelling: Atomic's task and stage options, StageContext, result types.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from os import PathLike
from typing import Any, Literal, TypedDict

from loom_kernel.errors import DefinitionError

ThinkingLevel = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]

# ---------------------------------------------------------------- options


@dataclass(frozen=True, kw_only=True)
class ModelConstraints:
    """Hard limits on what ``model="auto"`` and fallbacks may choose; all that are given hold, and a stage cannot widen them.

    Args:
        allowed_models: exact ``provider/model`` ids; an empty list admits none.
        allowed_providers, excluded_providers: by provider.
        allowed_efforts: levels; None stands for models that do not reason.
        max_input_cost, max_output_cost: US dollars a million tokens, by the price list.
        min_context_window: tokens.
        required_inputs: ``"text"``, ``"image"``.
    """

    allowed_models: Sequence[str] | None = None
    allowed_providers: Sequence[str] | None = None
    excluded_providers: Sequence[str] | None = None
    allowed_efforts: Sequence[ThinkingLevel | None] | None = None
    max_input_cost: float | None = None
    max_output_cost: float | None = None
    min_context_window: int | None = None
    required_inputs: Sequence[Literal["text", "image"]] | None = None


@dataclass(frozen=True, kw_only=True)
class MaxOutput:
    """How much of a stage's text is handed on inline: lines first, then bytes of UTF-8, with a note where it was cut."""

    bytes: int = 204_800
    lines: int = 5_000

    def __post_init__(self) -> None:
        for name in ("bytes", "lines"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"MaxOutput({name}={value!r}): a whole number of at least 1 is needed")


@dataclass(frozen=True, kw_only=True)
class McpScope:
    """Which MCP servers a stage may use. ``allow=None`` is all of them; ``deny`` wins."""

    allow: Sequence[str] | None = None
    deny: Sequence[str] = ()


@dataclass(frozen=True)
class Image:
    """A picture in a prompt: bytes and their media type."""

    data: bytes = field(repr=False)
    media_type: str = "image/png"


class StageOptions(TypedDict, total=False):
    """Options of ``ctx.stage``, and with a prompt of ``ctx.task``, ``ctx.chain`` and :class:`Step`."""

    system: str  # instructions that stand before everything else
    model: str
    fallback_models: Sequence[str]
    scoped_models: Sequence[str]
    model_constraints: ModelConstraints
    schema: Any  # a pydantic model, a type, or a JSON Schema
    schema_timeout_ms: int
    tools: Sequence[Any]  # names of tools; functions count as custom ones
    no_tools: Literal["all", "builtin"]
    excluded_tools: Sequence[str]
    custom_tools: Sequence[Any]
    approval: Literal["never", "ask", "always"] | Mapping[str, Literal["never", "ask", "always"]]
    mcp: McpScope | Mapping[str, Any]
    max_turns: int  # model calls in one prompt before the stage gives up
    temperature: float
    timeout_s: float  # of one model call
    cwd: str | PathLike[str]
    agent_dir: str | PathLike[str]
    session_dir: str | PathLike[str]
    context: Literal["fresh", "fork"]
    fork_from_session_id: str
    group: str | Literal[True]
    output: str | PathLike[str] | Literal[False]
    output_mode: Literal["inline", "file-only"]
    max_output: MaxOutput | Mapping[str, int]
    artifacts: bool
    reads: Sequence[str | PathLike[str]] | Literal[False]
    worktree: bool
    git_worktree_dir: str | PathLike[str]
    base_branch: str
    images: Sequence[Any]
    no_store: bool  # texts stay out of the journal; usage goes in
    limit: str  # of a rate limit in loom.toml


class TaskOptions(StageOptions, total=False):
    """Options of ``ctx.task`` and of a :class:`Step`."""

    prompt: str
    task: str  # another name of prompt
    previous: Any


STAGE_OPTIONS = frozenset(StageOptions.__annotations__)
TASK_OPTIONS = STAGE_OPTIONS | frozenset(TaskOptions.__annotations__)

HOST_ONLY = frozenset(
    {
        "model_runtime",
        "resource_loader",
        "session_manager",
        "settings_manager",
        "session_start_event",
        "orchestration_context",
    }
)
"""Options of the reference that an embedding program sets on its adapter."""


def check_options(what: str, options: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """The options that say something, where all of them are known; None means "not given".

    Raises:
        DefinitionError: an unknown option, with the nearest known one.
    """
    for name in options:
        if name in known:
            continue
        if name in HOST_ONLY:
            raise DefinitionError(
                f"{what}: {name}= is for a program that embeds loom-kernel; set it on its session adapter"
            )
        near = get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]}=?" if near else f". There are: {', '.join(sorted(known))}"
        raise DefinitionError(f"{what}: no option named {name!r}{hint}")
    return {name: value for name, value in options.items() if value is not None}


class Step:
    """One model step of ``ctx.chain`` or ``ctx.parallel``: a name and the options of ``ctx.task``.

    Raises:
        DefinitionError: an unknown option, or no name.
    """

    __slots__ = ("name", "options")

    def __init__(self, name: str, prompt: str | None = None, **options: Any) -> None:
        if not isinstance(name, str) or not name.strip():
            raise DefinitionError(f"Step({name!r}): the name is a text")
        if prompt is not None:
            options["prompt"] = prompt
        self.name, self.options = name, check_options(f"Step({name!r})", options, TASK_OPTIONS)

    def __repr__(self) -> str:
        return f"Step({self.name!r})"


@dataclass(frozen=True, slots=True)
class SessionRef:
    """Where a session is: its run, and its name in there."""

    run_id: str
    name: str

    def __str__(self) -> str:
        return f"{self.run_id}/{self.name}"

    @classmethod
    def parse(cls, session_id: str) -> SessionRef:
        """Raises: DefinitionError: it is no session id."""
        run_id, slash, name = session_id.partition("/")
        if not (run_id and slash and name):
            raise DefinitionError(f"{session_id!r} is no session id; one looks like <run>/<stage>#1")
        return cls(run_id, name)


# ---------------------------------------------------------------- results


@dataclass(frozen=True, kw_only=True)
class ModelUsage:
    """What one candidate used, summed over its calls. ``input`` is without what came from or went into a cache."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: float = 0.0
    turns: int = 0


@dataclass(frozen=True, kw_only=True)
class ModelAttempt:
    """One candidate that was tried. ``usage`` is None where the provider told none."""

    model: str
    success: bool
    reasoning_level: str | None = None
    error: str | None = None
    usage: ModelUsage | None = None


@dataclass(frozen=True, kw_only=True)
class RouterSelection:
    """What ``model="auto"`` chose, from which candidates."""

    model: str
    effort: str | None = None
    fallbacks: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A file that a stage left: its output, its session's transcript, a diff or patch of its worktree."""

    kind: Literal["output", "session", "diff", "patch"]
    path: str
    task_name: str | None = None
    branch: str | None = None
    diff_stat: str | None = None
    files_changed: int | None = None
    insertions: int | None = None
    deletions: int | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class TaskResult:
    """What ``ctx.task`` gives; ``ctx.chain`` and ``ctx.parallel`` give lists of it.

    Attributes:
        text: the answer, or a reference to its file with ``output_mode="file-only"``.
        structured: the value, where the step had a ``schema``.
        session_id: names the session, for ``fork_from_session_id``.
        model: who answered. ``attempted_models`` and ``model_attempts`` say who was tried, where ``model`` or
            ``fallback_models`` were given.
    """

    name: str
    text: str
    stage_name: str
    structured: Any = None
    session_id: str | None = None
    session_file: str | None = None
    artifacts: tuple[Artifact, ...] = ()
    model: str | None = None
    thinking_level: str | None = None
    router_selection: RouterSelection | None = None
    attempted_models: tuple[str, ...] = ()
    model_attempts: tuple[ModelAttempt, ...] = ()
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        shown = self.structured if self.structured is not None else self.text
        return f"TaskResult({self.name!r}, {shown!r})"


@dataclass(frozen=True, kw_only=True)
class WorkflowControlEvent:
    """Something about a run that its starter may want to act on."""

    type: Literal["notify", "needs_attention", "interrupted", "resumed"]
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class WorkflowIntercomSummary:
    """How stages of a run write to each other: within it, by the tool ``intercom``."""

    enabled: bool = True
    delivery: Literal["off", "notify", "result", "control-and-result"] = "off"
    parent_session: str | None = None


@dataclass(frozen=True, kw_only=True)
class WorkflowDetails:
    """A run in short, for whoever started it by a tool or a program: ``run.details()``.

    Attributes:
        mode: what was started; ``action`` what was asked of it.
        status: the run's, or ``accepted`` before it is executed and ``noop`` where nothing came of an action.
        results: of its model stages that are done, in order.
        output: what it returned, or the partial outputs of ``ctx.exit``.
        progress: ``{"completed", "total"}`` steps.
    """

    mode: Literal["named", "single", "parallel", "chain", "inspection", "control"]
    status: str
    action: str | None = None
    run_id: str | None = None
    context: Literal["fresh", "fork"] | None = None
    results: tuple[TaskResult, ...] = ()
    output: Any = None
    progress: Mapping[str, int] | None = None
    artifacts: tuple[Artifact, ...] = ()
    control_events: tuple[WorkflowControlEvent, ...] = ()
    intercom: WorkflowIntercomSummary | None = None
    warnings: tuple[str, ...] = ()
    message: str | None = None
    error: str | None = None
    exited: bool = False
    exit_reason: str | None = None


# ---------------------------------------------------------------- handles


class StageHandle(ABC):
    """A stage whose session the body controls. Each prompt is a durable call of its own; the session is one."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name in the graph."""

    @property
    @abstractmethod
    def session_id(self) -> str:
        """Names the session; see ``fork_from_session_id``."""

    @property
    @abstractmethod
    def session_file(self) -> str | None:
        """Its transcript, where it is kept in a file; for display only."""

    @property
    @abstractmethod
    def model(self) -> str | None:
        """The model of the next call."""

    @property
    @abstractmethod
    def thinking_level(self) -> str | None:
        """Its level."""

    @property
    @abstractmethod
    def messages(self) -> tuple[dict[str, Any], ...]:
        """The session so far, along its current branch: ``{"id", "role", "text", "tool_calls"}``."""

    @property
    @abstractmethod
    def is_streaming(self) -> bool:
        """Whether a turn is under way."""

    @property
    @abstractmethod
    def agent(self) -> Any:
        """The session object itself; opaque."""

    @abstractmethod
    def prompt(self, text: str, **options: Any) -> Coroutine[Any, Any, Any]:
        """Send a prompt and wait for the answer: a text, or the schema's value (then once only)."""

    @abstractmethod
    def complete(
        self,
        text: str,
        *,
        model: str | None = None,
        fallback_models: Sequence[str] | None = None,
        max_tokens: int | None = None,
    ) -> Coroutine[Any, Any, str]:
        """Ask a model once, beside the session: no history, no tools."""

    @abstractmethod
    def send(
        self,
        content: str | Sequence[Any],
        *,
        deliver_as: Literal["steer", "follow_up"] | None = None,
        expand_prompt_templates: bool = False,
    ) -> Coroutine[Any, Any, None]:
        """A user's message: starts a turn where none is under way and waits for it, else queues."""

    @abstractmethod
    async def steer(self, text: str) -> None:
        """Queue for after the current batch of tools. Starts no turn."""

    @abstractmethod
    async def follow_up(self, text: str) -> None:
        """Queue for when the agent would stop. Starts no turn."""

    @abstractmethod
    def subscribe(self, listener: Callable[[dict[str, Any]], Any]) -> Callable[[], None]:
        """Hear the session's events; what a listener raises is ignored. Returns what ends it."""

    @abstractmethod
    def events(self) -> AsyncIterator[dict[str, Any]]:
        """The same as an iterator, until the turn ends."""

    @abstractmethod
    async def set_model(self, model: str) -> None:
        """Use another model from the next call on; ``model:level``."""

    @abstractmethod
    def set_thinking_level(self, level: ThinkingLevel) -> None:
        """Use another level from the next call on."""

    @abstractmethod
    async def cycle_model(self) -> str | None:
        """The next of ``scoped_models``; None where there is no other."""

    @abstractmethod
    def cycle_thinking_level(self) -> str | None:
        """The next level that the model has; None where it has none."""

    @abstractmethod
    async def navigate_tree(
        self,
        target_id: str,
        *,
        summarize: bool = False,
        custom_instructions: str | None = None,
        replace_instructions: bool = False,
        label: str | None = None,
    ) -> dict[str, Any]:
        """Go back to an earlier message and on from there: ``{"cancelled": bool, "editor_text"?: str}``."""

    @abstractmethod
    async def compact(self) -> dict[str, Any]:
        """Put a summary in the place of the older messages."""

    @abstractmethod
    def abort_compaction(self) -> None:
        """Stop one that is under way."""

    @abstractmethod
    async def abort(self) -> None:
        """Stop what the stage is doing; its prompt raises ``NodeAborted``."""
