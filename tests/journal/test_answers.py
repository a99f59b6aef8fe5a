"""Answers that fit, and the sentences for those that do not."""

from __future__ import annotations

from typing import Any

import pytest

from loom_kernel.errors import AnswerError
from loom_kernel.journal.answers import check_answer

FORM = {
    "type": "object",
    "properties": {
        "budget": {"type": "object", "properties": {"amounts": {"type": "array", "items": {"type": "number"}}}}
    },
}


@pytest.mark.parametrize(
    ("kind", "schema", "options", "value"),
    [
        ("confirm", {}, [], b"false"),
        ("confirm", {"type": "boolean"}, [], b"true"),
        ("input", {"type": "string"}, [], b'""'),
        ("input", {"type": "integer"}, [], b"3"),
        ("select", {}, ["a", "b"], b'"b"'),
        ("select", {"enum": ["a", "b"]}, ["a", "b"], b'"a"'),
        ("form", FORM, [], b'{"budget":{"amounts":[1,2.5]}}'),
        ("form", {"$ref": "https://example.invalid/schema.json"}, [], b"{}"),
        ("form", {"type": "no such type"}, [], b"{}"),
    ],
)
def test_what_fits_passes(kind: str, schema: dict[str, Any], options: list[str], value: bytes) -> None:
    """A schema that cannot be used, or is elsewhere, does not make its question unanswerable."""
    check_answer("go", kind, schema, options, value)


@pytest.mark.parametrize(
    ("kind", "schema", "options", "value", "sentence"),
    [
        ("confirm", {}, [], b'"yes"', "answer to 'go' must be true or false, not \"yes\""),
        ("confirm", {}, [], b"1", "true or false"),
        ("editor", {}, [], b"null", "must be a text"),
        ("input", {"type": "string"}, [], b"3", "must be a string, not 3"),
        ("select", {}, ["a", "b"], b'"c"', "must be one of a, b"),
        ("select", {"enum": ["a", "b"]}, [], b'"c"', "must be one of a, b"),
        (
            "form",
            FORM,
            [],
            b'{"budget":{"amounts":[1,"2"]}}',
            "does not fit at budget.amounts[1]: '2' is not of type 'number'",
        ),
        ("form", {}, [], b"[]", "an object with the form's fields"),
        ("input", {}, [], b"{", "is not JSON"),
    ],
)
def test_what_does_not_fit_is_told(
    kind: str, schema: dict[str, Any], options: list[str], value: bytes, sentence: str
) -> None:
    """With the place in the answer."""
    with pytest.raises(AnswerError) as caught:
        check_answer("go", kind, schema, options, value)
    assert sentence in str(caught.value)
