"""A workflow run for a test: in memory, on a clock that jumps to the next timer, with the answers given beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loom_kernel.authoring.result import RunResult
from loom_kernel.authoring.workflow import WorkflowDefinition
from loom_kernel.clock import VirtualClock
from loom_kernel.errors import AnswerError, NeedsAnswer
from loom_kernel.ids import Ids
from loom_kernel.journal.abc import RunJournal
from loom_kernel.journal.memory_store import MemoryRunJournal
from loom_kernel.runtime import outcome
from loom_kernel.runtime.core import Runtime
from loom_kernel.runtime.host import Place, ScriptHost
from loom_kernel.settings import Settings


class _TestHost(ScriptHost):
    """Nobody is there to answer."""

    def place(self) -> Place:
        return Place(label="test", kind="test", headless=True)


async def run(
    definition: WorkflowDefinition[..., Any],
    inputs: Mapping[str, Any] | None = None,
    *,
    answers: Mapping[str, Any] | None = None,
    model: str | None = None,
) -> RunResult[Any]:
    """Run a workflow to its rest and return what it came to, whatever that is.

    The journal is in memory and of this call alone; sleeps and retries take no time. Steps run for real.

    Args:
        definition: what ``@workflow`` made.
        inputs: its inputs.
        answers: for its questions, by name or glob (``"go"``, ``"go#2"``, ``"approve-*"``).
        model: for stages that name none, such as ``"scripted/demo"`` (see :func:`~loom_kernel.testing.script`).

    Raises:
        InputError: the inputs do not fit.
        NeedsAnswer: a question is open that ``answers`` has nothing for.
        AnswerError: an answer that nothing asked for.
    """
    clock = VirtualClock()

    async def journal() -> RunJournal:
        return MemoryRunJournal(clock)

    settings = Settings(environ={})
    settings.configure(model=model)
    runtime = Runtime(settings, _TestHost("test"), journal=journal, clock=clock, ids=Ids(1))
    try:
        started = await runtime.start_async(
            definition, dict(inputs or {}), definition.options(answers=answers or {}, fresh=True).start_options
        )
        result = await started.settled()
        if result.status == "awaiting_input":
            raise NeedsAnswer(outcome.needs_answer(started), result)
        left = runtime.attendant.leftovers()
        if left and result.status in ("completed", "skipped"):
            raise AnswerError(f"nothing asked for {', '.join(left)}")
        return result
    finally:
        runtime.close()
