"""A stage's ``schema``: what a model is told of it, and what becomes of its answer.

With other tools at hand the model calls ``structured_output`` when it knows enough, and the value is inferred from what
it hands over (the reference's contract). Without tools the first answer is the value itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from loom_kernel.errors import DefinitionError

TOOL = "structured_output"

CORRECTIONS = 3
"""Follow-ups that quote what is wrong, for each candidate."""

DEADLINE_S = 600.0

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "instructions": {"type": "string", "minLength": 1, "description": "How the value follows from the state."},
        "state": {
            "type": "object",
            "minProperties": 1,
            "description": "Everything that the value is made of, named.",
        },
        "model": {"type": "string"},
        "fallback_models": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["instructions", "state"],
    "additionalProperties": False,
}

DESCRIPTION = (
    "Finish this task with a value of the required schema. Call it once, when you know enough: give instructions and the "
    "named state that the value is made of."
)

_FENCE = re.compile(r"^\s*```(?:json)?\s*\n(.*?)\n?```\s*$", re.S)


class Invalid(ValueError):
    """The value does not fit. Its text is told to the model."""


class Wanted:
    """The value that a stage is to give.

    Args:
        schema: a pydantic model, any type that pydantic takes, or a JSON Schema.

    Raises:
        DefinitionError: no JSON Schema can be made of it.
    """

    def __init__(self, schema: Any) -> None:
        self._adapter: Any = None
        self._validator: Any = None
        if isinstance(schema, Mapping):
            import jsonschema

            self.json_schema = dict(schema)
            cls = jsonschema.validators.validator_for(self.json_schema)
            try:
                cls.check_schema(self.json_schema)
            except jsonschema.SchemaError as error:
                raise DefinitionError(f"schema: this is no JSON Schema: {error.message}") from None
            self._validator = cls(self.json_schema)
            self.name = str(self.json_schema.get("title") or "value")
        else:
            from pydantic import TypeAdapter

            try:
                self._adapter = TypeAdapter(schema)
                self.json_schema = self._adapter.json_schema()
            except Exception as error:
                raise DefinitionError(f"schema: no JSON Schema can be made of {schema!r}: {error}") from None
            self.name = getattr(schema, "__name__", "value")
        self.name = re.sub(r"[^A-Za-z0-9_-]", "_", self.name)[:64] or "value"

    @property
    def choices(self) -> tuple[Any, ...] | None:
        """The values of a finite choice, or None."""
        values = self.json_schema.get("enum")
        return tuple(values) if isinstance(values, list) else None

    @property
    def response_format(self) -> dict[str, Any]:
        """For a request. A schema that is no object is wrapped in one, since providers take only those."""
        schema = self.json_schema
        if self._wrapped:
            schema = {
                "type": "object",
                "properties": {"value": {k: v for k, v in schema.items() if k != "$defs"}},
                "required": ["value"],
                "additionalProperties": False,
                **({"$defs": schema["$defs"]} if "$defs" in schema else {}),
            }
        return {"type": "json_schema", "json_schema": {"name": self.name, "schema": schema}}

    @property
    def _wrapped(self) -> bool:
        return self.json_schema.get("type") != "object" and "properties" not in self.json_schema

    def read(self, text: str) -> Any:
        """The value in a model's answer.

        Raises:
            Invalid: it is no JSON, or does not fit; says where and why.
        """
        fenced = _FENCE.match(text)
        try:
            value = json.loads(fenced.group(1) if fenced else text)
        except ValueError as error:
            raise Invalid(f"the answer is not JSON: {error}") from None
        if self._wrapped and isinstance(value, dict) and set(value) == {"value"}:
            value = value["value"]
        return self.check(value)

    def check(self, value: Any) -> Any:
        """The value as its type.

        Raises:
            Invalid: it does not fit; says where and why.
        """
        if self._adapter is not None:
            from pydantic import ValidationError

            try:
                return self._adapter.validate_json(json.dumps(value))
            except ValidationError as error:
                problems = [f"{'.'.join(map(str, e['loc'])) or 'value'}: {e['msg']}" for e in error.errors()[:5]]
                raise Invalid("; ".join(problems)) from None
        problems = [f"{'.'.join(map(str, e.path)) or 'value'}: {e.message}" for e in self._validator.iter_errors(value)]
        if problems:
            raise Invalid("; ".join(problems[:5]))
        return value

    def correction(self, problem: str, *, by_tool: bool) -> str:
        """What a model is told whose answer does not do."""
        how = f"Call {TOOL} again" if by_tool else "Answer again, with JSON only"
        return f"That is not a valid answer: {problem}. {how}; it must fit this JSON Schema: {json.dumps(self.json_schema)}"


def inference(instructions: str, state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages that make a value out of what a model handed over."""
    return [
        {"role": "system", "content": "Answer with one JSON value that fits the given schema, and nothing else."},
        {"role": "user", "content": f"{instructions}\n\nState:\n{json.dumps(state, ensure_ascii=False, default=str)}"},
    ]
