"""The agent loop: a model, its tools, and the model again, until it has nothing more to do.

Everything is recorded before the next effect, so that the loop can be left and entered at any point: it looks at the
session and does what comes next. A prompt is said once, a tool that has a result is not called again, and an answer that
was whole is not asked for again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loom_kernel import events as ev
from loom_kernel.agents import compaction, structured
from loom_kernel.agents.asking import Asked, Asker
from loom_kernel.agents.model import ToolCall
from loom_kernel.agents.session import Message, Session
from loom_kernel.agents.spec import Spec
from loom_kernel.agents.structured import Invalid
from loom_kernel.agents.tools import Tool, as_data
from loom_kernel.engine.stages import Turn
from loom_kernel.errors import StageFailed

Listener = Callable[[dict[str, Any]], Any]

INTERRUPTED = (
    "This call was interrupted, and nobody knows whether it took effect. Look at the state of things before you call it "
    "again."
)


@dataclass(frozen=True)
class Queued:
    """A message that waits. ``source`` is the key of the body's call."""

    text: str
    parts: tuple[Mapping[str, Any], ...] = ()
    source: str = ""


@dataclass
class Queue:
    """What a stage is to hear besides its prompt, each in order."""

    steer: deque[Queued] = field(default_factory=deque)
    follow_up: deque[Queued] = field(default_factory=deque)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a prompt came to. ``answers`` are the completed texts, the first and its supplements."""

    text: str
    answers: tuple[str, ...]
    structured: Any = None
    has_value: bool = False
    asked: tuple[Asked, ...] = ()
    model: str = ""
    level: str | None = None
    warnings: tuple[str, ...] = ()


class _Stream:
    """An answer on its way to those who watch, two words behind, so that a secret in pieces is seen as one and left out."""

    _HELD_WORDS = 2

    def __init__(self, redact: Callable[[str], str], tell: Callable[[str], None]) -> None:
        self._redact, self._tell, self._held = redact, tell, ""

    def take(self, piece: str) -> None:
        """The next piece."""
        self._held += piece
        at = len(self._held)
        for _ in range(self._HELD_WORDS + 1):
            at = max(self._held.rfind(" ", 0, at), self._held.rfind("\n", 0, at))
            if at <= 0:
                return
        self._say(at)

    def end(self) -> None:
        """There is no more."""
        self._say(len(self._held))

    def _say(self, at: int) -> None:
        said, self._held = self._held[:at], self._held[at:]
        if said:
            self._tell(self._redact(said))


Approve = Callable[[Tool, dict[str, Any], Turn, str], Any]
"""Whether a call may be made: True, or the sentence that the model is told. Awaitable."""


class Agent:
    """One prompt of a stage, from its first word to its last.

    Args:
        turn: where it is recorded.
        session: what was said so far.
        spec: the stage's options.
        asker: asks models, with retries and fallbacks.
        tools: by name.
        approve: asks the person.
        redact: takes secrets out of a text.
        queue: what else the stage is to hear.
        listeners: told of the session's events.
        opened: the prompt was said already, before a crash.
        ready: asked at the end of a turn in which the person was asked something: None when the stage may end, else what
            they say to it.
        within: what comes before the ids of its calls, so that they are no others' in the stage.
    """

    def __init__(
        self,
        turn: Turn,
        session: Session,
        spec: Spec,
        asker: Asker,
        *,
        tools: Mapping[str, Tool],
        approve: Approve,
        redact: Callable[[str], str],
        queue: Queue,
        listeners: Sequence[Listener] = (),
        opened: bool = False,
        ready: Callable[[int], Awaitable[str | None]] | None = None,
        within: str = "",
    ) -> None:
        self._turn, self._session, self._spec, self._asker = turn, session, spec, asker
        self._tools, self._approve, self._redact = dict(tools), approve, redact
        self._queue, self._listeners, self._opened, self._ready = queue, listeners, opened, ready
        self._wanted, self._within = spec.wanted, within
        self._by_tool = self._wanted is not None and bool(self._tools)
        self._corrections = 0
        self._calls = 0
        self._warnings: list[str] = []
        self._began = turn.monotonic()
        self._at_wrap_up = self._compacted = False

    # ------------------------------------------------------------ the loop

    async def run(self, prompt: str, images: Sequence[Mapping[str, Any]] = ()) -> Answer:
        """Say the prompt, unless that was done before a crash, and go on to the end.

        Raises:
            StageFailed: no model could do it.
        """
        self._tell("agent_start")
        try:
            with self._turn.wrapping_up(self._wrap_up):
                if not self._opened:
                    await self._open(prompt, images)
                return await self._go_on()
        finally:
            self._tell("agent_end")

    async def _open(self, prompt: str, images: Sequence[Mapping[str, Any]]) -> None:
        messages = []
        if self._session.last is None and self._spec.system:
            messages.append(self._session.add(self._session.next("system", self._redact(self._spec.system))))
        messages.append(self._say(prompt, images, "prompt"))
        await self._record(*messages)

    def _say(self, text: str, parts: Sequence[Mapping[str, Any]], kind: str, source: str = "") -> Message:
        text = self._redact(text)
        said = ({"type": "text", "text": text}, *parts) if parts else ()
        return self._session.add(self._session.next("user", text, parts=said, kind=kind, source=source))

    async def _go_on(self) -> Answer:
        while True:
            if calls := self._session.unanswered():
                for call in calls:
                    await self._use(call)
                continue
            if await self._heard(self._queue.steer, "steer"):
                continue
            last = self._session.last
            if last is not None and last.role == "assistant":
                problem = self._problem()
                if problem is None:
                    if await self._heard(self._queue.follow_up, "follow_up"):
                        continue
                    if self._ready is not None and self._asked_person():
                        more = await self._ready(last.id)
                        if more is not None:
                            await self._record(self._say(more, (), "follow_up"))
                            continue
                    return self._answer()
                await self._correct(problem)
                continue
            if self._by_tool and self._value() is not None:
                return self._answer()
            await self._call()

    def _asked_person(self) -> bool:
        return any(m.role == "tool" and m.kind == "ask_user_question" for m in self._spoken())

    async def _heard(self, queue: deque[Queued], kind: str) -> bool:
        """Take what waits in a queue into the session; what was said before a crash is not said again."""
        known = {m.source for m in self._session.by_id.values() if m.source} if queue else set()
        messages = []
        while queue:
            one = queue.popleft()
            if one.source not in known:
                messages.append(self._say(one.text, one.parts, kind, one.source))
        if not messages:
            return False
        await self._record(*messages)
        self._tell("queue_update", steer=len(self._queue.steer), follow_up=len(self._queue.follow_up))
        return True

    # ------------------------------------------------------------ asking the model

    async def _call(self) -> None:
        if self._calls >= self._spec.max_turns:
            raise StageFailed(
                self._spec.name,
                "unknown",
                f"it asked its model {self._calls} times in this prompt and was not done; max_turns= sets how often it may",
            )
        self._calls += 1
        await self._turn.look()
        self._tell("message_start")
        wanted = self._wanted if self._wanted is not None and not self._by_tool else None
        stream = _Stream(self._redact, lambda said: self._tell("message_update", delta=said))
        asked = await self._asker.ask(
            self._turn,
            self._session.chat,
            tools=[tool.spec for tool in self._tools.values()] + ([self._value_tool] if self._by_tool else []),
            response_format=wanted.response_format if wanted is not None else None,
            deadline_s=self._left(),
            on_text=stream.take,
            on_overflow=self._shorter,
        )
        stream.end()
        reply = asked.reply
        message = self._session.next(
            "assistant",
            self._redact(reply.text),
            tool_calls=self._unique(reply.tool_calls),
            model=reply.model or asked.model,
        )
        self._session.add(message)
        await self._record(message, asked.event)
        self._tell("message_end", text=message.text, tool_calls=len(message.tool_calls))
        if reply.finish == "length":
            self._warnings.append(f"{asked.model} stopped at its limit of tokens, so that the answer may be cut off")

    async def _shorter(self) -> Sequence[Mapping[str, Any]] | None:
        """The conversation with a summary in the place of what came before this prompt; None when there is nothing before
        it, or it was tried."""
        path = list(self._session.path)
        at = max((i for i, m in enumerate(path) if m.kind == "prompt"), default=0)
        first = 1 if path and path[0].role == "system" else 0
        if self._compacted or at - first < 2:
            return None
        self._compacted = True
        rest = path[at:]
        alone = self._asker.alone()
        await compaction.compact(
            self._turn,
            self._session,
            alone,
            path[:at],
            compaction.INSTRUCTIONS,
            path[0].id if first else 0,
            redact=self._redact,
        )
        copies = []
        for message in rest:
            again = dataclasses.replace(message, id=len(self._session.by_id) + 1, parent=self._session.leaf)
            copies.append(self._session.add(again))
        await self._record(*copies)
        return self._session.chat

    def _unique(self, calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
        """Calls whose ids nothing in the session has; some providers count from 0 in every answer."""
        known = set(self._session.answered) if calls else set()
        found = []
        for call in calls:
            id, n = call.id or f"call-{len(self._session.by_id)}", 2
            while id in known:
                id, n = f"{call.id or 'call'}-{n}", n + 1
            known.add(id)
            found.append(ToolCall(id=id, name=call.name, arguments=self._redact(call.arguments)))
        return tuple(found)

    def _left(self) -> float | None:
        """Seconds that are left for the decision; None where there is no schema."""
        if self._wanted is None:
            return None
        return max(0.001, self._spec.schema_timeout_s - (self._turn.monotonic() - self._began))

    # ------------------------------------------------------------ tools

    async def _use(self, call: ToolCall) -> None:
        self._tell("tool_execution_start", tool=call.name, call_id=call.id)
        text = await self._result(call)
        message = self._session.next("tool", self._redact(text), tool_call_id=call.id, kind=call.name)
        self._session.add(message)
        await self._record(message)
        self._tell("tool_execution_end", tool=call.name, call_id=call.id)

    async def _result(self, call: ToolCall) -> str:
        """What the model is told of the call."""
        if self._by_tool and call.name == structured.TOOL:
            return await self._decide(call)
        tool = self._tools.get(call.name)
        if tool is None:
            return f"error: there is no tool named {call.name!r}; there are: {', '.join(sorted(self._tools)) or 'none'}"
        try:
            arguments = _arguments(call, tool.parameters)
        except ValueError as error:
            return f"error: {error}"
        if not tool.repeatable and self._turn.begun(self._session.name, call.id):
            return INTERRUPTED
        call_id = self._within + call.id
        allowed = await self._approve(tool, arguments, self._turn, call_id)
        if allowed is not True:
            return str(allowed)
        if not tool.repeatable:
            await self._turn.record(ev.ToolCalled(session=self._session.name, call_id=call.id, name=call.name))
        try:
            self._turn.call_id = call_id
            with contextlib.nullcontext() if tool.waits else self._turn.busy():
                found = await tool.run(arguments, self._turn)
            return as_data(tool.name, found)
        except Exception as error:  # the model's to deal with
            self._turn.say(f"{tool.name}: {type(error).__name__}: {error}")
            return as_data(tool.name, f"error: {type(error).__name__}: {error}")  # others may have written it

    # ------------------------------------------------------------ the value

    @property
    def _value_tool(self) -> dict[str, Any]:
        assert self._wanted is not None
        schema = json.dumps(self._wanted.json_schema)
        return {
            "type": "function",
            "function": {
                "name": structured.TOOL,
                "description": f"{structured.DESCRIPTION} The schema: {schema}",
                "parameters": structured.PARAMETERS,
            },
        }

    async def _decide(self, call: ToolCall) -> str:
        """Infer the value from what the model handed over; the text is the value itself, or an error."""
        assert self._wanted is not None
        try:
            given = _arguments(call, structured.PARAMETERS)
        except ValueError as error:
            return f"error: {error}"
        messages = structured.inference(given["instructions"], given["state"])
        models = [m for m in (given.get("model"), *given.get("fallback_models", ())) if m]
        problem = ""
        for asker in self._asker.for_decision(models):
            told = list(messages)
            for _ in range(1 + structured.CORRECTIONS):
                await self._turn.look()
                try:
                    asked = await asker.ask(
                        self._turn,
                        told,
                        tools=(),
                        response_format=self._wanted.response_format,
                        deadline_s=self._left(),
                        on_text=None,
                    )
                except StageFailed as failed:
                    problem = str(failed)
                    if failed.code == "timeout":
                        return f"error: {problem}"
                    break
                await self._turn.record(asked.event)
                try:
                    self._wanted.read(asked.reply.text)
                    return asked.reply.text
                except Invalid as invalid:
                    problem = str(invalid)
                    told += [
                        {"role": "assistant", "content": asked.reply.text},
                        {"role": "user", "content": self._wanted.correction(problem, by_tool=False)},
                    ]
        return f"error: no valid value could be made: {problem}"

    def _value(self) -> tuple[Any] | None:
        """The value, in a tuple, if there is one in the session."""
        if self._wanted is None:
            return None
        if not self._by_tool:
            last = self._session.last
            try:
                return (self._wanted.read(last.text),) if last is not None and last.role == "assistant" else None
            except Invalid:
                return None
        for message in reversed(self._spoken()):
            if message.role == "tool" and message.kind == structured.TOOL:
                try:
                    return (self._wanted.read(message.text),)
                except Invalid:
                    continue
        return None

    def _problem(self) -> str | None:
        """Why the stage is not done although the model has stopped."""
        if self._wanted is None or self._at_wrap_up or self._value() is not None:
            return None
        if self._by_tool:
            errors = [m.text for m in self._spoken() if m.role == "tool" and m.kind == structured.TOOL]
            return errors[-1] if errors else f"{structured.TOOL} was not called"
        last = self._session.last
        try:
            self._wanted.read(last.text if last is not None else "")
        except Invalid as invalid:
            return str(invalid)
        return None

    async def _correct(self, problem: str) -> None:
        assert self._wanted is not None
        if self._corrections < structured.CORRECTIONS:
            self._corrections += 1
            await self._record(self._say(self._wanted.correction(problem, by_tool=self._by_tool), (), "correction"))
            return
        # This candidate had its tries: the next gets the prompt as it was, and its own.
        self._asker.give_up(self._turn, f"its answers do not fit the schema: {problem}")
        self._corrections = 0
        prompt = self._prompt_id()
        moved = ev.SessionMoved(session=self._session.name, to=prompt, label="next model")
        self._session.apply(moved)
        await self._turn.record(moved)

    # ------------------------------------------------------------ the end

    def _prompt_id(self) -> int:
        return next(m.id for m in reversed(self._session.path) if m.kind == "prompt")

    def _spoken(self) -> list[Message]:
        """What came after this turn's prompt."""
        path = self._session.path
        at = len(path)
        while at and path[at - 1].kind != "prompt":
            at -= 1
        return list(path[at:])

    def _answer(self) -> Answer:
        spoken = self._spoken()
        answers = tuple(m.text for m in spoken if m.role == "assistant" and not m.tool_calls and m.text)
        value = self._value()
        text = answers[-1] if answers else ""
        if value is not None and self._by_tool:
            # Its ordinary text is the answer: of the message that made the value, else of the newest before it.
            made = [m for m in spoken if any(c.name == structured.TOOL for c in m.tool_calls) and m.text]
            text = made[-1].text if made else text
            answers = (text,) if text else ()
            if not text:
                self._warnings.append("the stage gave a value and no text")
        return Answer(
            text=text,
            answers=answers,
            structured=None if value is None else value[0],
            has_value=value is not None,
            asked=tuple(self._asker.log),
            model=next((m.model for m in reversed(spoken) if m.model), ""),
            level=self._asker.level,
            warnings=tuple(self._warnings),
        )

    async def _wrap_up(self, text: str) -> Mapping[str, Any]:
        """Last words, when the budget is spent."""
        self._at_wrap_up = True
        await self._record(self._say(text, (), "wrap_up"))
        asked = await self._asker.ask(
            self._turn, self._session.chat, tools=(), response_format=None, deadline_s=None, on_text=None
        )
        message = self._session.next("assistant", self._redact(asked.reply.text), model=asked.model)
        self._session.add(message)
        await self._record(message, asked.event)
        usage = asked.event
        return {
            "summary": message.text,
            "usage": {
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
                "cost_usd": usage.cost_usd,
            },
        }

    # ------------------------------------------------------------ helpers

    async def _record(self, *things: Message | ev.Event) -> None:
        withhold = self._spec.no_store
        await self._turn.record(
            *(one.event(self._session.name, withhold=withhold) if isinstance(one, Message) else one for one in things)
        )

    def _tell(self, kind: str, **more: Any) -> None:
        event = {"type": kind, "stage": self._spec.name, "session": self._session.name, **more}
        for listener in tuple(self._listeners):
            try:
                listener(event)
            except Exception:  # of no concern to the stage
                continue
        self._turn.tell(event)


def _arguments(call: ToolCall, schema: Mapping[str, Any]) -> dict[str, Any]:
    """What a model gave a tool.

    Raises:
        ValueError: it is no JSON, or does not fit the schema; the sentence is for the model.
    """
    import jsonschema

    try:
        given = json.loads(call.arguments or "{}")
    except ValueError as error:
        raise ValueError(f"the arguments of {call.name} are not JSON: {error}") from None
    if not isinstance(given, dict):
        raise ValueError(f"the arguments of {call.name} are not a JSON object")
    problems = [
        f"{'.'.join(map(str, e.path)) or call.name}: {e.message}"
        for e in jsonschema.validators.validator_for(schema)(schema).iter_errors(given)
    ]
    if problems:
        raise ValueError("; ".join(problems[:5]))
    return given
