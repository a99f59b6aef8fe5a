"""What the widget is told: one small JSON object a moment, of which these classes are the contract.

``views/schema.py`` prints their JSON Schema and the TypeScript types that the front end is compiled against. Times are
seconds since the epoch and durations seconds; what ticks, ticks in the browser, which corrects its clock by ``now``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from loom_kernel.events import ErrorRecord, Shown
from loom_kernel.views import words
from loom_kernel.views.drawing import Drawing, draw, fit, note, note_room
from loom_kernel.views.graph import Box
from loom_kernel.views.layout import Place
from loom_kernel.views.node import PromptView
from loom_kernel.views.readable import readable
from loom_kernel.views.run import RunView

SHOWN_ROWS = 20
SHOWN_TEXT = 20_000
REPORT_LIMIT = 300


class Wire(msgspec.Struct, kw_only=True, rename="camel"):
    """Base of what goes over the wire: camelCase there, as the reference APIs spell."""


class BoxShot(Wire):
    """One box: ``note`` is its second line; with ``since`` or ``until`` the browser adds the time that passes.

    Of a stack, ``count`` is how many it holds and ``failed`` how many of those have failed.
    """

    id: str
    label: str
    title: str
    kind: str
    status: str
    x: float
    y: float
    w: float
    h: float
    note: str = ""
    since: float | None = None
    until: float | None = None
    count: int = 1
    progress: float | None = None
    attempts: int = 0
    duration_s: float | None = None
    from_journal: bool = False
    failed: int = 0


class EdgeShot(Wire):
    """A line from box ``a`` to box ``b`` (indices)."""

    a: int
    b: int
    path: str


class GraphShot(Wire):
    hash: str
    width: float
    height: float
    boxes: list[BoxShot]
    edges: list[EdgeShot]


class QuestionShot(Wire):
    """An open question. ``node`` and ``generation`` go back with the answer; ``hint`` is the way without the form."""

    node: str
    prompt: str
    generation: int
    kind: str
    message: str
    options: list[str]
    initial: Any
    schema: dict[str, Any]
    shown: list[Shown]
    hint: str
    error: str = ""
    deadline: float | None = None
    default_words: str = ""


class LineShot(Wire):
    """A line of the person's own code."""

    place: str
    line: int
    text: str


class FailureShot(Wire):
    type: str
    message: str
    lines: list[LineShot]
    notes: list[str]
    hint: str
    node: str = ""


class ButtonShot(Wire):
    """``action``: stop, cancel, resume, or accept (resume and run what was recorded otherwise anew)."""

    action: str
    label: str
    primary: bool = False


class CountShot(Wire):
    total: int
    done: int
    failed: int
    from_journal: int


class Snapshot(Wire):
    """A run now. ``words`` and ``tone`` say the status; ``active_s`` plus the time since ``active_since`` is elapsed.

    ``serial`` counts what one live view was sent, so that a delta knows what it builds on.
    """

    revision: int
    run: str
    workflow: str
    status: str
    words: str
    tone: str
    at_rest: bool
    ended: bool
    counts: CountShot
    nodes: int
    now: float
    active_s: float
    active_since: float | None
    started_at: float | None
    spent: str
    graph: GraphShot
    questions: list[QuestionShot]
    failure: FailureShot | None
    notice: str
    report: str
    result: str
    log_lines: int
    buttons: list[ButtonShot]
    serial: int = 0


def snapshot(view: RunView, now: float, drawing: Drawing | None = None) -> dict[str, Any]:
    """The run as a dict of plain JSON values, as the widget's trait carries it.

    Args:
        now: seconds since the epoch, by the clock that stamped the events.
        drawing: the drawing of this very state where the caller has one.
    """
    result: dict[str, Any] = msgspec.to_builtins(shoot(view, now, drawing))
    return result


def shoot(
    view: RunView, now: float, drawing: Drawing | None = None, *, boxes: list[BoxShot] | None = None, serial: int = 0
) -> Snapshot:
    """The same as :func:`snapshot`, typed. ``boxes``: those of the drawing where the caller has them."""
    counts = view.counts
    drawing = drawing or draw(view)
    return Snapshot(
        revision=view.revision,
        run=view.run_id,
        workflow=view.workflow,
        status="awaiting_input" if words.asks(view) else view.shown_status,
        words=words.status_words(view),
        tone=words.tone(view),
        at_rest=view.at_rest,
        ended=view.ended,
        counts=CountShot(total=counts.total, done=counts.done, failed=counts.failed, from_journal=counts.from_journal),
        nodes=len(view.nodes),
        now=now,
        active_s=round(view.active_s, 3),
        active_since=view.active_since,
        started_at=view.started_at,
        spent=words.spent(view),
        graph=_graph(drawing, boxes or [box_shot(*of, view) for of in drawing.each()]),
        questions=[_question(p) for p in view.family_prompts] + decisions(view),
        failure=_failure(view),
        notice=notice(view),
        report=_report(view),
        result=_result(view),
        log_lines=sum(len(n.log) for n in list(view.nodes.values())) + len(view.reports) + view.said,
        buttons=_buttons(view),
        serial=serial,
    )


def _graph(drawing: Drawing, boxes: list[BoxShot]) -> GraphShot:
    layout = drawing.layout
    return GraphShot(hash=drawing.hash, width=layout.width, height=layout.height, boxes=boxes, edges=_edges(drawing))


@lru_cache(maxsize=16)  # one drawing is shown in many states
def _edges(drawing: Drawing) -> list[EdgeShot]:
    pairs = zip(drawing.graph.edges, drawing.layout.paths, strict=True)
    return [EdgeShot(a=a, b=b, path=path) for (a, b), path in pairs]


def box_status(box: Box, view: RunView) -> str:
    """The status to draw: a child that asks waits, and nobody is called to a question of a run at rest."""
    if view.at_rest:
        return "pending" if box.status == "waiting" else box.status
    if view.children and box.kind == "workflow" and not box.stack:
        child = view.children.get(box.nodes[0].child_run_id or "")
        if child is not None and child.family_prompts:
            return "waiting"
    return box.status


def box_shot(box: Box, label: str, place: Place, view: RunView) -> BoxShot:
    """A box as it is now."""
    node, status = box.nodes[0], box_status(box, view)
    fate = fate_of(box, view) if view.detail else ""
    if fate in ("runs again", "runs"):
        status = "pending"
    since = until = None
    share: float | None = None
    if not box.stack:
        if status == "running" and node.progress is not None and node.progress[1]:
            share = round(min(1.0, max(0.0, node.progress[0] / node.progress[1])), 3)
        if status == "retrying" or (status == "waiting" and node.kind == "sleep"):
            until = node.wake_at
        elif status in ("running", "waiting") and node.progress is None and not view.interrupted:
            since = node.started_at
    else:
        share = round(box.counts["completed"] / len(box.nodes), 3) if status != "completed" else None
    return BoxShot(
        id=box.id,
        label=label,
        title=box.label,
        kind=box.kind,
        status=status,
        x=place.x,
        y=place.y,
        w=place.w,
        h=place.h,
        note=fit(fate or note(box, status), note_room(place.w)),
        since=since,
        until=until,
        count=len(box.nodes),
        progress=share,
        attempts=node.attempts if not box.stack else 0,
        duration_s=node.duration_s if not box.stack else None,
        from_journal=node.from_journal,
        failed=box.counts["failed"] if box.stack else 0,
    )


def _question(prompt: PromptView) -> QuestionShot:
    opened = prompt.opened
    default = ""
    if opened.has_default:
        default = words.scalar(words.loads(opened.default)) or "the default"
    return QuestionShot(
        node=prompt.node_id,
        prompt=prompt.prompt,
        generation=prompt.generation,
        kind=prompt.kind,
        message=prompt.message,
        options=list(prompt.options),
        initial=words.loads(opened.initial),
        schema=dict(prompt.schema),
        shown=[_bounded(s) for s in prompt.shown],
        hint=hint(prompt),
        error=prompt.error,
        deadline=prompt.deadline,
        default_words=default,
    )


_FATES = {"rerun": "runs again", "depends": "depends", "runs": "runs", "gone": "gone"}


def fate_of(box: Box, view: RunView) -> str:
    """What edited code would do with a box, while somebody is to decide about it."""
    fates = view.detail.get("fates") if view.status == "paused" else None
    if fates is None:
        return ""
    found = {_FATES.get(fates.get(node.node_id, ""), "reused") for node in box.nodes}
    return found.pop() if len(found) == 1 else "partly " + next(word for word in _FATES.values() if word in found)


DECISION = "decision"
"""The node of a question that is about the run itself, and is answered by resuming it."""

CHOICES = {
    "edited": {"accept": "Go on with the edited code", "resume": "Go on with what is recorded"},
    "arguments": {"accept": "Run it as it is called now", "fork": "Fork here", "recorded": "Run the recorded body"},
    "gone": {"accept": "Go on without it", "fork": "Fork here", "recorded": "Run the recorded body"},
}
"""What a person may choose, by what the decision is about; leaving it is always one more."""


def decisions(view: RunView) -> list[QuestionShot]:
    """The question of a run that rests until somebody decides how it goes on."""
    choices = CHOICES.get(str(view.detail.get("what"))) if view.status == "paused" else None
    if choices is None or view.reason != "needs_decision" or view.detail.get("child"):
        return []
    detail, shown = view.detail, []
    if detail.get("rows"):
        rows = [[str(cell) for cell in row] for row in detail["rows"]]
        columns = [str(name) for name in detail.get("columns", ())]
        shown.append(Shown(kind="table", columns=columns, rows=rows, total=len(rows)))
    else:
        shown.append(_calls(detail))
    if detail.get("problem"):
        shown.append(Shown(kind="text", text=str(detail["problem"])))
    if detail.get("diff"):
        shown.append(Shown(kind="text", text=str(detail["diff"])))
    return [
        QuestionShot(
            node=DECISION,
            prompt=DECISION,
            generation=view.revision,
            kind="select",
            message="How shall it go on?",
            options=list(choices.values()),
            initial=None,
            schema={},
            shown=[_bounded(part) for part in shown],
            hint=str(detail.get("hint", "")),
        )
    ]


def _calls(detail: dict[str, Any]) -> Shown:
    """The call beside those that the record has in its place."""
    rows = [[words.short(f"{r.get('name') or detail.get('name')}({_arguments(r.get('args'))})", 200), "recorded"]
            for r in detail.get("recorded", ())]  # fmt: skip
    rows.append([words.short(f"{detail.get('name')}({_arguments(detail.get('called'))})", 200), "now"])
    return Shown(kind="table", columns=["call", ""], rows=rows, total=len(rows))


def _arguments(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={msgspec.json.encode(v).decode()}" for name, v in value.items())
    return "" if value is None else msgspec.json.encode(value).decode()


def _bounded(shown: Shown) -> Shown:
    if (len(shown.rows) <= SHOWN_ROWS and len(shown.text) <= SHOWN_TEXT) or shown.kind == "image":
        return shown
    text = shown.text if len(shown.text) <= SHOWN_TEXT else shown.text[:SHOWN_TEXT] + "\n…"
    rows = shown.rows[:SHOWN_ROWS]
    return Shown(kind=shown.kind, text=text, columns=shown.columns, rows=rows, total=shown.total or len(shown.rows))


def hint(prompt: PromptView) -> str:
    """How to answer in a cell: ``%loom answer go yes``; a custom question has no way but its widget."""
    match prompt.kind:
        case "confirm":
            value = "yes"
        case "select":
            first = prompt.options[0] if prompt.options else "1"
            value = f'"{first}"' if " " in first else first
        case "form":
            value = "'{...}'"
        case "custom":
            return ""
        case _:
            value = '"..."'
    return f"%loom answer {prompt.prompt} {value}"


def failure_of(error: ErrorRecord, hint: str = "", node: str = "") -> FailureShot:
    """An error as people read it: its class, its sentence, and their own lines, the innermost last."""
    frames = error.frames[-3:]
    return FailureShot(
        type=words.class_name(error),
        message=words.short(error.message, 2_000) if "\n" not in error.message else error.message[:2_000],
        lines=[
            LineShot(place=f"{f.file}, {f.name}" if f.name == "<module>" else f"{f.file}, {f.name}()", line=f.line,
                     text=f.text.strip()[:300])
            for f in frames
        ],
        notes=[n[:500] for n in error.notes[:5]],
        hint=hint,
        node=node,
    )  # fmt: skip


def _failure(view: RunView) -> FailureShot | None:
    if view.error is None or view.status not in ("failed", "blocked", "killed"):
        return None
    if view.reason == "budget":
        return failure_of(view.error, f"Finished steps are kept: %loom resume {view.run_id} --budget-cost X", "")
    failed = view.nodes.get(view.failed_node_id or "")
    done = view.counts.done
    kept = f"{words.plural(done, 'finished step')} {'is' if done == 1 else 'are'} kept. " if done else ""
    again = (
        f"only {failed.label} runs again" if failed else "finished steps do not run again" if done else "it starts over"
    )
    return failure_of(view.error, f"{kept}Fix the cause, then resume: {again}.", view.failed_node_id or "")


def notice(view: RunView) -> str:
    """The sentence that a run needs which rests, which nobody executes or which another process does; else empty."""
    if view.held_by and not view.at_rest and not view.interrupted:
        return f"Held by {view.held_by} now; it goes on there."
    if view.shown_status == "pending" and view.for_worker:
        return "A worker that has this version of the workflow takes it: loom worker FILE"
    if view.shown_status == "interrupted":
        if view.for_worker:
            return "Its worker is gone. The next one goes on from there, or you do: finished steps are kept."
        return "Its kernel is gone. Finished steps are kept; resuming goes on from there."
    if view.status == "paused":
        if view.message:
            return view.message
        if view.reason == "needs_decision":
            return "The body asks for something else than what was recorded."
        return "Finished steps are kept; resuming goes on from there."
    if view.exited and view.reason:
        return view.reason
    if view.budget_warnings and not view.at_rest:
        warned = view.budget_warnings[-1]
        return f"{warned.reading / warned.ceiling * 100:.0f} % of the budget for {warned.dimension} is spent."
    if view.status in ("skipped", "cancelled", "killed", "blocked") and view.reason:
        return view.reason
    return ""


def _report(view: RunView) -> str:
    lines = [v for ns, v in view.reports[-20:] if not ns]
    if not lines or view.ended:
        return ""
    value = words.loads(lines[-1])
    return words.short(value if isinstance(value, str) else bytes(lines[-1]).decode(errors="replace"), REPORT_LIMIT)


def _result(view: RunView) -> str:
    if not view.ended or view.status not in ("completed", "skipped"):
        return ""
    text = readable(view.result, limit=REPORT_LIMIT, pretty=False)
    return "" if text == "null" else text


def _buttons(view: RunView) -> list[ButtonShot]:
    status = view.shown_status
    if decisions(view):  # its question has the other choices
        return [ButtonShot(action="cancel", label="Cancel")]
    if not view.at_rest and status != "interrupted":
        stop = [] if view.asked else [ButtonShot(action="stop", label="Stop")]
        return stop + ([] if view.asked == "cancel" else [ButtonShot(action="cancel", label="Cancel")])
    if status == "paused" and view.reason == "needs_decision":
        return [
            ButtonShot(action="accept", label="Run it as it is now", primary=True),
            ButtonShot(action="resume", label="Resume"),
            ButtonShot(action="cancel", label="Cancel"),
        ]
    if status in ("paused", "interrupted"):
        return [ButtonShot(action="resume", label="Resume", primary=True), ButtonShot(action="cancel", label="Cancel")]
    if status == "failed":
        node = view.nodes.get(view.failed_node_id or "")
        label = f"Resume from {words.short(node.label, 24)}" if node else "Resume"
        return [ButtonShot(action="resume", label=label, primary=True)]
    if status == "blocked" or (view.ended and view.resumable):
        return [ButtonShot(action="resume", label="Resume", primary=True)]
    return []
