"""A stage: its options, its session, and the handle that a body holds."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from loom_kernel import codec
from loom_kernel import events as ev
from loom_kernel.agents import handoff, messaging, output, readiness
from loom_kernel.agents.adapters import Hooks, OwnSession, StageExecutionMeta, closed, session_of
from loom_kernel.agents.agent import Agent, Answer, Listener, Queue, Queued
from loom_kernel.agents.asking import Asker
from loom_kernel.agents.catalogue import levels_of
from loom_kernel.agents.doors import Candidate, candidate
from loom_kernel.agents.model import LEVELS, ThinkingLevel
from loom_kernel.agents.places import place_of
from loom_kernel.agents.session import WITHHELD, Session
from loom_kernel.agents.spec import Spec, spec_of
from loom_kernel.agents.tools import Tool, ToolTurn
from loom_kernel.authoring.agents import (
    STAGE_OPTIONS,
    ModelAttempt,
    ModelUsage,
    SessionRef,
    StageHandle,
    TaskResult,
    check_options,
)
from loom_kernel.authoring.source import caller
from loom_kernel.engine.stages import StagePort, Turn
from loom_kernel.errors import DefinitionError, LoomError, StageFailed

if TYPE_CHECKING:
    from loom_kernel.agents.home import Agents

NO_MODEL = (
    'no model is configured. Name one: loom_kernel.configure(model="openai/gpt-5-mini") or LOOM_MODEL (any litellm name; '
    'its key in the usual variable), "local/smollm2-135m" for a small one on this machine, or model= at the stage'
)

_PROMPT_OPTIONS = frozenset(
    {"output", "output_mode", "max_output", "cwd", "artifacts", "session_dir", "images", "context", "timeout_s"}
)
_ABOUT_DELIVERY = frozenset({"expand_prompt_templates", "streaming_behavior", "source", "preflight_result"})


class Stage(StageHandle):
    """One stage of a run and its session."""

    def __init__(self, home: Agents, port: StagePort, name: str, options: Mapping[str, Any], what: str) -> None:
        self._name, self.what = name, what
        self._home, self._port = home, port
        self._options = dict(options)
        self._spec = spec_of(what, name, options)
        self._ref: SessionRef = self._port.session(name)
        self._chain: list[Candidate] | None = None  # what set_model and the like made of it
        self._asker: Asker | None = None
        self._kept = Session(self._ref.name)
        self._queue = Queue()
        self._listeners: list[Listener] = []
        self._own_group = self._port.fresh("group").rpartition(":")[2] if self._spec.group is True else ""
        self._running = 0
        self._alone, self._idle = asyncio.Lock(), asyncio.Event()
        self._node_id = ""
        self._prompted = False
        self._compacting: asyncio.Task[Any] | None = None
        self._approved: set[str] = set()
        self._tools: dict[str, Tool] = {}

    # ------------------------------------------------------------ what it is

    @property
    def name(self) -> str:
        return self._name

    @property
    def session_id(self) -> str:
        return str(self._ref)

    @property
    def session_file(self) -> str | None:
        path = self._transcript(self._spec)
        return str(path) if path is not None and path.exists() else None

    @property
    def model(self) -> str | None:
        if self._asker is not None:
            return self._asker.now.name
        chain = self._chain or self._declared(self._spec)
        return chain[0].name if chain else None

    @property
    def thinking_level(self) -> str | None:
        if self._asker is not None:
            return self._asker.now.level
        chain = self._chain or self._declared(self._spec)
        return chain[0].level if chain else None

    @property
    def messages(self) -> tuple[dict[str, Any], ...]:
        return tuple(message.shown for message in self._session.path)

    @property
    def is_streaming(self) -> bool:
        return self._running > 0

    @property
    def agent(self) -> Any:
        return self._session

    @property
    def _session(self) -> Session:
        """The session as the journal has it."""
        return self._kept.follow(self._port.said(self._ref.name))

    # ------------------------------------------------------------ prompts

    def prompt(self, text: str, **options: Any) -> Coroutine[Any, Any, Any]:
        if not isinstance(text, str) or not text.strip():
            raise DefinitionError(f"{self.what}.prompt({text!r}): a text is needed")
        if self._spec.wanted is not None and self._prompted:
            raise DefinitionError(
                f"{self.what}: a stage with a schema takes one prompt; make another stage for the next"
            )
        self._prompted = True
        return self._prompted_value(self.ask(text, caller(), **options))

    async def _prompted_value(self, asked: Coroutine[Any, Any, TaskResult]) -> Any:
        result = await asked
        return result.structured if self._spec.wanted is not None else result.text

    def ask(self, text: str, at: str, **options: Any) -> Coroutine[Any, Any, TaskResult]:
        """A prompt as a durable call, with all that is known of its answer."""
        what = f"{self.what}.prompt" if options else self.what
        options = check_options(what, options, _PROMPT_OPTIONS | _ABOUT_DELIVERY)
        preflight = options.pop("preflight_result", None)
        expand = options.pop("expand_prompt_templates", False)
        for delivery in ("streaming_behavior", "source"):
            options.pop(delivery, None)
        spec = self._spec
        if options:
            asked = spec_of(what, self._name, options)
            spec = dataclasses.replace(spec, **{_FIELD.get(o, o): getattr(asked, _FIELD.get(o, o)) for o in options})

        async def work(turn: Turn) -> TaskResult:
            async with self._alone:  # a session says one thing after the other
                self._running += 1
                self._idle.clear()
                self._node_id = turn.node_id
                try:
                    return await self._placed(turn, spec, text, expand, preflight)
                finally:
                    self._running -= 1
                    self._idle.set()

        return self._port.turn(
            self._name,
            work,
            at=at,
            what=what,
            preview=lambda: codec.preview({"prompt": WITHHELD if spec.no_store else self._home.redact(text)}),
            at_once=self._home.at_once,
        )

    async def _placed(
        self, turn: Turn, spec: Spec, text: str, expand: bool, preflight: Callable[[bool], Any] | None
    ) -> TaskResult:
        """In the stage's folder, which may be a worktree that is gone afterwards."""
        home = self._home.folder()
        keep_in = home / turn.run_id / "artifacts" if home is not None else None
        bound, name = turn.bound, f"{self._ref.run_id}/{self._ref.name}".replace("#", "-")
        async with place_of(
            turn, spec, name, bound.get("git_worktree_dir"), bound.get("base_branch"), keep_in, self._home.symlinked
        ) as place:
            turn.cwd = place.cwd
            if spec.output is not None and not spec.output.is_absolute():
                within = place.setup.worktree_root if place.setup is not None else None
                written = (place.cwd / spec.output).resolve()
                if within is not None and not written.is_relative_to(within):
                    raise DefinitionError(
                        f"{self.what}: output={str(spec.output)!r} leads out of its worktree {within}"
                    )
                if spec.worktree and keep_in is not None:
                    written = keep_in / self._ref.name.replace("#", "-") / spec.output.name  # the worktree will be gone
                spec = dataclasses.replace(spec, output=written)
            turn.reserved = spec.output
            result = await self._do(turn, spec, text, expand, preflight)
            if spec.artifacts and place.setup is not None:
                found = await asyncio.to_thread(place.diff_of, self._name)
                result = dataclasses.replace(result, artifacts=(*result.artifacts, *found))
            return result

    async def _do(
        self, turn: Turn, spec: Spec, text: str, expand: bool, preflight: Callable[[bool], Any] | None
    ) -> TaskResult:
        session = self._session
        warnings: list[str] = []
        if not turn.spoken:
            if spec.fork_from is not None and session.last is None:
                await self._fork(turn, session, spec.fork_from)
            if expand:
                text = self._home.expand(text, spec)
            if len(text) > handoff.LARGE:
                warnings.append(f"its prompt has {len(text):,} characters; hand large texts over as files, with reads=")
            text = handoff.to_read(self.what, spec.reads, turn.cwd) + text
        images = handoff.parts(spec.images)
        hooks = self._home.hooks_of(turn.root_run_id)
        if hooks.adapters.agent_session is not None or hooks.adapters.prompt is not None:
            made = await session_of(hooks.adapters, self._options, self._meta(turn))
            if not isinstance(made, OwnSession):
                return await self._foreign(turn, spec, session, made, text, warnings)
            spec = self._with_base(spec, made.options)
        asker = self._asker = await self._candidates(turn, spec, session, text)
        if preflight is not None:
            preflight(True)
        async with self._home.tools_of(spec, turn, self) as tools:
            agent = Agent(
                turn,
                session,
                spec,
                asker,
                tools=tools,
                approve=self._approve(spec),
                redact=self._home.redact,
                queue=self._queue,
                listeners=self._listeners,
                opened=turn.spoken,
                ready=self._ready(turn, spec, hooks),
            )
            self._tools = tools
            answer = await agent.run(text, images)
        return self._result(turn, spec, session, asker, answer, warnings)

    @contextlib.contextmanager
    def joined(self, turn: Turn, spec: Spec) -> Iterator[Tool]:
        """While a turn is at work, the stage can be written to; gives the tool by which it writes."""
        group = messaging.group_of(turn.root_run_id, spec.group, lambda: self._own_group)
        bus = self._home.bus
        member = messaging.Member(
            f"{group}/{self._name}", group, self._queue, lambda who, text: self._beside(turn, who, text)
        )

        async def keep(letter: messaging.Letter) -> None:
            value = codec.encode(dataclasses.asdict(letter)).json
            await turn.record(ev.MessagePosted(name=letter.wanted, value=msgspec.Raw(value), by=letter.sender))

        kept = [
            messaging.Letter(**msgspec.json.decode(bytes(one.value)))
            for one in turn.posted
            if one.by.startswith("workflow:")
        ]
        bus.join(member, kept)
        try:
            yield messaging.intercom(bus, lambda: member, keep)
        finally:
            bus.leave(member)

    async def _beside(self, turn: Turn, who: str, text: str) -> str:
        """What this stage's model says to another stage's question; its session is looked at and not changed."""
        asker = self._asking(self._chain or self._declared(self._spec), self._spec)
        question = {"role": "user", "content": f"[question from {who}; answer it, and change nothing]\n{text}"}
        said = [m for m in self._session.chat if not m.get("tool_calls") and m["role"] != "tool"]
        asked = await asker.ask(turn, [*said, question], tools=(), response_format=None, deadline_s=None, on_text=None)
        turn.spent(asked.event)
        return self._home.redact(asked.reply.text)

    def _meta(self, turn: Turn) -> StageExecutionMeta:
        mode = "interactive" if self._home.somebody(turn.root_run_id) else "non_interactive"
        group = self._spec.group
        return StageExecutionMeta(
            run_id=turn.run_id,
            stage_id=turn.node_id,
            stage_name=self._name,
            group=group if isinstance(group, str) else None,
            signal=turn.cancelled,
            mode=mode,
        )

    def _with_base(self, spec: Spec, options: Mapping[str, Any]) -> Spec:
        """The stage as its adapter wants it; what a prompt says itself stays."""
        made = spec_of(self.what, self._name, check_options(self.what, options, STAGE_OPTIONS))
        changed = {f.name: getattr(spec, f.name) for f in dataclasses.fields(Spec) if getattr(spec, f.name) != getattr(self._spec, f.name)}  # fmt: skip
        return dataclasses.replace(made, **{**changed, "wanted": spec.wanted})

    async def _foreign(
        self, turn: Turn, spec: Spec, session: Session, made: Any, text: str, warnings: list[str]
    ) -> TaskResult:
        """A prompt that another session than ours answers; it is one turn, asked again where it was cut off."""
        redact = self._home.redact
        if not turn.spoken:
            said = session.add(session.next("user", redact(text), kind="prompt"))
            await turn.record(said.event(session.name, withhold=spec.no_store))
        subscribe = getattr(made, "subscribe", None)
        end = subscribe(lambda event: turn.tell({"stage": self._name, "session": session.name, **event})) if callable(subscribe) else None  # fmt: skip
        try:
            with turn.busy():
                answer = await made.prompt(text)
        finally:
            if callable(end):
                end()
            await closed(made)
        if not isinstance(answer, str):
            raise DefinitionError(f"{self.what}: its session answered with a {type(answer).__name__}; a text is needed")
        reply = session.add(session.next("assistant", redact(answer)))
        await turn.record(reply.event(session.name, withhold=spec.no_store))
        value = spec.wanted.read(reply.text) if spec.wanted is not None else None
        found = Answer(text=reply.text, answers=(reply.text,), structured=value, has_value=spec.wanted is not None)
        return self._result(turn, spec, session, self._asking([Candidate("")], spec), found, warnings)  # fmt: skip

    def _ready(self, turn: Turn, spec: Spec, hooks: Hooks) -> Callable[[int], Awaitable[str | None]] | None:
        """The readiness gate, where somebody is there; see :mod:`.readiness`."""
        if spec.wanted is not None or not self._home.somebody(turn.root_run_id):
            return None
        return functools.partial(readiness.ready, turn, hooks.confirm_stage_readiness)

    async def delegate(self, prompt: str, arguments: Mapping[str, Any], turn: ToolTurn) -> str:
        """A task for an agent of the stage's own, in a session of its own, with no more tools than the stage has.

        It stays with the call that asked for it, so that one that a crash cut off goes on where it was.
        """
        assert isinstance(turn, Turn)
        name = f"{self._ref.name}/{turn.call_id}"
        session = Session(name, turn.said(name))
        asked = arguments.get("tools")
        missing = [n for n in asked or () if n not in self._tools or n == "subagent"]
        if missing:
            raise LoomError(f"you have no tool {missing[0]!r} to hand on")
        tools = {n: t for n, t in self._tools.items() if n != "subagent" and (asked is None or n in asked)}
        spec = dataclasses.replace(self._spec, wanted=None, output=None, file_only=False)
        agent = Agent(
            turn,
            session,
            spec,
            await self._candidates(turn, spec, session, prompt),
            tools=tools,
            approve=self._approve(spec),
            redact=self._home.redact,
            queue=Queue(),
            listeners=self._listeners,
            opened=session.last is not None,
            within=f"{turn.call_id}/",
        )
        return (await agent.run(prompt)).text

    async def _fork(self, turn: Turn, session: Session, source: str) -> None:
        """Begin with what another session has said; its messages become copies of our own."""
        said = await self._port.said_elsewhere(SessionRef.parse(source))
        copies = []
        for message in Session(source, said).path:
            again = dataclasses.replace(message, id=len(session.by_id) + 1, parent=session.leaf, kind="copy")
            copies.append(session.add(again).event(session.name))
        await turn.record(*copies)

    def _declared(self, spec: Spec) -> list[Candidate]:
        if spec.declares_models:
            names = [*([spec.model] if spec.model is not None else []), *spec.fallback_models]
        else:
            default = self._home.model()
            names = [default, *self._home.fallback_models] if default is not None else []
        found: list[Candidate] = []
        for one in names:
            made = candidate(self._home.roles.get(one, one))
            if made not in found:
                found.append(made)
        return found

    async def _candidates(self, turn: Turn, spec: Spec, session: Session, text: str) -> Asker:
        """Who is asked, in order; in a session that goes on the one that answered last comes first."""
        chain = self._chain or self._declared(spec)
        if not chain:
            raise StageFailed(self._name, "missing_api_key", NO_MODEL, "active_blocked")
        if any(one.name == "auto" for one in chain) or spec.model_constraints:
            chain = await self._home.route(turn, spec, chain, text)
        asker = self._asking(chain, spec)
        answered = [call for call in turn.asked if call.ok]
        last = answered[-1].model if answered else next((m.model for m in reversed(session.path) if m.model), "")
        for at, one in enumerate(chain):
            if last and last in (one.name, one.name.partition("/")[2]):
                asker.at = at
                break
        return asker

    def _asking(self, chain: Sequence[Candidate], spec: Spec, *, max_tokens: int | None = None) -> Asker:
        """Asks these candidates, as the stage wants it."""
        home = self._home
        return Asker(
            self._name,
            chain,
            home.doors,
            retry=home.retry,
            timeout_s=spec.timeout_s,
            temperature=spec.temperature,
            max_tokens=max_tokens,
            limiter=home.limiter,
            limit=spec.limit,
            redact=home.redact,
        )

    def _approve(self, spec: Spec) -> Callable[[Tool, dict[str, Any], Turn, str], Any]:
        async def approve(tool: Tool, arguments: dict[str, Any], turn: Turn, call_id: str) -> bool | str:
            return await self._home.approve(spec, tool, arguments, turn, call_id, self._approved)

        return approve

    def _result(
        self, turn: Turn, spec: Spec, session: Session, asker: Asker, answer: Answer, warnings: list[str]
    ) -> TaskResult:
        text = output.supplemented(answer.answers) if spec.output is not None else answer.text
        warnings += answer.warnings
        written = transcript = None
        if spec.output is not None:
            written = turn.cwd / spec.output
            output.write(written, text)
            if not text.strip():
                warnings.append(output.EMPTY)
            transcript = self._transcript(spec)
            if transcript is not None and not spec.no_store:
                output.write(transcript, output.transcript(self._name, session.path))
            else:
                transcript = None
        elif spec.session_dir is not None and not spec.no_store:
            transcript = self._transcript(spec)
            assert transcript is not None
            output.write(transcript, output.transcript(self._name, session.path))
        shown = output.receipt(written, transcript, text) if written is not None and spec.file_only else text
        attempts = _attempts(turn.asked, asker) if spec.declares_models else ()
        routed = turn.routed
        return TaskResult(
            name=self._name,
            text="" if spec.no_store else output.cut(shown, spec.max_output),
            stage_name=self._name,
            structured=None if spec.no_store else answer.structured,
            session_id=self.session_id,
            session_file=str(transcript) if transcript is not None else None,
            artifacts=output.collected(self._name, written, transcript, automatic=spec.artifacts),
            model=answer.model or None,
            thinking_level=answer.level,
            router_selection=None if routed is None else self._home.selection(routed),
            attempted_models=tuple(dict.fromkeys(a.model for a in attempts)),
            model_attempts=attempts,
            warnings=tuple(warnings),
        )

    def _transcript(self, spec: Spec) -> Path | None:
        folder = spec.session_dir
        if folder is None:
            home = self._home.folder()
            folder = home / self._ref.run_id / "transcripts" if home is not None else None
        return output.transcript_path(folder, self._ref.name) if folder is not None else None

    def complete(
        self,
        text: str,
        *,
        model: str | None = None,
        fallback_models: Sequence[str] | None = None,
        max_tokens: int | None = None,
    ) -> Coroutine[Any, Any, str]:
        chain = [candidate(one) for one in (model, *(fallback_models or ())) if one] or None

        async def work(turn: Turn) -> str:
            found = chain or self._chain or self._declared(self._spec)
            if not found:
                raise StageFailed(self._name, "missing_api_key", NO_MODEL, "active_blocked")
            asker = self._asking(found, self._spec, max_tokens=max_tokens)
            await turn.look()
            own = self._home.hooks_of(turn.root_run_id).adapters.complete
            if own is not None:
                with turn.busy():
                    return self._home.redact(
                        await own(text, {"model": model, "max_tokens": max_tokens}, self._meta(turn))
                    )
            messages = [{"role": "user", "content": text}]
            asked = await asker.ask(turn, messages, tools=(), response_format=None, deadline_s=None, on_text=None)
            await turn.record(asked.event)
            return self._home.redact(asked.reply.text)

        return self._port.turn(
            self._name,
            work,
            at=caller(),
            what=f"{self.what}.complete",
            preview=lambda: codec.preview({"complete": self._home.redact(text)}),
            at_once=self._home.at_once,
        )

    # ------------------------------------------------------------ further messages

    def send(
        self,
        content: str | Sequence[Any],
        *,
        deliver_as: Literal["steer", "follow_up"] | None = None,
        expand_prompt_templates: bool = False,
    ) -> Coroutine[Any, Any, None]:
        text, images = _content(self.what, content)
        if deliver_as not in (None, "steer", "follow_up"):
            raise DefinitionError(f'{self.what}.send: deliver_as={deliver_as!r}: it is "steer" or "follow_up"')
        if expand_prompt_templates:
            text = self._home.expand(text, self._spec)
        if self._running:
            queue = self._queue.steer if deliver_as == "steer" else self._queue.follow_up
            queue.append(Queued(text, tuple(handoff.parts(images)), self._port.fresh(f"said {self._name}")))
            return _done()
        spec, self._spec = self._spec, dataclasses.replace(self._spec, wanted=None)
        try:
            asked = self.ask(text, caller(), **({"images": images} if images else {}))
        finally:
            self._spec = spec
        return _nothing(asked)

    async def steer(self, text: str) -> None:
        self._queue.steer.append(Queued(text, (), self._port.fresh(f"said {self._name}")))

    async def follow_up(self, text: str) -> None:
        self._queue.follow_up.append(Queued(text, (), self._port.fresh(f"said {self._name}")))

    def subscribe(self, listener: Callable[[dict[str, Any]], Any]) -> Callable[[], None]:
        self._listeners.append(listener)

        def end() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return end

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        end = self.subscribe(queue.put_nowait)
        try:
            while True:
                event = await queue.get()
                yield event
                if event["type"] == "agent_end":
                    return
        finally:
            end()

    # ------------------------------------------------------------ the model

    async def set_model(self, model: str) -> None:
        self._live("set_model")
        if not isinstance(model, str) or not model.strip():
            raise DefinitionError(f"{self.what}.set_model({model!r}): a model's name is needed")
        self._use([candidate(model), *(self._chain or self._declared(self._spec))[1:]])

    def set_thinking_level(self, level: ThinkingLevel) -> None:
        self._live("set_thinking_level")
        if level not in LEVELS:
            raise DefinitionError(f"{self.what}.set_thinking_level({level!r}): it is one of {', '.join(LEVELS)}")
        chain = list(self._chain or self._declared(self._spec))
        if chain:
            self._use([Candidate(chain[0].name, level), *chain[1:]])

    async def cycle_model(self) -> str | None:
        self._live("cycle_model")
        models = [candidate(one) for one in self._spec.scoped_models]
        now = self.model
        if now == "auto":
            raise LoomError(
                f'{self.what}: with model="auto" there is no model before the first prompt; call prompt() first'
            )
        if len(models) < 2:
            return None
        names = [one.name for one in models]
        following = models[(names.index(now) + 1) % len(models)] if now in names else models[0]
        self._use([following, *(self._chain or self._declared(self._spec))[1:]])
        return following.name

    def cycle_thinking_level(self) -> str | None:
        self._live("cycle_thinking_level")
        now = self.thinking_level
        there = levels_of(self.model or "")
        if not there:
            return None
        level = there[(there.index(now) + 1) % len(there)] if now in there else there[0]
        self.set_thinking_level(level)
        return level

    def _use(self, chain: list[Candidate]) -> None:
        self._chain = chain
        if self._asker is not None:
            self._asker.candidates, self._asker.at = list(chain), 0

    def _live(self, what: str) -> None:
        self._port.gate()

    # ------------------------------------------------------------ the session

    async def navigate_tree(
        self,
        target_id: str,
        *,
        summarize: bool = False,
        custom_instructions: str | None = None,
        replace_instructions: bool = False,
        label: str | None = None,
    ) -> dict[str, Any]:
        session = self._session
        target = session.by_id.get(int(target_id)) if str(target_id).isdigit() else None
        if target is None:
            raise LoomError(f"{self.what}: there is no message {target_id!r} in its session")
        if self._running:
            return {"cancelled": True}
        to = target.parent if target.role == "user" else target.id
        moved = ev.SessionMoved(session=self._ref.name, to=to, label=label or "")
        left = session.path
        if summarize:
            instructions = custom_instructions or ""
            if not replace_instructions:
                instructions = (
                    f"Summarise what was said and done here, for somebody who goes another way. {instructions}".strip()
                )
            await self._summarise(left, instructions, to)
        else:
            await self._port.note(f"move {self._name}", moved)
        return {"cancelled": False, **({"editor_text": target.text} if target.role == "user" else {})}

    async def compact(self) -> dict[str, Any]:
        from loom_kernel.agents.compaction import INSTRUCTIONS

        if self.model == "auto":
            raise LoomError(
                f'{self.what}: with model="auto" there is no model before the first prompt; call prompt() first'
            )
        before = self._session.path
        if not before:
            raise LoomError(f"{self.what}: its session is empty; there is nothing to compact")
        first = before[0].id if before[0].role == "system" else 0
        self._compacting = asyncio.ensure_future(self._summarise(before, INSTRUCTIONS, first))
        try:
            return await self._compacting
        finally:
            self._compacting = None

    def abort_compaction(self) -> None:
        if self._compacting is not None:
            self._compacting.cancel()

    async def _summarise(self, messages: Sequence[Any], instructions: str, to: int) -> dict[str, Any]:
        from loom_kernel.agents import compaction

        async def work(turn: Turn) -> dict[str, Any]:
            session = self._session
            asker = await self._candidates(turn, self._spec, session, "")
            return await compaction.compact(turn, session, asker, messages, instructions, to, redact=self._home.redact)

        return await self._port.turn(
            self._name,
            work,
            at=caller(),
            what=f"{self.what}.compact",
            preview=lambda: codec.preview({"compact": True}),
        )

    async def abort(self) -> None:
        if self._running and self._port.abort(self._node_id):
            await self._idle.wait()


_FIELD = {"output_mode": "file_only"}
"""Options whose field in a spec has another name."""


def _content(what: str, content: str | Sequence[Any]) -> tuple[str, list[Any]]:
    """A user's message as text and pictures.

    Raises:
        DefinitionError: it is neither a text nor a list of parts.
    """
    if isinstance(content, str):
        if not content.strip():
            raise DefinitionError(f"{what}.send: the message is empty")
        return content, []
    texts, images = [], []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, Mapping) and part.get("type") == "text":
            texts.append(str(part.get("text", "")))
        else:
            images.append(part)
    return "\n".join(texts), images


async def _nothing(asked: Coroutine[Any, Any, Any]) -> None:
    await asked


async def _done() -> None:
    return None


def _attempts(asked: Sequence[ev.ModelCalled], asker: Asker) -> tuple[ModelAttempt, ...]:
    """What was tried, by candidate, in order; the billed failures of a candidate count in it."""
    by: dict[tuple[str, str], list[ev.ModelCalled]] = {}
    for call in asked:
        by.setdefault((call.model, call.level), []).append(call)
    given_up: dict[tuple[str, str], str] = {(one.name, one.level or ""): reason for one, _, reason in asker.failures}
    found = []
    for key, calls in by.items():
        used = [c for c in calls if c.input_tokens or c.output_tokens or c.cost_usd]
        usage = ModelUsage(
            input=sum(c.input_tokens - c.cached_tokens for c in used),
            output=sum(c.output_tokens for c in used),
            cache_read=sum(c.cached_tokens for c in used),
            cache_write=sum(c.cache_write_tokens for c in used),
            cost=sum(c.cost_usd for c in used),
            turns=len(used),
        )
        error = given_up.get(key)
        found.append(
            ModelAttempt(
                model=key[0],
                success=error is None and any(c.ok for c in calls),
                reasoning_level=key[1] or None,
                error=error,
                usage=usage if used else None,
            )
        )
    return tuple(found)
