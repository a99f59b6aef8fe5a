"""Tools that turn to somebody else: the person, the journal's SQL, another agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from loom_kernel.agents.tools import Tool, ToolTurn
from loom_kernel.authoring.people import Question
from loom_kernel.errors import AnswerError, LoomError


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise AnswerError("a text is needed")
    return value


async def _ask(arguments: dict[str, Any], turn: ToolTurn) -> str:
    options = tuple(arguments.get("options") or ())

    def one_of(value: Any) -> str:
        if value not in options:
            raise AnswerError(f"one of {', '.join(options)} is needed")
        return str(value)

    question = Question(
        kind="select" if options else "input",
        message=arguments["question"],
        name=f"{turn.stage_name}-asks",
        parse=one_of if options else _text,
        options=options,
        schema={"enum": list(options)} if options else {"type": "string"},
        identity=turn.call_id,  # the same question may be asked twice
    )
    return str(await turn.ask(question))


ASK = Tool(
    name="ask_user_question",
    description="Ask the person one question and wait for the answer. Give options where there are some.",
    parameters={
        "type": "object",
        "properties": {
            "question": {"type": "string", "minLength": 1},
            "options": {
                "type": "array",
                "items": {"type": "string", "minLength": 1},
                "minItems": 2,
                "uniqueItems": True,
            },
        },
        "required": ["question"],
        "additionalProperties": False,
    },
    run=_ask,
    repeatable=True,  # the answer is found again
    waits=True,
    source="builtin",
)


def sql(query: Callable[[str], Awaitable[str]] | None) -> Tool:
    """The tool ``sql``: one SELECT over the journal and the notebook's frames."""

    async def run(arguments: dict[str, Any], turn: ToolTurn) -> str:
        if query is None:
            raise LoomError("there is no SQL here")
        return await query(arguments["query"])

    return Tool(
        name="sql",
        description=(
            "Ask one SELECT (DuckDB). Views: runs, nodes, attempts, prompts, model_calls, messages, artifacts; tables that "
            "runs kept: from artifact('name'); frames of the notebook by their names."
        ),
        parameters={
            "type": "object",
            "properties": {"query": {"type": "string", "minLength": 1}},
            "required": ["query"],
            "additionalProperties": False,
        },
        run=run,
        repeatable=True,
        source="builtin",
    )


Delegate = Callable[[str, dict[str, Any], ToolTurn], Awaitable[str]]


def subagent(delegate: Delegate | None) -> Tool:
    """The tool ``subagent``: one task for another agent, which cannot hand on in its turn."""

    async def run(arguments: dict[str, Any], turn: ToolTurn) -> str:
        if delegate is None:
            raise LoomError("an agent that was given a task by another cannot hand it on")
        return await delegate(arguments["prompt"], arguments, turn)

    return Tool(
        name="subagent",
        description="Give another agent one task and get its answer. It starts knowing nothing but your prompt.",
        parameters={
            "type": "object",
            "properties": {
                "prompt": {"type": "string", "minLength": 1},
                "tools": {"type": "array", "items": {"type": "string"}, "description": "Of your own tools."},
            },
            "required": ["prompt"],
            "additionalProperties": False,
        },
        run=run,
        repeatable=True,  # it goes on where it was
        waits=True,
        approval="ask",
        source="builtin",
        show=lambda arguments: str(arguments.get("prompt", "")),
    )
