"""Questions: opened durably, answered by a post, read by the question's own rules, asked again when they are not met."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from loom_kernel import codec
from loom_kernel import events as ev
from loom_kernel.authoring.people import Question
from loom_kernel.engine import custom
from loom_kernel.engine.calls import Call
from loom_kernel.engine.keys import occurrence
from loom_kernel.engine.replay import Hit, Live, Record
from loom_kernel.engine.waiting import note_cancelled, until
from loom_kernel.errors import AnswerError, JournalError, PromptTimeout, RunOverError
from loom_kernel.events import NULL, Shown
from loom_kernel.journal.abc import Append

if TYPE_CHECKING:
    from loom_kernel.engine.execution import Execution

BY_TIMEOUT = "timeout"
"""Who answered where the deadline did."""


async def drive(x: Execution, call: Call, question: Question, shown: list[Shown], shown_hash: str) -> Any:
    """The coroutine behind ``ctx.ui``."""
    x.gate()
    found = call.found
    if x.dry is not None:
        old = found.record if isinstance(found, Hit) else None
        same = old is None or old.status == "failed" or _same(old, question, shown_hash)
        other = "" if same else "it shows other contents, so it is asked again"
        return await _answered(x, call, question, await x.dry.step(x, call, "", other=other))
    record: Record | None = None
    error = ""
    if isinstance(found, Hit):
        record = found.record
        if record.status == "failed" or _same(record, question, shown_hash):
            try:
                return await _answered(x, call, question, record)
            except AnswerError as changed:
                error = str(changed)  # the question's rules are others now
    elif isinstance(found, Live):
        record = found.record
    with x.at_work(call, waits=True):
        call.status = "waiting"
        if question.factory is None:
            return await _ask(x, call, question, shown, shown_hash, record, error)
        async with custom.made(x, call, question) as widget:
            return await _ask(x, call, question, shown, shown_hash, record, error, widget)


async def _answered(x: Execution, call: Call, question: Question, record: Record) -> Any:
    if not record.within:
        await x.turns.take(record)
    if record.status == "failed":
        assert record.error is not None
        x.settled(call, "failed")
        raise codec.decode_error(record.error, step=call.name, namespace=x.engine.namespace())
    value = question.parse(await x.decode(record.result))
    x.settled(call, "completed")
    return value


def _same(record: Record, question: Question, shown_hash: str) -> bool:
    """Whether the record's question is this one. An answer holds for what was shown, not for a name."""
    opened = record.opened
    return (
        opened is not None
        and opened.kind == question.kind
        and (opened.message == question.message or question.factory is not None)  # a label is for people only
        and opened.options == list(question.options)
        and opened.shown_hash == shown_hash
    )


async def _ask(
    x: Execution,
    call: Call,
    question: Question,
    shown: list[Shown],
    shown_hash: str,
    record: Record | None,
    error: str,
    widget: custom.OwnWidget | None = None,
) -> Any:
    n = occurrence(call.node_id)
    prompt = question.name if n == 1 else f"{question.name}#{n}"
    generation = 1
    deadline: float | None = None
    answer: ev.PromptAnswered | None = None
    is_open = False
    if record is not None and record.opened is not None:
        generation = record.opened.generation + 1
        if record.status == "open" and not error and _same(record, question, shown_hash):
            generation, deadline = record.opened.generation, record.opened.deadline
            answer, is_open = record.answer, True
    if not is_open and question.timeout_s is not None:
        deadline = x.engine.clock.time() + question.timeout_s
    while True:
        future: asyncio.Future[ev.PromptAnswered] = x.loop.create_future()
        # An answer that is given by name, beforehand, is none to a widget's question.
        x.prompts[call.node_id] = (prompt if widget is None else "", generation, future)
        try:
            if not is_open:
                opened = _opened(call, question, prompt, generation, shown, shown_hash, deadline, error)
                key = f"{call.node_id}:open:{generation}"
                await x.recorder.commit([Append(opened, call.node_id, key)])
            if widget is not None and answer is None:
                widget.show(future, generation)
            elif answer is None and generation == 1 and (early := x.early.get(prompt)) is not None:
                answer = ev.PromptAnswered(generation=1, value=early.value, by=early.by)
            if answer is None:
                answer = await until(x, future, deadline)
            if answer is None:
                answer = await _at_deadline(x, call, question, generation)
        except asyncio.CancelledError as cancel:
            interruption = x.interruption(call, cancel)
            note_cancelled(x, call, interruption)
            raise interruption from None
        finally:
            x.prompts.pop(call.node_id, None)
        try:
            if answer is None:
                raise PromptTimeout(prompt, question.timeout_s or 0.0)
            stored = msgspec.json.decode(bytes(answer.value))
            value = question.parse(stored)
        except AnswerError as refused:
            # Asked again, with the reason beside it.
            generation, error, answer, is_open = generation + 1, str(refused), None, False
            if deadline is not None and deadline <= x.engine.clock.time():
                deadline = None  # the default itself was refused: only a person can help now
            continue
        except PromptTimeout as timeout:
            failed = ev.NodeFailed(error=codec.encode_error(timeout), attempts=generation)
            await x.recorder.commit([Append(failed, call.node_id, f"{call.node_id}:failed:{x.lease.epoch}")])
            x.settled(call, "failed")
            x.raised(timeout, call.node_id)
            raise
        completed = ev.NodeCompleted(result=answer.value, attempts=generation, answered_by=answer.by)
        await x.recorder.commit([Append(completed, call.node_id, f"{call.node_id}:done:{generation}")])
        x.settled(call, "completed")
        return value


async def _at_deadline(x: Execution, call: Call, question: Question, generation: int) -> ev.PromptAnswered | None:
    """The default, or the answer of the person who was a moment faster: the journal says which."""
    if not question.has_default:
        entry = await x.guarded(x.engine.journal.read_key(x.run_id, f"answer:{call.node_id}:{generation}"))
        return entry.event if entry is not None else None  # type: ignore[return-value]
    value = Raw(codec.encode(question.default, path="default").json)
    append = Append(
        ev.PromptAnswered(generation=generation, value=value, by=BY_TIMEOUT),
        call.node_id,
        f"answer:{call.node_id}:{generation}",
    )
    try:
        outcome = await x.engine.journal.post(x.run_id, append)
    except (AnswerError, RunOverError):
        return append.event  # type: ignore[return-value]
    except JournalError as trouble:
        x.lost(trouble)
        raise asyncio.CancelledError("the run has ended") from trouble
    return outcome.entry.event  # type: ignore[return-value]


def _opened(
    call: Call,
    question: Question,
    prompt: str,
    generation: int,
    shown: list[Shown],
    shown_hash: str,
    deadline: float | None,
    error: str,
) -> ev.PromptOpened:
    return ev.PromptOpened(
        prompt=prompt,
        kind=question.kind,
        message=question.message,
        generation=generation,
        parents=[question.within] if question.within else call.parents.recorded(call.node_id),  # type: ignore[arg-type]
        options=list(question.options),
        initial=Raw(codec.encode(question.initial, path="initial").json) if question.initial is not None else NULL,
        schema=question.schema,
        shown=shown,
        shown_hash=shown_hash,
        deadline=deadline,
        has_default=question.has_default,
        default=Raw(codec.encode(question.default, path="default").json) if question.has_default else NULL,
        where=question.where or call.where,
        error=error,
        within=question.within,
    )


def show(x: Execution, value: Any) -> tuple[list[Shown], str]:
    """What a question shows, and its hash. The room for people knows how; without it, the value in short."""
    if value is None:
        return [], ""
    make = x.engine.capabilities.get("shown")
    if make is not None:
        parts, hash_ = make(value)
        return list(parts), hash_
    text = codec.preview(value, limit=6_000).decode()
    return [Shown(kind="json", text=text)], codec.content_hash(text)
