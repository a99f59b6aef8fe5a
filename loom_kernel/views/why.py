"""Why a call, or a run, is as it is: sentences, the most telling first. Pure; nothing in them is guessed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import msgspec

from loom_kernel import events as ev
from loom_kernel.views import words
from loom_kernel.views.compare import value_lines
from loom_kernel.views.node import NodeView
from loom_kernel.views.readable import readable
from loom_kernel.views.run import RunView
from loom_kernel.views.snapshot import hint, notice

_NAMES = 5


@dataclass(frozen=True)
class Why:
    """An explanation: ``title`` is what is asked about, ``lines`` the sentences. Printing it says them all."""

    title: str
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([self.title, *(f"  {line}" for line in self.lines)])

    __repr__ = __str__

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        first, *rest = self.lines or ("",)
        items = "".join(f'<li style="margin:1px 0">{escape(line)}</li>' for line in rest)
        html = (
            f'<div style="font-size:13px;line-height:1.5;margin:4px 0"><div><b>{escape(self.title)}</b>&ensp;'
            f'{escape(first)}</div><ul style="margin:2px 0;padding-left:20px">{items}</ul></div>'
        )
        return {"text/plain": str(self), "text/html": html}


def why_run(view: RunView) -> Why:
    """Why the run is in the state that it is in."""
    lines = [f"{words.status_words(view)}, {words.steps_words(view)}"]
    if view.error is not None and view.ended:
        lines.append(f"{words.class_name(view.error)}: {words.short(view.error.message, 300)}")
        failed = view.nodes.get(view.failed_node_id or "")
        if failed is not None:
            lines.append(f"it ended with the failure of {failed.label}{_at(failed)}")
    elif text := notice(view):
        lines.append(text)
    lines += [f"it asks: {prompt.message} (answer with {hint(prompt)})" for prompt in view.family_prompts]
    lines += [
        f"{node.label}: {_state(view, node)}"
        for node in _nodes(view)
        if node.status in ("running", "retrying") or (node.status == "waiting" and node.kind == "sleep")
    ]
    if view.forked_from:
        at = f" at {view.forked_at}" if view.forked_at else ""
        copied = sum(node.copied for node in _nodes(view))
        lines.append(
            f"it was forked from run {view.forked_from}{at}; {words.plural(copied, 'call')} answered from there"
        )
    if view.executions > 1:
        lines.append(f"it was executed {view.executions} times; what was done before was answered from the journal")
    if view.steps_changed:
        lines.append(f"code changed meanwhile: {', '.join(dict.fromkeys(view.steps_changed))}")
    if view.drift:
        names = [view.nodes[n].label for n in view.drift if n in view.nodes]
        lines.append(f"recorded, but not asked for by the execution that ended it: {_list(names)}")
    return Why(view.workflow or "run", tuple(lines))


def why_node(
    view: RunView, node: NodeView, events: Sequence[tuple[float, ev.Event]] = (), source: RunView | None = None
) -> Why:
    """Why a call is as it is.

    Args:
        events: those of the node, each with its time, seconds since the epoch.
        source: the run that this one was forked from, where it is still there.
    """
    lines = [_state(view, node)]
    lines += _failure(view, node)
    lines += _tries(events)
    lines += _called(view, node)
    if view.forked_from and not node.copied:
        lines += _in_a_fork(view, node, source)
    if node.drift:
        lines.append("it is recorded, but the execution that ended the run did not ask for it")
    lines += _below(view, node)
    return Why(node.label, tuple(line for line in lines if line))


def _state(view: RunView, node: NodeView) -> str:
    took = f" in {words.duration(node.duration_s)}" if node.duration_s is not None else ""
    match node.status:
        case "completed" if node.copied:
            return "done in the run that this one was forked from, and answered from there"
        case "completed" if node.kind == "prompt":
            answer = words.scalar(words.loads(node.result), 60)
            by = f" by {node.answered_by}" if node.answered_by else ""
            waited = f" after {words.duration(node.waited_s)}" if node.waited_s else ""
            return f"answered{f' {answer!r}' if answer else ''}{by}{waited}"
        case "completed" if node.cached_from:
            return f"{words.cached(node)} ({node.cached_from}): nothing was done here"
        case "completed" if node.from_journal:
            return f"completed{took} in an earlier execution; answered from the journal since"
        case "completed":
            return f"completed{took}"
        case "failed" if node.passed:
            return f"failed{took}, and the body went on"
        case "failed":
            return f"failed{took}" + (", and the run with it" if view.failed_node_id == node.node_id else "")
        case "retrying":
            return f"failed {_times(node.attempts)} and is tried again"
        case "waiting" if node.kind == "sleep":
            until = f" until {_clock(node.wake_at)}" if node.wake_at else ""
            return f"sleeps{until}"
        case "waiting":
            return "waits for an answer" + (f" since {_clock(node.started_at)}" if node.started_at else "")
        case "running":
            done = (
                f", {node.progress[0]:g}" + (f" of {node.progress[1]:g}" if node.progress[1] else "")
                if node.progress
                else ""
            )
            return "runs" + (f" since {_clock(node.started_at)}" if node.started_at else "") + done
        case "cancelled":
            return "was cancelled"
        case _ if node.attempts:
            return "to do: it began in an earlier execution, whose end nobody recorded, and runs again"
        case _:
            return "to do: the body has not come to it"


def _failure(view: RunView, node: NodeView) -> list[str]:
    if node.error is None:
        return []
    lines = [f"{words.class_name(node.error)}: {words.short(node.error.message, 300)}"]
    cause, depth = node.error.cause, 0
    while cause is not None and depth < 3:
        lines.append(f"because of {words.class_name(cause)}: {words.short(cause.message, 200)}")
        cause, depth = cause.cause, depth + 1
    if node.error.frames:
        frame = node.error.frames[-1]
        lines.append(f"at {frame.file}, line {frame.line}: {frame.text.strip()}")
    return lines


def _tries(events: Sequence[tuple[float, ev.Event]]) -> list[str]:
    lines = []
    begun = False
    for _, event in events:
        match event:
            case ev.NodeStarted(attempt=attempt):
                if begun and attempt == 1:
                    lines.append("it had begun, and its worker ended before it did")
                begun = True
            case ev.NodeRetrying(attempt=attempt, error=error, delay_s=delay_s):
                said = words.short(error.message, 120)
                lines.append(
                    f"try {attempt} failed: {words.class_name(error)}: {said}; the next one {delay_s:.3g} s later"
                )
                begun = False
            case ev.NodeCancelled(reason=reason):
                lines.append(f"it was cancelled: {reason}" if reason else "it was cancelled once")
                begun = False
            case ev.NodeCompleted() | ev.NodeFailed():
                begun = False
            case ev.PromptOpened(error=refused) if refused:
                lines.append(f"an answer was not taken: {words.short(refused, 200)}")
            case _:
                pass
    return list(dict.fromkeys(lines))


def _called(view: RunView, node: NodeView) -> list[str]:
    args = words.loads(node.args)
    told = ", ".join(f"{name}={_value(value)}" for name, value in args.items()) if isinstance(args, dict) else ""
    given = f" with {words.short(told, 160)}" if told and node.kind not in ("prompt", "sleep") else ""
    above = [view.nodes[p].label for p in node.parents if p in view.nodes]
    came = f"; it came after {_list(above)}" if above else "; nothing came before it"
    return [f"called{_at(node)}{given}{came}"]


def _value(value: object) -> str:
    return readable(msgspec.json.encode(value), limit=80, pretty=False) if not isinstance(value, str) else repr(value)


def _in_a_fork(view: RunView, node: NodeView, source: RunView | None) -> list[str]:
    if source is None:
        return ["the run that this one was forked from is gone, so nobody can compare"]
    before = source.nodes.get(node.node_id)
    if before is not None:
        if before.status != "completed":
            return [f"in the run that this one was forked from it was {before.status}"]
        if view.forked_at:
            return [f"it ran again, since the fork goes on from {view.forked_at}"]
        return ["it ran again, since it comes after what the fork changed"]
    named = [n for n in _nodes(source) if (n.kind, n.name) == (node.kind, node.name)]
    if not named:
        return ["the run that this one was forked from has no such call"]
    diff = value_lines(bytes(named[0].args), bytes(node.args))
    told = [f"{line.sign} {line.text.strip()}" for line in diff if line.sign in "-+"][:6]
    return ["it ran, since its arguments are others than in the run that this one was forked from", *told]


def _below(view: RunView, node: NodeView) -> list[str]:
    children: dict[str, list[NodeView]] = {}
    for other in _nodes(view):
        for parent in other.parents:
            children.setdefault(parent, []).append(other)
    found: dict[str, NodeView] = {}
    todo = [node.node_id]
    while todo:
        for other in children.get(todo.pop(), ()):
            if other.node_id not in found:
                found[other.node_id] = other
                todo.append(other.node_id)
    if not found:
        return []
    spent = sum(n.duration_s or 0.0 for n in found.values() if n.kind not in ("prompt", "sleep"))
    took = f", which took {words.duration(spent)}" if spent >= 0.005 else ""
    return [f"{words.plural(len(found), 'call')} came after it{took}; a fork from here runs them again"]


def _nodes(view: RunView) -> list[NodeView]:
    return [view.nodes[n] for n in list(view.order) if n in view.nodes]


def _at(node: NodeView) -> str:
    return f" at {node.where}" if node.where else ""


def _list(names: Sequence[str]) -> str:
    names = list(dict.fromkeys(names))
    if len(names) > _NAMES:
        return f"{', '.join(names[:_NAMES])} and {len(names) - _NAMES:,} more"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def _times(n: int) -> str:
    return "once" if n == 1 else "twice" if n == 2 else f"{n} times"


def _clock(at: float | None) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at)) if at is not None else ""
