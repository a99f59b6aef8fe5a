"""Questions to a person: what one is, and the interface an author asks through."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from pydantic import BaseModel

M = TypeVar("M", bound="BaseModel")

Done = Callable[[Any], None]
"""Answers a custom question, from any thread; the value must be JSON. What comes after the first answer is ignored."""

QuestionKind = Literal["confirm", "input", "select", "editor", "form", "custom"]


class _Unset:
    """Stands for "no default", since None may be one."""

    def __repr__(self) -> str:
        return "..."

    def __bool__(self) -> bool:
        return False


UNSET: Any = _Unset()


@dataclass(frozen=True, kw_only=True)
class Question:
    """One question as the author wrote it.

    Args:
        kind: confirm, input, select, editor, form or custom.
        message: its text.
        name: what people type to answer it, and its identity together with its occurrence.
        options: the labels of a select.
        initial: what the form starts with, as it is stored.
        schema: JSON Schema of the stored answer.
        show: a table, figure, diff or text to look at before answering.
        timeout_s: seconds until ``default`` is taken; None waits for ever.
        default: the answer taken then; only with ``has_default``.
        parse: stored answer to the value that the body receives; raises ``AnswerError`` with a sentence.
        where: the calling line, for people.
        factory: makes the widget of a custom question.
        identity: the hash that stands for what a custom question is; its answer holds for that.
        within: the node of the model stage that asks.
    """

    kind: QuestionKind
    message: str
    name: str
    parse: Callable[[Any], Any]
    options: tuple[str, ...] = ()
    initial: Any = None
    schema: dict[str, Any] = field(default_factory=dict)
    show: Any = None
    timeout_s: float | None = None
    default: Any = UNSET
    has_default: bool = False
    where: str = ""
    factory: Callable[[Done], Any] | None = None
    identity: str = ""
    within: str = ""


class People(ABC):
    """``ctx.ui``. Every question takes ``name, show, timeout_s, default``; without ``name`` it is the text's slug."""

    @abstractmethod
    def confirm(
        self,
        message: str,
        *,
        name: str | None = None,
        show: Any = None,
        timeout_s: float | None = None,
        default: Any = UNSET,
    ) -> Coroutine[Any, Any, bool]:
        """Yes or no."""

    @abstractmethod
    def input(
        self,
        prompt: str,
        *,
        name: str | None = None,
        show: Any = None,
        timeout_s: float | None = None,
        default: Any = UNSET,
    ) -> Coroutine[Any, Any, str]:
        """One line of text."""

    @abstractmethod
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
        """One of ``options``. Raises: DefinitionError when there are none, before a question exists."""

    @abstractmethod
    def editor(
        self,
        initial: str = "",
        *,
        name: str | None = None,
        show: Any = None,
        timeout_s: float | None = None,
        default: Any = UNSET,
    ) -> Coroutine[Any, Any, str]:
        """Text of many lines, starting with ``initial``."""

    @abstractmethod
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
        """The fields of a pydantic model; the answer is an instance of it."""

    @abstractmethod
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
        """A widget of the author's own; the answer is the JSON value that it gives to ``done(value)``.

        Raises: LoomError where no interactive notebook shows it.
        """
