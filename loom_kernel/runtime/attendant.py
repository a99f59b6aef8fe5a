"""Answers from scripts: when a question opens in a run that is executed here, the script's line answers it."""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loom_kernel import events
from loom_kernel.errors import AnswerError, LoomError
from loom_kernel.views.node import PromptView

if TYPE_CHECKING:
    from loom_kernel.runtime.core import Runtime
    from loom_kernel.runtime.run import Run


_WATCHED = frozenset({events.PromptOpened.type, events.RunStarted.type})

ASK_AGAIN_S = 0.02


class Attendant:
    """Watches for questions and answers those that ``LOOM_ANSWERS`` or a start's ``answers`` have a line for."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._answers: Any = None  # human.script.Answers of the process
        self._scripts: dict[str, Any] = {}  # run id to Answers of that run and its children
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
        if self._runtime.engine is None or self._task is not None or (self._answers is None and not self._scripts):
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
            return  # the script's answer was rejected; a person has to look
        for answers in self._for(run):
            taken = answers.take(run.view.workflow, prompt.prompt)
            if taken is not None:
                run._settling.add(prompt.node_id)
                task = asyncio.get_running_loop().create_task(self._post(run, prompt, taken))
                self._posting.add(task)
                task.add_done_callback(self._posting.discard)
                return

    def _for(self, run: Run[Any]) -> list[Any]:
        found = []
        ancestor: str | None = run.id
        while ancestor is not None:
            if ancestor in self._scripts:
                found.append(self._scripts[ancestor])
            parent = self._runtime.live_run(ancestor)
            ancestor = parent.view.parent_run_id if parent is not None else None
        if self._answers is not None:
            found.append(self._answers)
        return found

    async def _post(self, run: Run[Any], prompt: PromptView, taken: Any) -> None:
        from loom_kernel.human.answer import encode_answer

        try:
            await run._post_answer(prompt, encode_answer(prompt.opened, taken.answer), "answers file")
        except AnswerError as error:
            run._settling.discard(prompt.node_id)  # open for a person, and for the sentence of a headless wait
            print(f"loom: the scripted answer to {prompt.prompt!r} was not taken: {error}", file=sys.stderr)
        except LoomError:
            run._settling.discard(prompt.node_id)
