"""A run as people see it, folded from its events.

The fold takes entries in order and never looks at a clock or a journal, so that the same events give the same view
everywhere: under a cell, in a saved picture, in the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

from msgspec import Raw

from loom_kernel import events as ev
from loom_kernel.views.expected import Expected
from loom_kernel.views.node import ACTIVE, SETTLED, NodeView, PromptView, split_node_id


class Entry(Protocol):
    """What the fold needs of a journal's entry. ``created_at`` is microseconds since the epoch."""

    @property
    def seq(self) -> int: ...
    @property
    def type(self) -> str: ...
    @property
    def node_id(self) -> str | None: ...
    @property
    def event(self) -> ev.Event: ...
    @property
    def created_at(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Counts:
    """How many steps there are in each state. Questions and sleeps are nodes, not steps."""

    total: int = 0
    done: int = 0
    failed: int = 0
    active: int = 0
    from_journal: int = 0


class RunView:
    """The read model of one run. Feed it with :meth:`apply`; read its attributes.

    One thread feeds it. Others may read: collections only grow, and readers copy them before they iterate.

    Attributes:
        run_id: as given; events do not carry it.
        status: the stored status (pending, running, awaiting_input, paused, completed, ...).
        reason: why it rests, where there is a reason.
        nodes: by node id, in the order of their first event (also in ``order``).
        asked: ``"stop"`` or ``"cancel"`` while such a request is on its way, else empty.
        children: views of live child runs by their id, filled by whoever follows them; their questions are asked here.
        interrupted: set by whoever knows about leases: the run should be running and nobody runs it.
        held_by: set by whoever knows which process this is: who executes the run, where that is another one.
        for_worker: whoever started it left it to a worker.
        forked_from, forked_at: the run that this one was forked from, and the path of the node it goes on from.
        started_at, ended_at: seconds since the epoch; ``ended_at`` is None until a terminal event.
        structure: counts up whenever a node or an edge is added or named otherwise.
        revision: ``seq`` of the newest entry.
    """

    def __init__(self, run_id: str = "") -> None:
        self.run_id = run_id
        self.workflow = ""
        self.description = ""
        self.definition_version = ""
        self.mode = "replay"
        self.key: str | None = None
        self.tags: list[str] = []
        self.notebook: str | None = None
        self.parent_run_id: str | None = None
        self.parent_node_id: str | None = None
        self.root_run_id: str | None = None
        self.forked_from: str | None = None
        self.forked_at = ""
        self.inputs: Raw = Raw(b"{}")
        self.result: Raw = ev.NULL
        self.error: ev.ErrorRecord | None = None
        self.failed_node_id: str | None = None
        self.exited = False
        self.resumable = False
        self.reason: str | None = None
        self.message = ""
        self.detail: dict[str, Any] = {}
        self.drift: list[str] = []
        self.reports: list[tuple[str, Raw]] = []
        self.notes: list[ev.RunNoted] = []
        self.steps_changed: list[str] = []
        self.tokens, self.cost_usd = 0, 0.0  # of this run and its children
        self.budget_warnings: list[ev.BudgetWarned] = []
        self.nodes: dict[str, NodeView] = {}
        self.order: list[str] = []
        self.said = 0  # messages and pieces of them, so that who shows one knows when to look again
        self.asked = ""
        self.interrupted = False
        self.held_by = ""
        self.for_worker = False
        self.executions = 0
        self.created_at: float | None = None
        self.started_at: float | None = None
        self.ended_at: float | None = None
        self.last_at: float | None = None
        self.structure = 0
        self.revision = 0
        self.children: dict[str, RunView] = {}
        self._expected: dict[int, Expected] = {}
        self._prompts: dict[str, PromptView] = {}
        self._previews = False  # the copies are shown although nobody asked for them yet
        self._copies: dict[str, NodeView] = {}  # of the run that this one was forked from, not asked for yet
        self._rest = "pending"  # the status without regard to open questions
        self._active_s = 0.0
        self._active_since: float | None = None
        self._stretches: list[tuple[float, float]] = []

    @classmethod
    def of(cls, entries: Iterable[Entry], run_id: str = "") -> Self:
        """The view of a whole history."""
        view = cls(run_id)
        for entry in entries:
            view.apply(entry)
        return view

    # ------------------------------------------------------------ reading

    @property
    def status(self) -> str:
        if self._rest == "running" and self._prompts:
            return "awaiting_input"
        return self._rest

    @property
    def shown_status(self) -> str:
        """The status with the one that no event says: ``interrupted``."""
        return "interrupted" if self.interrupted and self._rest in ("pending", "running") else self.status

    @property
    def at_rest(self) -> bool:
        """Nothing happens until somebody resumes it, if that is possible at all."""
        return self._rest not in ("pending", "running")

    @property
    def ended(self) -> bool:
        return self._rest in ev.TERMINAL

    @property
    def open_prompts(self) -> list[PromptView]:
        """Questions that take an answer now, oldest first."""
        return [] if self.at_rest else list(self._prompts.values())

    @property
    def family_prompts(self) -> list[PromptView]:
        """The open questions of this run and of the child runs that it waits for."""
        found = self.open_prompts
        if not self.at_rest:
            for child in list(self.children.values()):
                found += child.family_prompts
        return found

    @property
    def counts(self) -> Counts:
        total = done = failed = active = from_journal = 0
        for node in list(self.nodes.values()):
            if node.kind in ("sleep", "prompt"):
                continue
            total += 1
            done += node.status == "completed"
            failed += node.status == "failed"
            active += node.status in ACTIVE
            from_journal += node.from_journal and node.status == "completed"
        return Counts(total, done, failed, active, from_journal)

    @property
    def active_s(self) -> float:
        """Seconds in which some worker executed it, finished stretches only."""
        return self._active_s

    @property
    def active_since(self) -> float | None:
        """When the stretch that goes on now began, seconds since the epoch; None at rest."""
        return None if self.interrupted else self._active_since

    def stretches(self, now: float) -> list[tuple[float, float]]:
        """Begin and end of each stretch in which some worker executed it, seconds since the epoch; ``now`` ends the last."""
        since = self._active_since
        if self.interrupted and self.last_at is not None:
            now = self.last_at  # nothing is known of it since
        return [*self._stretches, *([(since, max(since, now))] if since is not None else [])]

    def elapsed_s(self, now: float) -> float:
        """Seconds of execution up to ``now`` (seconds since the epoch); rests do not count."""
        since = self.active_since
        return self._active_s + (max(0.0, now - since) if since is not None else 0.0)

    def find(self, prompt: str) -> PromptView | None:
        """The open question that people call ``prompt``, by its name or its node id."""
        return next((p for p in self.open_prompts if prompt in (p.prompt, p.node_id)), None)

    @property
    def expected(self) -> list[NodeView]:
        """What branches at work were announced to do and did not begin yet: drawn, and nodes in no other way."""
        return [] if self.ended else [node for one in list(self._expected.values()) for node in one.nodes]

    def owns(self, node: NodeView, child: RunView) -> bool:
        """Whether the run behind a node names that node as what started it; a fork keeps children of where it came from.

        A run that only one side calls a child, be it one that is an ancestor, is another's and not looked into.
        """
        ours = child.parent_run_id == self.run_id or (self.forked_from is not None and child.parent_run_id is not None)
        return ours and child.parent_node_id == node.node_id

    def __repr__(self) -> str:
        counts = self.counts
        return f"RunView({self.workflow}, {self.status}, {counts.done} of {counts.total} steps)"

    # ------------------------------------------------------------ folding

    def apply(self, entry: Entry) -> None:
        """Take the next entry. One that was seen already changes nothing; a type of a newer version is passed over."""
        if entry.seq <= self.revision:
            return
        self.revision = entry.seq
        at = entry.created_at / 1e6
        handler = _HANDLERS.get(entry.type)
        if handler is not None:
            handler(self, entry.event, entry.node_id or "", at)
        if entry.type not in _BY_OTHERS:  # a worker that died had its last moment before
            self.last_at = at

    def _node(self, node_id: str, name: str | None = None, kind: str | None = None) -> NodeView:
        node = self.nodes.get(node_id)
        if node is None:
            key = split_node_id(node_id)
            node = self.nodes[node_id] = NodeView(node_id, name or key.name, kind or key.kind)
            self.order.append(node_id)
            self.structure += 1
        return node

    def _link(self, node: NodeView, parents: list[str]) -> None:
        found = tuple(parents)
        if len(found) == 1 and found[0].startswith("="):  # the same as that node's, and the same tuple
            other = self.nodes.get(found[0][1:])
            found = other.parents if other is not None else ()
        if found is not node.parents and found != node.parents:
            node.parents = found
            self.structure += 1
        for expected in self._expected.values():
            expected.came(node)

    def _pause_time(self, at: float) -> None:
        if self._active_since is not None:
            self._active_s += max(0.0, at - self._active_since)
            self._stretches.append((self._active_since, max(self._active_since, at)))
            self._active_since = None

    def _run_created(self, e: ev.RunCreated, _: str, at: float) -> None:
        self.workflow, self.description, self.definition_version = e.workflow, e.description, e.definition_version
        self.mode, self.key, self.tags, self.notebook = e.mode, e.key, list(e.tags), e.notebook
        self.parent_run_id, self.parent_node_id = e.parent_run_id, e.parent_node_id
        self.root_run_id = e.root_run_id
        self.inputs, self.created_at = e.inputs, at
        self.for_worker = e.for_worker
        self.forked_from, self.forked_at = e.forked_from, e.forked_at

    def _run_started(self, e: ev.RunStarted, _: str, at: float) -> None:
        if self._previews:
            self._copies, self.nodes, self.order, self._previews = self.nodes, {}, [], False
            self.structure += 1
        # A worker that died said nothing: its stretch ends with its last event.
        self._pause_time(self.last_at if self.last_at is not None else at)
        self._active_since = at
        if self.started_at is None:
            self.started_at = at
        self.executions += 1
        self._rest, self.reason, self.message, self.detail = "running", None, "", {}
        self.error, self.failed_node_id, self.ended_at, self.exited = None, None, None, False
        self.resumable, self.drift, self.asked, self.interrupted = False, [], "", False
        self._no_more_expected()
        for node in self.nodes.values():
            node.drift = False
            if node.status == "completed" or (node.status == "failed" and node.passed):
                node.from_journal = True
            elif node.kind not in ("prompt", "sleep") or node.status in SETTLED:
                node.status, node.progress = "pending", None

    def _run_paused(self, e: ev.RunPaused, _: str, at: float) -> None:
        self._pause_time(at)
        self._rest, self.reason, self.message, self.detail, self.asked = (
            "paused",
            e.reason,
            e.message,
            dict(e.detail),
            "",
        )
        for node in self.nodes.values():
            if node.status in ("running", "retrying"):
                node.status, node.progress = "pending", None
        if e.detail.get("what") == "edited" and self._copies and not self.nodes:
            # What is asked about is what would come of the copies: they are looked at until somebody decides.
            self.nodes, self.order, self._copies = self._copies, list(self._copies), {}
            self._previews = True
            self.structure += 1

    def _run_ended(self, e: ev.RunEnded, _: str, at: float) -> None:
        self._pause_time(at)
        self._rest, self.reason, self.asked, self.ended_at = e.status, e.reason, "", at
        self.result, self.error, self.failed_node_id = e.result, e.error, e.failed_node_id
        self.exited, self.resumable, self.drift = e.exited, e.resumable, list(e.drift)
        for node_id in e.drift:
            if node_id in self.nodes:
                self.nodes[node_id].drift = True
        for node in self.nodes.values():
            if node.status in ACTIVE:
                node.status, node.ended_at = "cancelled", at
        self._prompts.clear()
        self._no_more_expected()

    def _no_more_expected(self) -> None:
        """Each execution announces its branches anew."""
        if self._expected:
            self._expected = {}
            self.structure += 1

    def _branches_announced(self, e: ev.BranchesAnnounced, _: str, at: float) -> None:
        parents = tuple(e.parents)
        if len(parents) == 1 and parents[0].startswith("="):
            other = self.nodes.get(parents[0][1:])
            parents = other.parents if other is not None else ()
        expected = Expected(e.index, e.names, parents)
        for node_id in self.order:  # what an earlier execution did
            expected.came(self.nodes[node_id])
        self._expected = {**self._expected, e.index: expected}
        self.structure += 1

    def _branches_settled(self, e: ev.BranchesSettled, _: str, at: float) -> None:
        if e.index in self._expected:
            self._expected = {i: expected for i, expected in self._expected.items() if i != e.index}
            self.structure += 1

    def _run_forked(self, e: ev.RunForked, _: str, at: float) -> None:
        """What another run did is set aside until the body asks for it, and cost nothing here."""
        for node in self.nodes.values():
            node.tokens, node.cost_usd = 0, 0.0
        self.tokens, self.cost_usd = 0, 0.0
        self._copies, self.nodes, self.order = self.nodes, {}, []
        self._prompts.clear()
        self.structure += 1

    def _node_recalled(self, e: ev.NodeRecalled, node_id: str, at: float) -> None:
        node = self._copies.pop(node_id, None)
        if node is not None and node_id not in self.nodes:
            node.copied = node.from_journal = True
            self.nodes[node_id] = node
            self.order.append(node_id)
            self.structure += 1
            self._link(node, e.parents)

    def _step_changed(self, e: ev.StepChanged, _: str, at: float) -> None:
        self.steps_changed.append(e.name)

    def _run_edited(self, e: ev.RunEdited, _: str, at: float) -> None:
        for node_id in e.again:
            node = self.nodes.get(node_id)
            if node is not None:
                node.status, node.from_journal, node.progress = "pending", False, None
                node.attempts, node.error = 0, None  # what runs again is no further try

    def _node_started(self, e: ev.NodeStarted, node_id: str, at: float) -> None:
        node = self._node(node_id, e.name, e.kind)
        if (node.name, node.kind) != (e.name, e.kind):
            node.name, node.kind = e.name, e.kind
            self.structure += 1
        self._link(node, e.parents)
        node.attempts += 1
        if node.first_at is None:
            node.first_at, node.queued_s = at, e.queued_s
        elif node.status == "retrying" and node.started_at is not None:
            node.lost = (*node.lost, (node.started_at, at))
        node.started_at, node.ended_at, node.duration_s = at, None, None
        node.status = "waiting" if e.kind == "sleep" else "running"
        node.error, node.progress, node.from_journal, node.passed, node.copied = None, None, False, False, False
        node.wake_at, node.where, node.args = e.wake_at, e.where, e.args
        node.child_run_id = e.child_run_id or node.child_run_id

    def _node_retrying(self, e: ev.NodeRetrying, node_id: str, at: float) -> None:
        node = self._node(node_id)
        node.status, node.error, node.duration_s = "retrying", e.error, e.duration_s
        node.attempts = max(node.attempts, e.attempt)
        node.wake_at = at + e.delay_s

    def _settle(self, node: NodeView, status: str, attempts: int, duration_s: float, at: float) -> None:
        node.status, node.ended_at, node.progress, node.from_journal = status, at, None, False
        node.attempts = max(node.attempts, attempts)
        waits = node.kind in ("prompt", "sleep")
        if waits and node.started_at is not None:
            node.waited_s = max(0.0, at - node.started_at)
        node.duration_s = node.waited_s if waits else duration_s

    def _node_completed(self, e: ev.NodeCompleted, node_id: str, at: float) -> None:
        node = self._node(node_id)
        self._settle(node, "completed", e.attempts, e.duration_s, at)
        node.result, node.error, node.answered_by = e.result, None, e.answered_by or node.answered_by
        node.cached_from, node.cached_at = e.cached_from, e.cached_at
        self._child_spent(node, e.tokens, e.cost_usd)
        self._prompts.pop(node_id, None)

    def _node_failed(self, e: ev.NodeFailed, node_id: str, at: float) -> None:
        node = self._node(node_id)
        self._settle(node, "failed", e.attempts, e.duration_s, at)
        node.error, node.passed = e.error, e.retained
        self._child_spent(node, e.tokens, e.cost_usd)
        self._prompts.pop(node_id, None)

    def _child_spent(self, node: NodeView, tokens: int, cost_usd: float) -> None:
        """What a child's run used in all; one that is resumed tells it again."""
        if tokens or cost_usd:
            self.tokens += tokens - node.tokens
            self.cost_usd += cost_usd - node.cost_usd
            node.tokens, node.cost_usd = tokens, cost_usd

    def _model_called(self, e: ev.ModelCalled, node_id: str, at: float) -> None:
        tokens = e.counted_tokens
        self.tokens += tokens
        self.cost_usd += e.cost_usd
        node = self.nodes.get(node_id)
        if node is not None:
            node.tokens += tokens
            node.cost_usd += e.cost_usd

    def _message_recorded(self, e: ev.MessageRecorded, node_id: str, at: float) -> None:
        node = self.nodes.get(node_id)
        if node is not None:
            node.said.append(e)
            node.saying = ""
            self.said += 1

    def say(self, node_id: str, event: Mapping[str, Any]) -> None:
        """Something that happens in a model stage and is not in the journal: a piece of its answer, a new attempt."""
        node = self.nodes.get(node_id)
        if node is None:
            return
        match event["type"]:
            case "message_update":
                node.saying += event["delta"]
            case "message_start" | "retry" | "fallback" | "agent_end":
                node.saying = ""
            case _:
                return
        self.said += 1

    def _budget_warned(self, e: ev.BudgetWarned, _: str, at: float) -> None:
        self.budget_warnings.append(e)

    def _node_failure_passed(self, e: ev.NodeFailurePassed, node_id: str, at: float) -> None:
        self._node(node_id).passed = True

    def _node_cancelled(self, e: ev.NodeCancelled, node_id: str, at: float) -> None:
        node = self._node(node_id)
        self._settle(node, "cancelled", e.attempts, e.duration_s, at)
        self._child_spent(node, e.tokens, e.cost_usd)
        self._prompts.pop(node_id, None)

    def _node_logged(self, e: ev.NodeLogged, node_id: str, at: float) -> None:
        self._node(node_id).log.extend(e.lines)

    def _node_progressed(self, e: ev.NodeProgressed, node_id: str, at: float) -> None:
        self._node(node_id).progress = (e.done, e.total)

    def _output_reported(self, e: ev.OutputReported, _: str, at: float) -> None:
        self.reports.append((e.namespace, e.value))

    def _run_noted(self, e: ev.RunNoted, _: str, at: float) -> None:
        self.notes.append(e)

    def _artifact_kept(self, e: ev.ArtifactKept, node_id: str, at: float) -> None:
        node = self.nodes.get(node_id)  # what the body put belongs to no node
        if node is not None:
            node.shown.extend(part for part in e.preview if part.kind in ("image", "table"))

    def _prompt_opened(self, e: ev.PromptOpened, node_id: str, at: float) -> None:
        # `go#2` is what people type; the node's own name is `go`.
        node = self._node(node_id, split_node_id(node_id).name, "prompt")
        self._link(node, e.parents)
        node.status, node.where, node.ended_at, node.wake_at = "waiting", e.where, None, e.deadline
        if node.started_at is None:
            node.first_at = node.started_at = at
        node.attempts = e.generation
        self._prompts[node_id] = PromptView(node_id, e, node.started_at)

    def _prompt_answered(self, e: ev.PromptAnswered, node_id: str, at: float) -> None:
        prompt = self._prompts.get(node_id)
        if prompt is None or prompt.generation != e.generation:
            return
        # Taken, and now checked by the worker: it either completes or opens again with the reason.
        del self._prompts[node_id]
        node = self.nodes[node_id]
        node.status, node.answered_by = "running", e.by

    def _cancel_requested(self, e: ev.CancelRequested, _: str, at: float) -> None:
        if not self.ended:
            self.asked = "cancel"

    def _stop_requested(self, e: ev.StopRequested, _: str, at: float) -> None:
        if not self.at_rest and not self.asked:
            self.asked = "stop"


_BY_OTHERS = ev.POSTS | {ev.LeaseTaken.type}

_HANDLERS: dict[str, Callable[[RunView, Any, str, float], None]] = {
    ev.RunCreated.type: RunView._run_created,
    ev.RunStarted.type: RunView._run_started,
    ev.RunPaused.type: RunView._run_paused,
    ev.RunEnded.type: RunView._run_ended,
    ev.RunForked.type: RunView._run_forked,
    ev.NodeRecalled.type: RunView._node_recalled,
    ev.StepChanged.type: RunView._step_changed,
    ev.RunEdited.type: RunView._run_edited,
    ev.NodeStarted.type: RunView._node_started,
    ev.NodeRetrying.type: RunView._node_retrying,
    ev.NodeCompleted.type: RunView._node_completed,
    ev.NodeFailed.type: RunView._node_failed,
    ev.NodeFailurePassed.type: RunView._node_failure_passed,
    ev.NodeCancelled.type: RunView._node_cancelled,
    ev.NodeLogged.type: RunView._node_logged,
    ev.NodeProgressed.type: RunView._node_progressed,
    ev.ModelCalled.type: RunView._model_called,
    ev.MessageRecorded.type: RunView._message_recorded,
    ev.BudgetWarned.type: RunView._budget_warned,
    ev.BranchesAnnounced.type: RunView._branches_announced,
    ev.BranchesSettled.type: RunView._branches_settled,
    ev.OutputReported.type: RunView._output_reported,
    ev.ArtifactKept.type: RunView._artifact_kept,
    ev.RunNoted.type: RunView._run_noted,
    ev.PromptOpened.type: RunView._prompt_opened,
    ev.PromptAnswered.type: RunView._prompt_answered,
    ev.CancelRequested.type: RunView._cancel_requested,
    ev.StopRequested.type: RunView._stop_requested,
}
