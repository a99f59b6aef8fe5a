"""Custom questions as authors write them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from loom_kernel.authoring.people import Done, Question
from loom_kernel.errors import AnswerError, DefinitionError
from loom_kernel.events import PromptOpened
from loom_kernel.human.answer import SKIP, encode_answer
from loom_kernel.human.people import Interview


def pick(done: Done) -> None:
    """A factory with a name."""


def question(factory: Any, **options: Any) -> Question:
    """What a call asks."""
    asked: list[Question] = []

    def ask(question: Question) -> Coroutine[Any, Any, Any]:
        asked.append(question)

        async def wait() -> None: ...

        return wait()

    Interview(ask).custom(factory, **options).close()
    return asked[0]


def test_the_identity_is_the_nearest_there_is() -> None:
    """What is given, else the factory's name, else a lambda's source, else the line; only its hash is kept."""
    given, named = question(pick, replay_identity="v1 secret"), question(pick)
    source = [question(lambda done: 1).identity]
    source.append(question(lambda done: 2).identity)
    place = [question(functools.partial(pick)).identity for _ in range(2)]
    assert len({given.identity, named.identity, *source, *place}) == 5
    assert given.identity == question(print, replay_identity="v1 secret").identity
    assert named.identity == question(pick, label="Another").identity
    assert "secret" not in given.identity and place[0] == place[1]


def test_what_a_custom_question_is() -> None:
    """Its text is the label, its name the label's slug, its answer JSON as it stands."""
    asked = question(pick, label="Which colour?", default={"a": [1, None]}, timeout_s=5)
    assert (asked.kind, asked.name, asked.message) == ("custom", "which-colour", "Which colour?")
    assert (asked.default, asked.timeout_s, question(pick).name) == ({"a": [1, None]}, 5.0, "custom-prompt")
    for value in (None, True, "x", 1.5, [1, {"a": []}]):
        assert asked.parse(value) == value
    for value in ((1, 2), {1: 2}, float("nan"), b"x", object(), {"$loom": "x"}, "x" * 10_000_000):
        with pytest.raises(AnswerError, match="the answer to 'which-colour'"):
            asked.parse(value)


@pytest.mark.parametrize("value", [1, "yes", SKIP])
def test_programs_do_not_answer_it(value: Any) -> None:
    """Not even by taking the default."""
    with pytest.raises(AnswerError, match="'pick' is answered by its own widget"):
        encode_answer(PromptOpened(prompt="pick", kind="custom", message="?", has_default=True), value)


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda: question(5), "takes a function that makes a widget, not int"),
        (lambda: question(pick, replay_identity=5), "text is needed"),
        (lambda: question(pick, label=" "), "text must not be empty"),
        (lambda: question(pick, default={1}), "must be JSON"),
    ],
)
def test_mistakes(ask: Callable[[], Any], sentence: str) -> None:
    """Refused at the call."""
    with pytest.raises(DefinitionError, match=sentence):
        ask()
