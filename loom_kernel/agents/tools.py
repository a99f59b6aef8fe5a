"""A tool as a stage has it: a name, a description, a schema of its arguments, and what it does.

Built-in ones are in ``builtin/``, those of MCP servers in ``mcp.py``, and an author's own function becomes one by
:func:`as_tool`.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from loom_kernel.errors import DefinitionError

if TYPE_CHECKING:
    from loom_kernel.authoring.people import Question

Approval = Literal["never", "ask", "always"]
"""Whether a person must allow a call: never ask (it runs), ask once for each tool in a stage, always ask for every call."""


class ToolTurn(Protocol):
    """What a tool may know and do while it runs."""

    @property
    def run_id(self) -> str:
        """The run."""
        ...

    @property
    def stage_name(self) -> str:
        """The stage."""
        ...

    @property
    def cwd(self) -> Path:
        """The stage's working folder."""
        ...

    @property
    def call_id(self) -> str:
        """This call's own name in the stage."""
        ...

    @property
    def reserved(self) -> Path | None:
        """A file that the stage writes at its end; no tool may."""
        ...

    @property
    def cancelled(self) -> Any:
        """The run's CancelToken."""
        ...

    def say(self, line: str) -> None:
        """A line for the stage's log in the view."""
        ...

    async def ask(self, question: Question) -> Any:
        """Ask the person, durably; the question is drawn below the stage."""
        ...


Run = Callable[[dict[str, Any], ToolTurn], Awaitable[Any]]
"""Does it: arguments that fit the schema, and the turn. A text, or a JSON value; an exception's sentence is told to the
model as the tool's error."""


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One tool.

    Args:
        name: letters, digits, ``_`` and ``-``; at most 64.
        description: for the model.
        parameters: JSON Schema of the arguments, an object.
        run: does it.
        repeatable: running it twice does no harm, so a call that a crash interrupted is simply made again. Of one that
            is not, the model is told that nobody knows whether it took effect.
        waits: it waits for somebody, so that a test's clock goes on.
        approval: when a person must allow it; the stage's own policy wins.
        source: builtin, custom, mcp or stage; ``no_tools="builtin"`` takes away the first.
        show: what the person sees who must allow a call, from its arguments: text, markdown, a table, ...
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    run: Run
    repeatable: bool = False
    waits: bool = False
    approval: Approval = "never"
    source: Literal["builtin", "custom", "mcp", "stage"] = "custom"
    show: Callable[[dict[str, Any]], Any] | None = field(default=None, repr=False)

    @property
    def spec(self) -> dict[str, Any]:
        """As it stands in a request."""
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": dict(self.parameters)},
        }


_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def check_name(name: Any) -> str:
    """The name, where a provider would take it.

    Raises:
        DefinitionError: it would not.
    """
    if not isinstance(name, str) or not 0 < len(name) <= 64 or not set(name) <= _NAME_CHARACTERS:
        raise DefinitionError(f"tool {name!r}: the name is 1 to 64 letters, digits, _ and -")
    return name


def as_tool(given: Any) -> Tool:
    """An author's tool: a :class:`Tool`, or a function, whose parameters give the schema and whose docstring the description.

    Raises:
        DefinitionError: it is neither, or a parameter has no type that a schema can be made of.
    """
    if isinstance(given, Tool):
        check_name(given.name)
        return given
    if not callable(given) or isinstance(given, type):
        raise DefinitionError(f"custom_tools takes functions and Tool(...), not a {type(given).__name__}")
    name = check_name(getattr(given, "__name__", ""))
    validate, parameters, takes_turn = _arguments(name, given)

    async def run(arguments: dict[str, Any], turn: ToolTurn) -> Any:
        values = validate(arguments)
        if takes_turn:
            values[takes_turn] = turn
        if inspect.iscoroutinefunction(given):
            return await given(**values)
        import asyncio

        return await asyncio.to_thread(given, **values)

    return Tool(
        name=name,
        description=inspect.getdoc(given) or name,
        parameters=parameters,
        run=run,
        repeatable=bool(getattr(given, "repeatable", False)),
        approval=getattr(given, "approval", "never"),
    )


def _arguments(
    name: str, fn: Callable[..., Any]
) -> tuple[Callable[[dict[str, Any]], dict[str, Any]], dict[str, Any], str]:
    """How arguments are validated, their JSON Schema, and the parameter that wants the turn ("" if none)."""
    import typing

    from pydantic import ConfigDict, create_model

    try:
        hints = typing.get_type_hints(fn)
    except Exception as error:
        raise DefinitionError(f"tool {name!r}: its annotations cannot be read: {error}") from None
    fields: dict[str, Any] = {}
    takes_turn = ""
    for parameter in inspect.signature(fn).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise DefinitionError(f"tool {name!r}: {parameter} cannot be filled by a model; use named parameters")
        hint = hints.get(parameter.name, Any)
        if hint is ToolTurn:
            takes_turn = parameter.name
            continue
        fields[parameter.name] = (hint, ... if parameter.default is parameter.empty else parameter.default)
    try:
        model = create_model(f"{name}_arguments", __config__=ConfigDict(extra="forbid"), **fields)
        schema = model.model_json_schema()
    except Exception as error:
        raise DefinitionError(f"tool {name!r}: no schema can be made of its parameters: {error}") from None
    schema.pop("title", None)

    def validate(arguments: dict[str, Any]) -> dict[str, Any]:
        checked = model.model_validate(arguments)
        return {field: getattr(checked, field) for field in fields}

    return validate, schema, takes_turn


_MARK = re.compile(r"<(?=\s*/?\s*tool_result)", re.IGNORECASE)

DATA_LIMIT = 100_000
"""Characters of a tool's result that a model is told."""


def as_data(tool: str, result: Any) -> str:
    """A tool's result as a model is told it: marked as data, which no text inside can end or begin anew, and cut to size."""
    text = as_text(result)
    if len(text) > DATA_LIMIT:
        text = f"{text[:DATA_LIMIT]}\n[cut: {len(text) - DATA_LIMIT} more characters]"
    text = _MARK.sub("&lt;", text)
    return f'<tool_result tool="{tool}">\n{text}\n</tool_result>'


def as_text(result: Any) -> str:
    """What the model is told of a tool's result."""
    if isinstance(result, str):
        return result
    if result is None:
        return "done"
    if hasattr(result, "model_dump"):
        result = result.model_dump(mode="json")
    return json.dumps(result, ensure_ascii=False, default=str)
