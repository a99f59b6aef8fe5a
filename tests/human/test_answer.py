"""What people type becomes what is stored, and never its opposite."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec
import pydantic
import pytest

from loom_kernel.errors import AnswerError
from loom_kernel.events import PromptOpened
from loom_kernel.human.answer import SKIP, encode_answer, expected, normal_answer, read_form


class Order(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)

    when: dt.date
    count: int = pydantic.Field(ge=1, alias="n")


def opened(kind: str, **fields: Any) -> PromptOpened:
    return PromptOpened(prompt="go", kind=kind, message="Go on?", **fields)


def stored(kind: str, value: Any, **fields: Any) -> Any:
    return msgspec.json.decode(encode_answer(opened(kind, **fields), value))


@pytest.mark.parametrize("word", [True, "true", "yes", "y", "approve", "confirm", "YES", " Yes\n", "Approve"])
def test_yes(word: Any) -> None:
    """Every way of saying yes is True."""
    assert stored("confirm", word) is True


@pytest.mark.parametrize("word", [False, "false", "no", "n", "reject", "deny", "NO", " No ", "Deny"])
def test_no(word: Any) -> None:
    """Every way of saying no is False: a text is never taken for true because it is not empty."""
    assert stored("confirm", word) is False


@pytest.mark.parametrize("word", ["", "maybe", "yes please", "0", "1", 1, 0, None, [], {}, "yess", "nо"])
def test_neither(word: Any) -> None:
    """Anything else is refused, and the sentence says what is expected."""
    with pytest.raises(
        AnswerError,
        match=r"the answer to 'go' must be yes or no \(true, y, approve, confirm; false, n, reject, deny\), not",
    ):
        encode_answer(opened("confirm"), word)


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        ("Keep", "Keep"),
        ("keep", "Keep"),
        (" KEEP ", "Keep"),
        (1, "Keep"),
        ("2", "Drop"),
        (3, "10"),
        ("10", "10"),
        ("3", "10"),
    ],
)
def test_select(answer: Any, label: str) -> None:
    """A label, in whatever case, or its number from 1; a label that is a number goes first."""
    assert label == stored("select", answer, options=["Keep", "Drop", "10"])


@pytest.mark.parametrize("answer", ["", "4", 0, -1, 4, True, None, "keepx", 1.0, ["Keep"]])
def test_select_refused(answer: Any) -> None:
    """What is no option is refused with the options and their numbers."""
    with pytest.raises(AnswerError, match=r"one of 1\. Keep, 2\. Drop, 3\. 10 \(a label or its number\), not"):
        encode_answer(opened("select", options=["Keep", "Drop", "10"]), answer)


def test_select_ambiguous() -> None:
    """Labels that differ only in case have to be written exactly."""
    assert stored("select", "a", options=["A", "a"]) == "a"
    with pytest.raises(AnswerError, match="could be 'AB' or 'ab'; write it exactly"):
        encode_answer(opened("select", options=["AB", "ab"]), "Ab")


@pytest.mark.parametrize("kind", ["input", "editor"])
def test_text(kind: str) -> None:
    """Text is taken as it is; a number, as YAML reads one, is to be put in quotes."""
    assert stored(kind, " a\nb ") == " a\nb "
    with pytest.raises(AnswerError, match=r"must be text, not 5; put it in quotes"):
        encode_answer(opened(kind), 5)


def test_form() -> None:
    """A form takes a dict, a JSON object or an instance; it is stored as JSON that pydantic reads back."""
    order = Order(when=dt.date(2026, 1, 2), n=3)
    fields = {"when": "2026-01-02", "n": 3}

    assert [fields] * 4 == [
        stored("form", v)
        for v in (fields, '{"when": "2026-01-02", "n": 3}', order, {"when": dt.date(2026, 1, 2), "n": 3})
    ]
    assert order == read_form(Order, fields, name="go") == read_form(Order, order, name="go")


def test_form_refused() -> None:
    """A form's problems are all listed."""
    with pytest.raises(AnswerError) as caught:
        read_form(Order, {"when": "soon", "n": 0}, name="go")

    assert [line.partition(":")[0] if i else line for i, line in enumerate(str(caught.value).splitlines())] == [
        "the answer to 'go' does not fit:",
        "  - when",
        "  - n",
    ]
    for value in ("yes", 5, [1], Order, {"f": object()}):
        with pytest.raises(AnswerError, match="the answer to 'go'"):
            encode_answer(opened("form"), value)


def test_skip_takes_the_default() -> None:
    """Skipping a question gives its default; one without has to be answered."""
    assert stored("confirm", SKIP, has_default=True, default=msgspec.Raw(b"false")) is False
    with pytest.raises(AnswerError, match="question 'go' has no default, so it cannot be skipped; answer yes or no"):
        encode_answer(opened("confirm"), SKIP)


def test_answers_are_bounded() -> None:
    """An answer larger than an event may be is refused with its size."""
    with pytest.raises(AnswerError, match=r"is 100,002 bytes; at most 65,536"):
        encode_answer(opened("editor"), "x" * 100_000)


def test_answers_are_json() -> None:
    """What JSON does not have is refused in a form."""
    with pytest.raises(AnswerError, match="float that JSON does not have"):
        encode_answer(opened("form"), {"x": float("nan")})


def test_expected() -> None:
    """Each kind says what it takes."""
    assert expected("select", ["a", "b"]) == "answer with one of 1. a, 2. b"
    assert len({expected(k) for k in ("confirm", "input", "form", "select")}) == 4
    assert normal_answer("input", "yes", name="x") == "yes"
