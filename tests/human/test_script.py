"""Answers from a file: each question has its line, each line its question."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pydantic
import pytest
from ruamel.yaml import YAML

from loom_kernel.errors import AnswerError
from loom_kernel.events import PromptOpened
from loom_kernel.human.answer import SKIP, encode_answer
from loom_kernel.human.script import Answers, line_for

FILE = """
# the tour
- {prompt: drop-*, answer: yes, times: 2}
- {workflow: digest, prompt: go, answer: no}
- prompt: go
  answer: true
- {prompt: "name#2", answer: second}
- {prompt: name, answer: first}
- {prompt: name, answer: third}
- {workflow: "clean*", prompt: form, answer: {n: 3, tags: [a]}}
- {prompt: late, skip: true}
"""


@pytest.fixture
def answers(tmp_path: Path) -> Answers:
    path = tmp_path / "answers.yaml"
    path.write_text(FILE)
    return Answers.load(path)


def taken(answers: Answers, workflow: str, prompt: str) -> Any:
    line = answers.take(workflow, prompt)
    return None if line is None else line.answer


def test_take(answers: Answers) -> None:
    """A question gets the first line that fits, once: by workflow, name, glob and occurrence."""
    assert [taken(answers, "w", p) for p in ("drop-rows", "drop-cols#2", "drop-x")] == ["yes", "yes", None]
    assert [taken(answers, w, "go") for w in ("Digest", "digest", "digest")] == ["no", True, None]
    assert [taken(answers, "w", p) for p in ("name", "name#2", "name#3")] == ["first", "second", "third"]
    assert [taken(answers, w, "form") for w in ("other", "cleaning")] == [None, {"n": 3, "tags": ["a"]}]
    assert SKIP is taken(answers, "w", "late")
    assert None is taken(answers, "w", "never heard of")
    assert answers.leftovers() == []
    answers.check()


def test_leftovers(answers: Answers) -> None:
    """Lines that nobody asked for are listed as they would stand in the file, and fail a check."""
    answers.take("w", "drop-a")

    left = answers.leftovers()
    assert left[0] == '- {prompt: "drop-*", answer: "yes", times: 2}  # used 1 of 2'
    assert [left[1], left[-1]] == ['- {workflow: digest, prompt: go, answer: "no"}', "- {prompt: late, skip: yes}"]
    with pytest.raises(AnswerError, match=r"answers\.yaml: nobody asked for 8 of the answers; remove them:\n- {"):
        answers.check()


def test_mapping() -> None:
    """A dict answers as often as it is asked."""
    answers = Answers({"go": True, "drop-*": "no", "unused": 1})

    assert [taken(answers, "w", p) for p in ("go", "go#2", "drop-x")] == [True, True, "no"]
    assert answers.leftovers() == ["- {prompt: unused, answer: 1}"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- {prompt: go", r"answers\.yaml, line \d is not YAML"),
        ("go: yes", "must be a list of lines like"),
        ("- go", "entry 1: expected `{prompt"),
        ("- {prompt: go, answer: yes, time: 2}", "unknown time; an entry has workflow, prompt"),
        ("- {answer: yes}", "`prompt` must name a question"),
        ("- {prompt: go}", "write either `answer: ...` or `skip: true`"),
        ("- {prompt: go, answer: yes, skip: true}", "write either"),
        ("- {prompt: go, skip: false}", "write either"),
        ("- {prompt: a, answer: 1}\n- {prompt: go, answer: yes, times: 0}", "entry 2: `times` must be"),
        ("- {prompt: go, answer: yes, times: true}", "`times` must be"),
        ("- {prompt: go, answer: yes, workflow: 5}", "`workflow` must be a name"),
        ("- {prompt: go, answer: !!python/object/apply:os.system [ls]}", "is not YAML"),
    ],
)
def test_mistakes(tmp_path: Path, text: str, sentence: str) -> None:
    """A file that is not understood says where and why."""
    path = tmp_path / "answers.yaml"
    path.write_text(text)

    with pytest.raises(AnswerError, match=sentence):
        Answers.load(path)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    """A missing file is an error, an empty one has no answers."""
    with pytest.raises(AnswerError, match=r"answers file .*nowhere\.yaml cannot be read: No such file"):
        Answers.load(tmp_path / "nowhere.yaml")
    (tmp_path / "empty.yaml").write_text("# none yet\n")

    assert None is Answers.load(tmp_path / "empty.yaml").take("w", "go")


class Address(pydantic.BaseModel):
    city: str


class Order(pydantic.BaseModel):
    where: Address
    count: int
    note: str | None
    size: float = 2.5


QUESTIONS = [
    PromptOpened(prompt="go", kind="confirm", message="Go\non? # really"),
    PromptOpened(prompt="größe-ok#2", kind="confirm", message="?"),
    PromptOpened(prompt="yes", kind="input", message="Say something: now"),
    PromptOpened(prompt="pick", kind="select", message="Which", options=["no", "2"]),
    PromptOpened(prompt="text", kind="editor", message="Edit " * 50),
    PromptOpened(prompt="order", kind="form", message="Order", schema=Order.model_json_schema()),
]


@pytest.mark.parametrize("opened", QUESTIONS, ids=lambda q: q.prompt)
def test_line_for(tmp_path: Path, opened: PromptOpened) -> None:
    """The line that is printed for an open question can be pasted as it stands, and answers it."""
    line = line_for(opened, "digest")
    path = tmp_path / "answers.yaml"
    path.write_text(line + "\n")

    assert len(line.splitlines()) == 1
    assert len(YAML(typ="safe").load(line)) == 1
    taken = Answers.load(path).take("digest", opened.prompt)
    assert taken is not None
    encode_answer(opened, taken.answer)


def test_line_for_reads_well() -> None:
    """The line is what a person would write."""
    assert line_for(QUESTIONS[0], "digest") == "- {workflow: digest, prompt: go, answer: yes}  # Go on? # really"
    assert (
        line_for(QUESTIONS[-1])
        == '- {prompt: order, answer: {"where": {"city": "..."}, "count": 1, "note": "..."}}  # Order'
    )
    order = Answers([{"prompt": "order", "answer": {"where": {"city": "x"}, "count": 1, "note": None}}]).take(
        "w", "order"
    )
    assert order is not None and Order.model_validate(order.answer)
