"""Answers from a file or a dict, so that a notebook with questions runs with nobody there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from loom_kernel.authoring.registry import workflow_names_equal
from loom_kernel.errors import AnswerError
from loom_kernel.events import PromptOpened
from loom_kernel.human.answer import SKIP

_FIELDS = ("workflow", "prompt", "answer", "skip", "times")


@dataclass
class Line:
    """One line of a script, and how often it has been used.

    Args:
        prompt: the question's name, or a glob. Without ``#`` it fits every occurrence of that question.
        answer: the answer; ``SKIP`` takes the question's default.
        workflow: name or glob; None fits all.
        times: how often it may be used; None: without limit.
    """

    prompt: str
    answer: Any
    workflow: str | None = None
    times: int | None = 1
    used: int = 0

    def fits(self, workflow: str, prompt: str) -> bool:
        if self.times is not None and self.used >= self.times:
            return False
        if self.workflow is not None and not _same_workflow(self.workflow, workflow):
            return False
        return self.exact(prompt) or ("#" not in self.prompt and fnmatchcase(prompt.partition("#")[0], self.prompt))

    def exact(self, prompt: str) -> bool:
        return fnmatchcase(prompt, self.prompt)

    def __str__(self) -> str:
        fields: dict[str, Any] = {"workflow": self.workflow} if self.workflow else {}
        fields["prompt"] = self.prompt
        fields |= {"skip": True} if self.answer is SKIP else {"answer": self.answer}
        if self.times not in (None, 1):
            fields["times"] = self.times
        return _yaml(fields)


class Answers:
    """A script of answers. ``take`` gives each question its line; what is left over at the end is a mistake.

    Args:
        lines: a mapping of question (name or glob) to answer, used as often as asked; or a list of lines as in a file.

    Raises:
        AnswerError: a line is not understood.
    """

    def __init__(self, lines: Mapping[str, Any] | Iterable[Any], *, source: str = "answers") -> None:
        self.source = source
        if isinstance(lines, Mapping):
            self._lines = [Line(prompt=str(prompt), answer=answer, times=None) for prompt, answer in lines.items()]
        else:
            self._lines = [_line(item, i, source) for i, item in enumerate(lines, 1)]

    @classmethod
    def load(cls, path: str | Path) -> Answers:
        """Read a YAML file: a list of ``{workflow?, prompt, answer | skip: true, times?}``.

        Raises:
            AnswerError: it cannot be read; the sentence says why and where.
        """
        from ruamel.yaml import YAML
        from ruamel.yaml.error import MarkedYAMLError

        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise AnswerError(
                f"the answers file {path} cannot be read: {getattr(error, 'strerror', None) or error}"
            ) from None
        try:
            content = YAML(typ="safe", pure=True).load(text)
        except MarkedYAMLError as error:
            line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
            raise AnswerError(f"the answers file {path}{line} is not YAML: {error.problem}") from None
        if content is None:
            content = []
        if not isinstance(content, list):
            raise AnswerError(f"the answers file {path} must be a list of lines like `- {{prompt: go, answer: yes}}`")
        return cls(content, source=str(path))

    def take(self, workflow: str, prompt: str) -> Line | None:
        """The line for a question, used up once more; None where there is none left.

        A line that names the occurrence (``go#2``) goes before one that names the question.
        """
        fitting = [line for line in self._lines if line.fits(workflow, prompt)]
        line = next((line for line in fitting if line.exact(prompt)), fitting[0] if fitting else None)
        if line is not None:
            line.used += 1
        return line

    def leftovers(self) -> list[str]:
        """Lines that were used less often than they say, as YAML."""
        left = [line for line in self._lines if line.used < (line.times or 1)]
        return [f"{line}  # used {line.used} of {line.times}" if line.used else str(line) for line in left]

    def check(self) -> None:
        """Raise unless every line was used.

        Raises:
            AnswerError: it lists the lines that nobody asked for.
        """
        left = self.leftovers()
        if left:
            raise AnswerError(
                f"{self.source}: nobody asked for {len(left)} of the answers; remove them:\n" + "\n".join(left)
            )


def _same_workflow(pattern: str, name: str) -> bool:
    if fnmatchcase(name, pattern):
        return True
    return not re.search(r"[*?\[]", pattern) and workflow_names_equal(pattern, name)


def _line(item: Any, number: int, source: str) -> Line:
    place = f"{source}, entry {number}"
    if not isinstance(item, Mapping):
        raise AnswerError(f"{place}: expected `{{prompt: ..., answer: ...}}`, found {item!r}")
    unknown = [str(key) for key in item if key not in _FIELDS]
    if unknown:
        raise AnswerError(f"{place}: unknown {', '.join(unknown)}; an entry has {', '.join(_FIELDS)}")
    prompt, workflow, times = item.get("prompt"), item.get("workflow"), item.get("times", 1)
    if not isinstance(prompt, str) or not prompt:
        raise AnswerError(f"{place}: `prompt` must name a question (or be a glob), not {prompt!r}")
    if workflow is not None and not isinstance(workflow, str):
        raise AnswerError(f"{place}: `workflow` must be a name, not {workflow!r}")
    if type(times) is not int or times < 1:
        raise AnswerError(f"{place}: `times` must be a whole number of at least 1, not {times!r}")
    skip = item.get("skip", False)
    if type(skip) is not bool or skip == ("answer" in item):
        raise AnswerError(f"{place}: write either `answer: ...` or `skip: true`")
    return Line(prompt=prompt, answer=SKIP if skip else item["answer"], workflow=workflow, times=times)


# ---------------------------------------------------------------- the line to add


def line_for(opened: PromptOpened, workflow: str | None = None) -> str:
    """The line of an answers file that would answer a question, with an answer to put right; valid as it stands."""
    fields: dict[str, Any] = {"workflow": workflow} if workflow else {}
    fields |= {"prompt": opened.prompt, "answer": _example(opened)}
    message = " ".join(opened.message.split())
    return f"{_yaml(fields)}  # {message if len(message) <= 80 else message[:79] + '…'}"


def _example(opened: PromptOpened) -> Any:
    if opened.kind == "confirm":
        return True
    if opened.kind == "select":
        return opened.options[0] if opened.options else ""
    if opened.kind == "form":
        return _example_of(opened.schema, opened.schema.get("$defs", {}), 4)
    return "..."


def _example_of(schema: Mapping[str, Any], defs: Mapping[str, Any], depth: int) -> Any:
    for key in ("default", "const"):
        if key in schema:
            return schema[key]
    if schema.get("examples") or schema.get("enum"):
        return (schema.get("examples") or schema["enum"])[0]
    if "$ref" in schema and depth:
        return _example_of(defs.get(str(schema["$ref"]).rsplit("/", 1)[-1], {}), defs, depth - 1)
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key) and depth:
            return _example_of(schema[key][0], defs, depth - 1)
    kind = schema.get("type")
    if kind == "object" and depth:
        needed = schema.get("required", [])
        return {
            name: _example_of(part, defs, depth - 1)
            for name, part in schema.get("properties", {}).items()
            if name in needed
        }
    return {"boolean": True, "integer": schema.get("minimum", 1), "number": schema.get("minimum", 1.0), "array": [], "object": {}, "null": None}.get(
        str(kind), "..."
    )  # fmt: skip


def _yaml(fields: Mapping[str, Any]) -> str:
    return "- {" + ", ".join(f"{key}: {_flow(value)}" for key, value in fields.items()) + "}"


def _flow(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"  # text to YAML 1.2, yes or no to a question, and what people write
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z_][\w./-]*", value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
