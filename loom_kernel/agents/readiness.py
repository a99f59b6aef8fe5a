"""The readiness gate: a stage that has asked the person something asks once more before the next one begins.

Source: Atomic's ``confirmStageReadiness``. A stage with a schema has no gate: its value is its end.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from loom_kernel.authoring.people import Question
from loom_kernel.engine.stages import Turn
from loom_kernel.errors import AnswerError

READY, NOT_READY = "Ready to move on", "Not yet"


async def ready(turn: Turn, confirm: Callable[..., Any] | None, at: int) -> str | None:
    """Whether the stage may end: None, or what the person says to it first.

    Args:
        confirm: decides in the person's place: ``confirm(run_id=, stage_id=, stage_name=, signal=)``, plain or async.
        at: the message after which it is asked, which tells this question from others.
    """
    if confirm is not None:
        answer = confirm(run_id=turn.run_id, stage_id=turn.node_id, stage_name=turn.stage_name, signal=turn.cancelled)
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return None
    else:
        chosen = await turn.ask(
            _question(
                turn, "select", f"{turn.stage_name}: ready to move on?", f"ready {at}", _one_of, (READY, NOT_READY)
            )
        )
        if chosen == READY:
            return None
    said = await turn.ask(_question(turn, "input", f"{turn.stage_name}: what is still to do?", f"more {at}", _text, ()))
    return str(said)


def _question(turn: Turn, kind: Any, message: str, identity: str, parse: Any, options: tuple[str, ...]) -> Question:
    schema = {"enum": list(options)} if options else {"type": "string", "minLength": 1}
    name = f"{turn.stage_name}-{'ready' if options else 'more'}"
    return Question(
        kind=kind, message=message, name=name, parse=parse, options=options, schema=schema, identity=identity
    )


def _one_of(value: Any) -> str:
    if value not in (READY, NOT_READY):
        raise AnswerError(f"{READY!r} or {NOT_READY!r} is needed")
    return str(value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise AnswerError("say what is still to do; an empty answer says nothing")
    return value
