"""What a person typed, or a program sent, as the answer that is stored. "no" never becomes True."""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from loom_kernel import codec
from loom_kernel.errors import AnswerError, LoomError
from loom_kernel.events import PromptOpened
from loom_kernel.human.custom import as_json

YES = frozenset({"true", "yes", "y", "approve", "confirm"})
NO = frozenset({"false", "no", "n", "reject", "deny"})


class Skip(enum.Enum):
    """Stands for "take the question's default" where an answer is expected."""

    SKIP = "skip"


SKIP = Skip.SKIP


def normal_answer(kind: str, value: Any, *, name: str, options: Sequence[str] = ()) -> Any:
    """The stored form of an answer: bool, str, or a dict of JSON values; for a custom question any JSON value.

    Args:
        kind: confirm, input, select, editor, form or custom.
        value: what was typed or sent.
        name: the question's, for the error.
        options: a select's labels.

    Raises:
        AnswerError: it does not fit; the sentence says what does.
    """
    if kind == "confirm":
        return _confirmed(value, name)
    if kind == "select":
        return _selected(value, name, options)
    if kind == "form":
        return _filled(value, name)
    if kind == "custom":
        return as_json(value, name)
    if type(value) is str:
        return value
    raise AnswerError(f"the answer to {name!r} must be text, not {_brief(value)}; put it in quotes")


def encode_answer(opened: PromptOpened, value: Any) -> Raw:
    """An answer as ``prompt.answered`` carries it, for ``r.answer``, the widget, ``%loom answer`` and scripts.

    Raises:
        AnswerError: it does not fit the question; the sentence says what does.
    """
    if opened.kind == "custom":
        raise AnswerError(
            f"the question {opened.prompt!r} is answered by its own widget, below the run in its notebook, and by nothing else"
        )
    if value is SKIP:
        if opened.has_default:
            return opened.default
        raise AnswerError(
            f"question {opened.prompt!r} has no default, so it cannot be skipped; {expected(opened.kind, opened.options)}"
        )
    answer = normal_answer(opened.kind, value, name=opened.prompt, options=opened.options)
    try:
        encoded = codec.encode(answer, path=f"answer to {opened.prompt!r}", allow_nan=False)
    except LoomError as error:
        raise AnswerError(str(error)) from None
    if encoded.blobs:
        raise AnswerError(
            f"the answer to {opened.prompt!r} is {len(encoded.blobs[0].data):,} bytes; at most {codec.BLOB_BYTES:,} are taken"
        )
    return Raw(encoded.json)


def expected(kind: str, options: Sequence[str] = ()) -> str:
    """What a question takes, as the second half of a sentence."""
    if kind == "confirm":
        return "answer yes or no"
    if kind == "select":
        return "answer with one of " + ", ".join(f"{i}. {label}" for i, label in enumerate(options, 1))
    if kind == "form":
        return "answer with the form's fields, as a dict or JSON object"
    return "answer with text"


def _confirmed(value: Any, name: str) -> bool:
    if type(value) is bool:
        return value
    if isinstance(value, str):
        word = value.strip().lower()
        if word in YES:
            return True
        if word in NO:
            return False
    raise AnswerError(
        f"the answer to {name!r} must be yes or no (true, y, approve, confirm; false, n, reject, deny), not {_brief(value)}"
    )


def _selected(value: Any, name: str, options: Sequence[str]) -> str:
    if isinstance(value, str):
        if value in options:
            return value
        word = value.strip().lower()
        same = [label for label in options if label.strip().lower() == word]
        if len(same) == 1:
            return same[0]
        if len(same) > 1:
            raise AnswerError(
                f"the answer to {name!r}, {_brief(value)}, could be {' or '.join(map(repr, same))}; write it exactly"
            )
        if word.isascii() and word.isdigit():
            value = int(word)
    if type(value) is int and 1 <= value <= len(options):
        return options[value - 1]
    labels = ", ".join(f"{i}. {label}" for i, label in enumerate(options, 1))
    raise AnswerError(f"the answer to {name!r} must be one of {labels} (a label or its number), not {_brief(value)}")


def _filled(value: Any, name: str) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise AnswerError(
                f"the answer to {name!r} must be the form's fields as a JSON object, not {_brief(value)}"
            ) from None
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        value = dump(mode="json", by_alias=True)
    if not isinstance(value, dict):
        raise AnswerError(f"the answer to {name!r} must be the form's fields, as a dict, not {_brief(value)}")
    return _jsonable(value, name)


def _jsonable(value: dict[str, Any], name: str) -> dict[str, Any]:
    """Fields as JSON: dates, Decimals and the like as the text that pydantic reads back."""
    from pydantic_core import to_jsonable_python

    try:
        fields = to_jsonable_python(value)
    except Exception as error:
        raise AnswerError(f"the answer to {name!r} has a field that is not data: {error}") from None
    return dict(fields)


def _brief(value: Any) -> str:
    text = codec.preview(value, limit=80).decode()
    return text if isinstance(value, str | int | float | bool | type(None) | dict | list) else type(value).__name__


def read_form(model: Any, answer: Any, *, name: str) -> Any:
    """The validated model of a form's answer.

    Raises:
        AnswerError: every field that does not fit, one a line.
    """
    from pydantic import ValidationError

    if isinstance(answer, model):
        return answer
    fields = _filled(answer, name)
    try:
        raw = msgspec.json.encode(fields)  # as JSON, so that strict models take a date's text
        return model.model_validate_json(raw)
    except ValidationError as error:
        problems = [
            f"  - {'.'.join(map(str, e['loc'])) or 'the form'}: {e['msg']}" for e in error.errors(include_url=False)
        ]
        raise AnswerError(f"the answer to {name!r} does not fit:\n" + "\n".join(problems)) from None
