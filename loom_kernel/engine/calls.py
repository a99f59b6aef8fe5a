"""A durable call on its way through an execution, and the awaitable that stands for it in a body."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, TypeVar

from loom_kernel.engine.frontier import Branch, Frontier
from loom_kernel.engine.replay import Found

T = TypeVar("T")


def _no_preview() -> bytes:
    return b"null"


class Call:
    """What the engine knows of one durable call of this execution.

    Attributes:
        preview: makes the arguments' preview for people, when it is needed.
        queued_s: how long it waited for its turn under a limit.
        status: pending, running, ending (its outcome is being written), waiting, retrying, completed, failed or cancelled.
    """

    __slots__ = ("branch", "found", "kind", "name", "node_id", "parents", "preview", "queued_s", "status", "where")

    def __init__(
        self, node_id: str, kind: str, name: str, where: str, found: Found, parents: Frontier, branch: Branch
    ) -> None:
        self.node_id, self.kind, self.name, self.where = node_id, kind, name, where
        self.found, self.parents, self.branch = found, parents, branch
        self.preview: Callable[[], bytes] = _no_preview
        self.status = "pending"
        self.queued_s = 0.0


class Durable(Coroutine[Any, Any, T]):
    """The awaitable of ``ctx.tool`` and its like. Its key exists already; its work begins when it is awaited."""

    __slots__ = ("__weakref__", "_begun", "_coroutine", "_what", "_where")

    def __init__(self, coroutine: Coroutine[Any, Any, T], what: str, where: str) -> None:
        self._coroutine, self._what, self._where, self._begun = coroutine, what, where, False

    def send(self, value: Any) -> Any:
        self._begun = True
        return self._coroutine.send(value)

    def throw(self, typ: Any, val: BaseException | object = None, tb: TracebackType | None = None) -> Any:
        self._begun = True
        if val is None and tb is None:
            return self._coroutine.throw(typ)
        return self._coroutine.throw(typ, val, tb)

    def close(self) -> None:
        self._begun = True
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, T]:
        self._begun = True
        return self._coroutine.__await__()

    def __del__(self) -> None:
        if self._begun:
            return
        self.close()  # first: otherwise Python would warn too, and name a coroutine of ours
        warnings.warn(
            f"{self._what} was called at {self._where} and never awaited, so it did not run",
            RuntimeWarning,
            stacklevel=2,
        )

    def __repr__(self) -> str:
        return f"<call of {self._what}>"
