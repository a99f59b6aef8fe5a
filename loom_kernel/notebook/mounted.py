"""Widgets of custom questions: below the run's live view while they are open, and heard while a cell runs.

What the browser says to them is handled on one thread of their own: neither the runs nor a running cell are in the way,
and an author's callback may block. ipywidgets is loaded when the first one is shown.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from loom_kernel.errors import DefinitionError

if TYPE_CHECKING:
    from loom_kernel.notebook.live_view import LiveView
    from loom_kernel.notebook.tap import Tap

_VIEW_COMES_S = 0.3
"""How long a widget waits for its run's live view: a start shows it a moment after the run has begun."""


class Mounted:
    """The widgets of open questions in this kernel.

    Args:
        loop: the runs' loop.
        tap: brings what the browser says while a cell runs.
        views: the live views there are.
        publish: publishes an output under the last cell.
        format: gives an object's MIME bundle.
    """

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        tap: Tap,
        views: Callable[[], list[LiveView]],
        publish: Callable[..., None],
        format: Callable[[Any], tuple[dict[str, Any], dict[str, Any]]],
    ) -> None:
        self._loop, self._tap, self._views, self._publish, self._format = loop, tap, views, publish, format
        self._lock = threading.RLock()
        self._open: dict[str, _One] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="loom widgets")

    def check(self, widget: Any) -> None:
        """Whether it can be shown.

        Raises:
            DefinitionError: it is no widget, or one that was closed.
        """
        from ipywidgets import Widget

        if not isinstance(widget, Widget):
            raise DefinitionError(f"the factory of ctx.ui.custom must return an ipywidget, not {type(widget).__name__}")
        if widget.comm is None:
            raise DefinitionError("the factory of ctx.ui.custom returned a widget that was closed; make a new one")

    def open(self, run_id: str, widget: Any) -> Callable[[], None]:
        """Show a widget below its run; returns what takes it away again. On the loop thread."""
        key = uuid.uuid4().hex
        one = self._open[key] = _One(run_id, widget)
        self._hear(one)
        if not self.arrange():
            self._loop.call_later(_VIEW_COMES_S, self._alone, key)

        def remove() -> None:
            with self._lock:
                del self._open[key]
                for comm_id in one.comms:
                    self._tap.discard(comm_id)
                if one.alone:
                    self._publish(data={}, metadata={}, transient={"display_id": key}, update=True)
            self.arrange()

        return remove

    def arrange(self) -> bool:
        """Give every live view the widgets of its run and its children; whether all that are open have one. Any thread."""
        with self._lock:
            left = dict(self._open)
            for view in self._views():
                family = {member.id for member in view.run._family()}
                mine = [key for key, one in left.items() if one.run_id in family]
                wanted = [left.pop(key).widget for key in mine]
                if view.mounted != wanted:
                    view.mount(wanted)
            return not left

    def close(self) -> None:
        """Hear nothing any more."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _alone(self, key: str) -> None:
        """No live view has come: it is shown in an output of its own."""
        with self._lock:
            one = self._open.get(key)
            if one is None or self.arrange():
                return
            one.alone = True
            data, metadata = self._format(one.widget)
            self._publish(data=data, metadata=metadata, transient={"display_id": key})

    def _hear(self, one: _One) -> None:
        """Take what is said to the widget and to all inside it."""
        for widget in _tree(one.widget, set()):
            comm = widget.comm
            if comm is not None and comm.comm_id not in one.comms:
                one.comms.add(comm.comm_id)
                self._tap.add_whole(comm.comm_id, partial(self._said, one, widget))

    def _said(self, one: _One, widget: Any, message: dict[str, Any]) -> None:
        self._thread.submit(self._handle, one, widget, message)

    def _handle(self, one: _One, widget: Any, message: dict[str, Any]) -> None:
        try:
            widget._handle_msg(message)  # shows what the author's callback raises
        finally:
            self._tap.heard(message)
        with self._lock:
            if one in self._open.values():
                self._hear(one)  # a callback may have put new ones in


class _One:
    """A widget that is shown: ``alone`` in an output of its own, ``comms`` those that are heard for it."""

    def __init__(self, run_id: str, widget: Any) -> None:
        self.run_id, self.widget = run_id, widget
        self.comms: set[str] = set()
        self.alone = False


def as_one(widgets: list[Any]) -> Any:
    """One widget that shows them all."""
    if len(widgets) == 1:
        return widgets[0]
    from ipywidgets import VBox

    return VBox(widgets)


def _tree(value: Any, seen: set[int]) -> Iterator[Any]:
    """A widget and the widgets that its traits hold."""
    from ipywidgets import Widget

    if isinstance(value, Widget):
        if id(value) not in seen:
            seen.add(id(value))
            yield value
            for name in value.keys:
                with contextlib.suppress(Exception):  # a trait whose default cannot be made holds nothing yet
                    yield from _tree(getattr(value, name), seen)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _tree(part, seen)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tree(part, seen)
