"""Answers without a person at the view: when a question opens in a run that is executed here, the script's line answers
it, or the ``ui`` that the run was started with."""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from loom_kernel import events
from loom_kernel.errors import AnswerError, LoomError
from loom_kernel.views.node import PromptView

if TYPE_CHECKING:
    from loom_kernel.runtime.core import Runtime
    from loom_kernel.runtime.run import Run


_log = logging.getLogger("loom_kernel")

_WATCHED = frozenset({events.PromptOpened.type, events.RunStarted.type})

ASK_AGAIN_S = 0.02


class Attendant:
    """Watches for questions and answers those that ``LOOM_ANSWERS`` or a start's ``answers`` have a line for."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._answers: Any = None  # human.script.Answers of the process
        self._scripts: dict[str, Any] = {}  # run id to Answers of that run and its children
        self._persons: dict[str, Any] = {}  # run id to who answers that run and its children
        self._task: asyncio.Task[None] | None = None
        self._posting: set[asyncio.Task[None]] = set()
        self._watched: weakref.WeakSet[Run[Any]] = weakref.WeakSet()

    def load(self, path: str | None) -> None:
        """Read the file of answers, or forget it.

        Raises:
            AnswerError: the file cannot be read; the sentence says why.
        """
        if path is None:
            self._answers = None
            return
        from loom_kernel.human.script import Answers

        self._answers = Answers.load(Path(path))
        self._watch()

    def script(self, run_id: str, answers: Mapping[str, Any]) -> None:
        """Answers for one run: name or glob to answer."""
        from loom_kernel.human.script import Answers

        self._scripts[run_id] = Answers(answers)
        self._watch()

    def person(self, run_id: str, ui: Any) -> None:
        """Who answers one run's questions, and its children's: an object with methods ``confirm``, ``input``, ...."""
        self._persons[run_id] = ui
        self._watch()

    def begin(self) -> None:
        """Watch from now on; on the loop thread, when the journal is open."""
        self._watch()

    def end(self) -> None:
        """Stop watching; lines that nobody asked for are said on stderr."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._answers is not None:
            left = self._answers.leftovers()
            if left:
                lines = "\n".join(f"  {line}" for line in left)
                print(f"loom: {len(left)} line(s) of the answers file were never asked for:\n{lines}", file=sys.stderr)

    def leftovers(self) -> list[str]:
        """Lines of the answers file, and of starts with answers, that nothing has asked for so far."""
        scripts = [self._answers] if self._answers is not None else []
        return [line for answers in (*scripts, *self._scripts.values()) for line in answers.leftovers()]

    def _watch(self) -> None:
        if (
            self._runtime.engine is None
            or self._task is not None
            or (self._answers is None and not self._scripts and not self._persons)
        ):
            return
        self._task = asyncio.get_running_loop().create_task(self._attend())

    async def _attend(self) -> None:
        runtime = self._runtime
        # One subscription for all runs: children open their questions in streams of their own.
        subscription = runtime.journal.subscribe(types=_WATCHED)
        try:
            for run_id in list(runtime.engine.executions):
                self._look(run_id)
            async for notices in subscription:
                for notice in notices:
                    self._look(notice.run_id)
        finally:
            subscription.close()

    def _look(self, run_id: str) -> None:
        run = self._runtime.live_run(run_id)
        if run is None:
            return
        if run not in self._watched:
            # A notice may come before the run's own view has the event that it is about.
            self._watched.add(run)
            run._add_listener(lambda entry: self._check(run) if entry.type in _WATCHED else None)
        self._check(run)

    def _check(self, run: Run[Any]) -> None:
        for prompt in run.view.open_prompts:
            if prompt.node_id in run._settling:
                continue
            if run._execution is not None and prompt.node_id not in run._execution.prompts:
                # Open since an earlier execution, and this one has not come to it yet: used too early, a line of the
                # script might go to a question that the body does not ask any more.
                asyncio.get_running_loop().call_later(ASK_AGAIN_S, self._check, run)
                return
            self._answer(run, prompt)

    def _answer(self, run: Run[Any], prompt: PromptView) -> None:
        if prompt.generation > 1:
            return  # the answer was rejected; a person has to look
        for answers in self._for(run):
            taken = answers.take(run.view.workflow, prompt.prompt)
            if taken is not None:
                run._settling.add(prompt.node_id)
                task = asyncio.get_running_loop().create_task(self._post(run, prompt, taken.answer))
                self._posting.add(task)
                task.add_done_callback(self._posting.discard)
                return
        for run_id in self._ancestry(run):
            method = getattr(self._persons.get(run_id), prompt.kind, None)
            if callable(method) and prompt.kind != "custom":  # which has a widget of its own
                run._settling.add(prompt.node_id)
                task = asyncio.get_running_loop().create_task(self._ask(run, prompt, method))
                self._posting.add(task)
                task.add_done_callback(self._posting.discard)
                return

    def _for(self, run: Run[Any]) -> list[Any]:
        found = [self._scripts[run_id] for run_id in self._ancestry(run) if run_id in self._scripts]
        if self._answers is not None:
            found.append(self._answers)
        return found

    def _ancestry(self, run: Run[Any]) -> Iterator[str]:
        """The run, what it is nested in, and so on."""
        ancestor: str | None = run.id
        while ancestor is not None:
            yield ancestor
            parent = self._runtime.live_run(ancestor)
            ancestor = parent.view.parent_run_id if parent is not None else None

    async def _ask(self, run: Run[Any], prompt: PromptView, method: Callable[..., Any]) -> None:
        """Let the start's own ``ui`` answer; what it raises leaves the question to others."""
        opened = prompt.opened
        given: dict[str, tuple[Any, ...]] = {
            "select": (prompt.message, list(prompt.options)),
            "editor": (msgspec.json.decode(opened.initial) or "",),
            "form": (prompt.message, opened.schema),
        }
        args = given.get(prompt.kind, (prompt.message,))
        try:
            if inspect.iscoroutinefunction(method):
                answer = await method(*args)
            else:  # in a thread: what blocks there holds up no run
                answer = await asyncio.to_thread(method, *args)
                answer = await answer if inspect.isawaitable(answer) else answer
        except Exception:
            run._settling.discard(prompt.node_id)
            _log.exception("the ui of a start did not answer %r; it is open for others", prompt.prompt)
            return
        await self._post(run, prompt, answer, by="ui")

    async def _post(self, run: Run[Any], prompt: PromptView, answer: Any, by: str = "answers file") -> None:
        from loom_kernel.human.answer import encode_answer

        try:
            await run._post_answer(prompt, encode_answer(prompt.opened, answer), by)
        except AnswerError as error:
            run._settling.discard(prompt.node_id)  # open for a person, and for the sentence of a headless wait
            what = "scripted answer" if by == "answers file" else "ui's answer"
            print(f"loom: the {what} to {prompt.prompt!r} was not taken: {error}", file=sys.stderr)
        except LoomError:
            run._settling.discard(prompt.node_id)
