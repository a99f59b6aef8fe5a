"""Questions as authors write them."""

from __future__ import annotations

import asyncio
import linecache
from collections.abc import Callable, Coroutine
from typing import Any

import pydantic
import pytest

from loom_kernel.authoring.people import UNSET, Question
from loom_kernel.errors import AnswerError, DefinitionError
from loom_kernel.human.people import Interview, slug


class Cleaning(pydantic.BaseModel):
    """How should we clean?"""

    drop: bool = True
    limit: int


class HTTPServerLimits(pydantic.BaseModel):
    n: int


class Login(pydantic.BaseModel):
    password: pydantic.SecretStr


class Asked:
    """A run that takes questions down and gives the answers it was given."""

    def __init__(self) -> None:
        self.questions: list[Question] = []
        self.ui = Interview(self.ask)
        self.answer: Any = None

    def ask(self, question: Question) -> Coroutine[Any, Any, Any]:
        self.questions.append(question)

        async def wait() -> Any:
            return question.parse(self.answer)

        return wait()

    def __call__(self, answer: Any, question: Callable[[Interview], Coroutine[Any, Any, Any]]) -> Any:
        self.answer = answer
        return asyncio.run(question(self.ui))  # type: ignore[arg-type]


@pytest.fixture
def asked() -> Asked:
    return Asked()


def test_five_kinds(asked: Asked) -> None:
    """Each kind gives the type that its name promises."""
    assert asked("no", lambda ui: ui.confirm("Sure?")) is False
    assert asked("x", lambda ui: ui.input("Who?")) == "x"
    assert asked(2, lambda ui: ui.select("Which?", ["a", "b"])) == "b"
    assert asked("t", lambda ui: ui.editor("draft")) == "t"
    assert Cleaning(limit=3) == asked({"limit": 3}, lambda ui: ui.form(Cleaning))

    kinds = [(q.kind, q.name, q.message, q.schema.get("type") or q.schema.get("enum")) for q in asked.questions]
    assert kinds == [
        ("confirm", "sure", "Sure?", "boolean"),
        ("input", "who", "Who?", "string"),
        ("select", "which", "Which?", ["a", "b"]),
        ("editor", "editor", "Edit the text", "string"),
        ("form", "how-should-we-clean", "How should we clean?", "object"),
    ]
    assert (asked.questions[3].initial, asked.questions[0].initial) == ("draft", None)


def test_question_is_put_at_the_call(asked: Asked) -> None:
    """A question gets its key when it is called, not when it is awaited."""
    waiting = asked.ui.confirm("Sure?")

    assert len(asked.questions) == 1
    waiting.close()


def test_bad_answer(asked: Asked) -> None:
    """An answer that does not fit raises the sentence that reopens the question."""
    with pytest.raises(AnswerError, match="must be yes or no"):
        asked("perhaps", lambda ui: ui.confirm("Sure?"))
    with pytest.raises(AnswerError, match="limit: Field required"):
        asked({}, lambda ui: ui.form(Cleaning))


def test_where_and_options(asked: Asked) -> None:
    """A question knows its line, what it shows, and its default."""
    asked.ui.confirm("Sure?", name="go", show=[1], timeout_s=5, default="yes").close()
    asked.ui.confirm("Sure?", default=True).close()
    asked.ui.confirm("Sure?").close()
    first, second, third = asked.questions

    assert first.where.startswith("test_people.py, line ")
    assert (first.name, first.show, first.timeout_s, first.default, first.has_default) == ("go", [1], 5.0, True, True)
    assert (second.timeout_s, second.default, second.has_default) == (None, True, True)
    assert (third.default, third.has_default) == (UNSET, False)


def test_form_initial(asked: Asked) -> None:
    """A form starts with an instance or some of its fields, as JSON; defaults may be either too."""
    asked.ui.form(Cleaning, initial={"drop": False}).close()
    asked.ui.form(Cleaning, initial=Cleaning(limit=1), default=Cleaning(limit=9)).close()

    assert [q.initial for q in asked.questions] == [{"drop": False}, {"drop": True, "limit": 1}]
    assert asked.questions[1].default == {"drop": True, "limit": 9}


def test_form_without_words(asked: Asked) -> None:
    """A model without a docstring is called by its name in words."""
    asked.ui.form(HTTPServerLimits).close()

    assert (asked.questions[0].message, asked.questions[0].name) == ("Http server limits", "http-server-limits")


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda ui: ui.select("x", []), "no options to choose from"),
        (lambda ui: ui.select("x", "abc"), "options must be a list of labels, not str"),
        (lambda ui: ui.select("x", ["a", "a"]), "'a' stands twice"),
        (lambda ui: ui.select("x", ["a", 1]), "must be text that is not empty, not 1"),
        (lambda ui: ui.select("x", ["a"], default="b"), r"default='b'\): the answer to 'x' must be one of"),
        (lambda ui: ui.confirm(" "), "text must not be empty"),
        (lambda ui: ui.confirm(5), "text must not be empty"),
        (lambda ui: ui.confirm("x", name="a b"), "a name is one word"),
        (lambda ui: ui.confirm("x", name="go#2"), "a name is one word"),
        (lambda ui: ui.confirm("x", name=""), "a name is one word"),
        (lambda ui: ui.confirm("x", timeout_s=0, default=True), "above zero"),
        (lambda ui: ui.confirm("x", timeout_s=True, default=True), "above zero"),
        (lambda ui: ui.confirm("x", default="perhaps"), "must be yes or no"),
        (lambda ui: ui.input("x", default=5), "must be text"),
        (lambda ui: ui.editor(5), "takes text, not int"),
        (lambda ui: ui.form(dict), "takes a pydantic model class, not dict"),
        (lambda ui: ui.form(Cleaning, default={}), "limit: Field required"),
        (lambda ui: ui.form(Cleaning, initial=5), "must be the form's fields"),
        (lambda ui: ui.form(Login), "Login has a secret field"),
    ],
)
def test_mistakes(asked: Asked, ask: Callable[[Interview], Any], sentence: str) -> None:
    """A question that cannot work is refused at the call, before it is open."""
    with pytest.raises(DefinitionError, match=sentence):
        ask(asked.ui)

    assert asked.questions == []


def test_name_is_the_literal_text(asked: Asked) -> None:
    """The name comes from what is written, so numbers that an f-string fills in do not change it."""
    for n in (3, 5):
        asked.ui.confirm(f"Drop {n} of {n + 1:>3} rows?").close()
        asked.ui.confirm(
            message=f"Keep {n} for ever?",
        ).close()
    text = f"Write {n} rows?"
    asked.ui.confirm(text).close()
    asked.ui.confirm(f"{n}").close()

    assert [q.name for q in asked.questions] == ["drop-of-rows", "keep-for-ever"] * 2 + ["write-5-rows", "5"]


def test_name_in_a_cell(asked: Asked) -> None:
    """A cell's code is found as the notebook keeps it; where there is no source the text itself names the question."""
    source = "async def body(ui, n):\n    await ui.confirm(f'Größe {n}: ok?')\n"
    for file in ("/tmp/ipykernel_1/2.py", "<no source>"):
        if file[0] == "/":
            linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        namespace: dict[str, Any] = {}
        exec(compile(source, file, "exec"), namespace)
        asked.answer = True
        asyncio.run(namespace["body"](asked.ui, 7))

    assert [q.name for q in asked.questions] == ["größe-ok", "größe-7-ok"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Summarise?", "summarise"),
        ("Don't  stop -- it's_fine!", "dont-stop-its-fine"),
        ("Ergebnis für Zürich?", "ergebnis-für-zürich"),
        ("???", ""),
        ("word " * 20, "word-word-word-word-word-word-word-word"),
        ("x" * 100, "x" * 40),
    ],
)
def test_slug(text: str, name: str) -> None:
    """A name is what one would type for the text, at most 40 characters."""
    assert name == slug(text)


def test_text_without_words(asked: Asked) -> None:
    """A text without letters falls back to the kind."""
    asked.ui.confirm("???").close()

    assert asked.questions[0].name == "confirm"
