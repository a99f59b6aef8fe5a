"""``ctx.ui``: asking a person, in five forms and one of their own."""

from __future__ import annotations

import ast
import itertools
import json
import linecache
import math
import re
import sys
import textwrap
from collections.abc import Callable, Coroutine, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from loom_kernel.authoring.people import UNSET, Done, People, Question, QuestionKind
from loom_kernel.authoring.source import where
from loom_kernel.errors import AnswerError, DefinitionError
from loom_kernel.human.answer import normal_answer, read_form
from loom_kernel.human.custom import identity_of

if TYPE_CHECKING:
    from pydantic import BaseModel

M = TypeVar("M", bound="BaseModel")

Ask = Callable[[Question], Coroutine[Any, Any, Any]]
"""How a question reaches its run: called at once (the question gets its key then), awaited for the parsed answer."""

_NAME_CHARACTERS = 40


class Interview(People):
    """Builds questions and hands them to the run.

    Args:
        ask: puts a question; its coroutine gives the answer as ``question.parse`` read it.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def confirm(
        self,
        message: str,
        *,
        name: str | None = None,
        show: Any = None,
        timeout_s: float | None = None,
        default: Any = UNSET,
    ) -> Coroutine[Any, Any, bool]:
        """Ask for yes or no.

        Args:
            message: the question.
            name: what people type to answer it; the slug of the literal text otherwise.
            show: a table, figure or text to look at before answering.
            timeout_s: seconds until ``default`` is taken, or ``PromptTimeout`` is raised where there is none.
            default: True or False.

        Raises:
            DefinitionError: an argument cannot work.
        """
        return self._put("confirm", message, {"type": "boolean"}, name, show, timeout_s, default)

    def input(
        self,
        prompt: str,
        *,
        name: str | None = None,
        show: Any = None,
        timeout_s: float | None = None,
        default: Any = UNSET,
    ) -> Coroutine[Any, Any, str]:
        """Ask for a line of text. Arguments and errors as for :meth:`confirm`."""
        return self._put("input", prompt, {"type": "string"}, name, show, timeout_s, default)

    def select(
        self,
        message: str,
        options: Sequence[str],
        *,
        name: str | None = None,
        show: Any = None,
        timeout_s: float | None = None,
        default: Any = UNSET,
    ) -> Coroutine[Any, Any, str]:
        """Ask for one of ``options``; the answer is its label. Arguments and errors as for :meth:`confirm`."""
        labels = _labels(options)
        return self._put("select", message, {"enum": list(labels)}, name, show, timeout_s, default, options=labels)

    def editor(
        self,
        initial: str = "",
        *,
        name: str | None = None,
        show: Any = None,
        timeout_s: float | None = None,
        default: Any = UNSET,
    ) -> Coroutine[Any, Any, str]:
        """Ask for text of many lines, starting with ``initial``. Arguments and errors as for :meth:`confirm`."""
        if not isinstance(initial, str):
            raise DefinitionError(f"ctx.ui.editor(initial=...) takes text, not {type(initial).__name__}")
        return self._put(
            "editor", "Edit the text", {"type": "string"}, name or "editor", show, timeout_s, default, initial=initial
        )

    def form(
        self,
        model: type[M],
        *,
        initial: M | dict[str, Any] | None = None,
        name: str | None = None,
        show: Any = None,
        timeout_s: float | None = None,
        default: Any = UNSET,
    ) -> Coroutine[Any, Any, M]:
        """Ask for the fields of a pydantic model; the answer is an instance of it.

        Args:
            model: the class; its JSON Schema makes the form, its validation reads the answer.
            initial: what the fields start with: an instance, or a dict of some of them.

        Further arguments and errors as for :meth:`confirm`.
        """
        schema = _form_schema(model)
        doc = (vars(model).get("__doc__") or "").strip().splitlines()
        message = (
            doc[0]
            if doc
            else " ".join(re.findall(r"[A-Z]+(?=[A-Z][a-z]|$)|[A-Z]?[a-z]+|\d+", model.__name__)).capitalize()
        )
        start = None
        if initial is not None:
            try:
                start = normal_answer("form", initial, name=name or "form")
            except AnswerError as error:
                raise DefinitionError(f"ctx.ui.form(initial=...): {error}") from None
        return self._put(
            "form",
            message or model.__name__,
            schema,
            name or slug(message),
            show,
            timeout_s,
            default,
            initial=start,
            model=model,
        )

    def custom(
        self,
        factory: Callable[[Done], Any],
        *,
        label: str = "Custom prompt",
        replay_identity: str | None = None,
        name: str | None = None,
        timeout_s: float | None = None,
        default: Any = UNSET,
    ) -> Coroutine[Any, Any, Any]:
        """Ask with a widget of your own, shown below the run while the question is open.

        Only the widget answers it: `%loom answer`, ``r.answer`` and scripts of answers are refused.

        Args:
            factory: gets ``done``, a function that takes the answer, and returns any ipywidget; it may be a coroutine
                function. It is called each time the question is asked, also when a run goes on.
            label: the question's text.
            replay_identity: change it when the widget means something else, and the question is asked again. Without it
                that is the factory's name, for a lambda its source. Only its hash is kept.
            name: what the question is called; the label's slug otherwise.
            timeout_s: seconds until ``default`` is taken, or ``PromptTimeout`` is raised where there is none.
            default: any JSON value.

        Raises:
            DefinitionError: an argument cannot work.
            LoomError: no interactive notebook is there to show it, and it is not answered yet.
        """
        if not callable(factory):
            raise DefinitionError(f"ctx.ui.custom takes a function that makes a widget, not {type(factory).__name__}")
        if replay_identity is not None and not isinstance(replay_identity, str):
            raise DefinitionError(f"ctx.ui.custom(replay_identity={replay_identity!r}): text is needed")
        identity = identity_of(factory, replay_identity, where(sys._getframe(1)))
        return self._put("custom", label, {}, name, None, timeout_s, default, factory=factory, identity=identity)

    def _put(
        self,
        kind: QuestionKind,
        message: str,
        schema: dict[str, Any],
        name: str | None,
        show: Any,
        timeout_s: float | None,
        default: Any,
        *,
        options: tuple[str, ...] = (),
        initial: Any = None,
        model: Any = None,
        factory: Callable[[Done], Any] | None = None,
        identity: str = "",
    ) -> Coroutine[Any, Any, Any]:
        if not isinstance(message, str) or not message.strip():
            raise DefinitionError(f"ctx.ui.{kind}: the question's text must not be empty")
        caller = sys._getframe(2)
        name = _name(kind, name) if name is not None else slug(literal_text(caller, message)) or kind

        def parse(answer: Any) -> Any:
            if model is not None:
                return read_form(model, answer, name=name)
            return normal_answer(kind, answer, name=name, options=options)

        return self._ask(
            Question(
                kind=kind,
                message=message,
                name=name,
                parse=parse,
                options=options,
                initial=initial,
                schema=schema,
                show=show,
                timeout_s=_timeout(kind, timeout_s),
                default=_default(kind, default, parse, name, options),
                has_default=default is not UNSET,
                where=where(caller),
                factory=factory,
                identity=identity,
            )
        )


def _labels(options: Sequence[str]) -> tuple[str, ...]:
    if isinstance(options, str) or not isinstance(options, Sequence):
        raise DefinitionError(f"ctx.ui.select: options must be a list of labels, not {type(options).__name__}")
    labels = tuple(options)
    if not labels:
        raise DefinitionError("ctx.ui.select: there are no options to choose from")
    for label in labels:
        if not isinstance(label, str) or not label.strip():
            raise DefinitionError(f"ctx.ui.select: every option must be text that is not empty, not {label!r}")
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise DefinitionError(f"ctx.ui.select: {twice[0]!r} stands twice among the options")
    return tuple(str(label) for label in labels)


def _form_schema(model: Any) -> dict[str, Any]:
    if not isinstance(model, type) or not hasattr(model, "model_json_schema"):
        raise DefinitionError(
            f"ctx.ui.form takes a pydantic model class, not {getattr(model, '__name__', type(model).__name__)}"
        )
    try:
        schema: dict[str, Any] = model.model_json_schema(mode="validation")
    except Exception as error:
        raise DefinitionError(f"ctx.ui.form: {model.__name__} has no JSON Schema: {error}") from None
    if '"writeOnly": true' in json.dumps(schema, default=str):
        raise DefinitionError(
            f"ctx.ui.form: {model.__name__} has a secret field; answers are kept in the journal, so ask for secrets as a workflow's input"
        )
    return schema


def _name(kind: str, name: Any) -> str:
    if not isinstance(name, str) or not re.fullmatch(r"[^\s#*?\[\]/:]+", name):
        raise DefinitionError(f"ctx.ui.{kind}(name={name!r}): a name is one word without spaces, #, *, ?, [ ], / or :")
    return name


def _timeout(kind: str, timeout_s: Any) -> float | None:
    if timeout_s is None:
        return None
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not (0 < timeout_s < math.inf):
        raise DefinitionError(f"ctx.ui.{kind}(timeout_s={timeout_s!r}): a number of seconds above zero is needed")
    return float(timeout_s)


def _default(kind: str, default: Any, parse: Callable[[Any], Any], name: str, options: tuple[str, ...]) -> Any:
    """The default as it is stored, checked like an answer."""
    if default is UNSET:
        return UNSET
    try:
        parse(default)
        return normal_answer(kind, default, name=name, options=options)
    except AnswerError as error:
        raise DefinitionError(f"ctx.ui.{kind}(default={default!r}): {error}") from None


def slug(text: str) -> str:
    """A text as a name: ``"Summarise it?"`` → ``"summarise-it"``; at most 40 characters, cut between words."""
    words = re.findall(r"\w+", text.lower().replace("_", " ").replace("'", ""))
    name = ""
    for word in words:
        if name and len(name) + 1 + len(word) > _NAME_CHARACTERS:
            break
        name = f"{name}-{word}" if name else word[:_NAME_CHARACTERS]
    return name


def literal_text(frame: FrameType | None, message: str) -> str:
    """The fixed part of a question's text where the caller wrote an f-string, else the text itself.

    ``confirm(f"Drop {n} rows?")`` is named ``drop-rows`` whatever ``n`` is. Looks at the source of the very call.
    """
    try:
        argument = _first_argument(frame) if frame is not None else None
    except (SyntaxError, ValueError, IndexError, TypeError):
        argument = None
    if not isinstance(argument, ast.JoinedStr):
        return message
    fixed = "".join(str(part.value) if isinstance(part, ast.Constant) else " " for part in argument.values)
    return fixed if slug(fixed) else message


def _first_argument(frame: FrameType) -> ast.expr | None:
    code = frame.f_code
    first, last, begin, end = next(itertools.islice(code.co_positions(), frame.f_lasti // 2, None))
    if first is None or last is None:
        return None
    lines = [linecache.getline(code.co_filename, n) for n in range(first, last + 1)]
    if not lines[0]:
        return None
    lines[-1] = lines[-1].encode()[:end].decode()
    lines[0] = lines[0].encode()[begin or 0 :].decode()
    call = ast.parse(textwrap.dedent("".join(lines)), mode="eval").body
    if not isinstance(call, ast.Call):
        return None
    if call.args:
        return call.args[0]
    return next((k.value for k in call.keywords if k.arg in ("message", "prompt")), None)
