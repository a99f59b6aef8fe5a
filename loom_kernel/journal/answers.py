"""Does an answer fit its question? Kind first, then the JSON Schema stored with the question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from loom_kernel.errors import AnswerError

_KINDS: dict[str, tuple[type, str]] = {
    "confirm": (bool, "true or false"),
    "editor": (str, "a text"),
    "form": (dict, "an object with the form's fields"),
}
_TYPES: dict[str, type] = {"boolean": bool, "string": str}


def check_answer(prompt: str, kind: str, schema: dict[str, Any], options: Sequence[str], value: bytes) -> None:
    """Check the JSON ``value``.

    Raises:
        AnswerError: it is not JSON, of the wrong kind, or does not fit ``schema``.
    """
    try:
        answer = msgspec.json.decode(value)
    except msgspec.DecodeError as error:
        raise AnswerError(f"answer to {prompt!r} is not JSON: {error}") from None
    expected = _KINDS.get(kind)
    if expected is not None and not isinstance(answer, expected[0]):
        raise AnswerError(f"answer to {prompt!r} must be {expected[1]}, not {_brief(answer)}")
    if schema:
        _check_schema(prompt, schema, answer)
    elif kind == "select" and options and answer not in options:
        raise AnswerError(f"answer to {prompt!r} must be one of {', '.join(options)}; not {_brief(answer)}")


def _check_schema(prompt: str, schema: dict[str, Any], answer: Any) -> None:
    # The schemas of plain questions are decided here, since importing jsonschema takes a hundred milliseconds.
    if set(schema) == {"type"} and isinstance(schema["type"], str) and schema["type"] in _TYPES:
        if not isinstance(answer, _TYPES[schema["type"]]):
            raise AnswerError(f"answer to {prompt!r} must be a {schema['type']}, not {_brief(answer)}")
        return
    if set(schema) == {"enum"} and isinstance(answer, str):
        if answer not in schema["enum"]:
            raise AnswerError(
                f"answer to {prompt!r} must be one of {', '.join(map(str, schema['enum']))}; not {_brief(answer)}"
            )
        return
    import jsonschema
    from referencing import Registry

    cls = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        # An empty registry: a reference to another document is never fetched.
        error = jsonschema.exceptions.best_match(cls(schema, registry=Registry()).iter_errors(answer))
    except Exception as problem:  # a schema that cannot be used must not make its question unanswerable
        if isinstance(problem, AnswerError):
            raise
        return
    if error is not None:
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path).lstrip(
            "."
        )
        raise AnswerError(f"answer to {prompt!r} does not fit{f' at {where}' if where else ''}: {error.message}")


def _brief(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else text[:57] + "..."
