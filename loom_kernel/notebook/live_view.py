"""A run under a cell: the live view, and beside it the picture that stays.

Two outputs. The first holds the widget. The second holds the static picture, which the widget's own style hides while
it is there; so whatever becomes of the widget (another program opens the file, the kernel is gone), the picture shows.
When the run ends the widget is closed and its output emptied, and only the picture stays. A run that failed and can go on
keeps its widget, for the sake of its Resume button, as long as the kernel lives. No widget state is kept. While a question
with a widget of its own is open, that widget takes the picture's place.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from loom_kernel.notebook.mounted import as_one
from loom_kernel.views.run import RunView
from loom_kernel.views.text import bundle

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from loom_kernel.notebook.run_widget import RunWidget
    from loom_kernel.notebook.tap import Tap
    from loom_kernel.runtime.run import Run

Publish = Callable[..., None]
"""``shell.display_pub.publish``: sends one output, or with ``update=True`` replaces one by its display id."""

_TELLING = frozenset({"run.started", "run.paused", "run.ended", "prompt.opened", "prompt.answered"})
"""Events after which the picture is another one that matters; between them only the live view changes."""


def picture(view: RunView, *, times: bool = True, hidden_by_widget: bool = False) -> dict[str, str]:
    """The static picture as a MIME bundle.

    Args:
        times: False leaves out durations, so that two runs of one job give the same output.
        hidden_by_widget: True while a live view stands beside it, which finds it by the run's id.
    """
    made = bundle(view, times=times)
    if not hidden_by_widget:  # the id would be the only thing that differs from one run to the next
        made["text/html"] = made["text/html"].replace(f' data-run="{view.run_id}"', "")
    return made


class LiveView:
    """The live view of one run under the cell that runs now.

    Args:
        run: what is shown.
        publish: sends outputs.
        format: gives an object's MIME bundle.
        loop: the loop on which the run's events are heard.
        clock: seconds since the epoch, by the clock that stamps events.
        tap: brings clicks while a cell runs.
        closed: called once the view is closed.
        stays: keep the widget when the run ends, for a person who asked to look inside.
    """

    def __init__(
        self,
        run: Run[Any],
        *,
        publish: Publish,
        format: Callable[[Any], tuple[dict[str, Any], dict[str, Any]]],
        loop: AbstractEventLoop,
        clock: Callable[[], float],
        tap: Tap | None,
        closed: Callable[[LiveView], None] = lambda _: None,
        stays: bool = False,
    ) -> None:
        from loom_kernel.notebook.run_widget import RunWidget

        self.run = run
        self._format = format
        self._mounted: list[Any] = []
        self._publish, self._loop, self._tap, self._closed, self._stays = publish, loop, tap, closed, stays
        self._lock = threading.Lock()
        self._open = True
        self._due = False
        self._ids = {"widget": uuid.uuid4().hex, "picture": uuid.uuid4().hex}
        self._widget: RunWidget = RunWidget(run, loop=loop)
        comm = self._widget.comm
        if tap is not None and comm is not None:
            tap.add(comm.comm_id, self._deliver)
        data, metadata = format(self._widget)
        self._send("widget", data, metadata)
        self._send("picture", picture(run.view, hidden_by_widget=True))
        self._unlisten = run.listen(self._heard)
        self._loop.call_soon_threadsafe(self._look)  # for what came in between

    def close(self) -> None:
        """Close the widget; the picture stays. Any thread; twice is once."""
        with self._lock:
            if not self._open:
                return
            self._open = False
        self._unlisten()
        widget = self._widget
        comm = widget.comm
        if self._tap is not None and comm is not None:
            self._tap.discard(comm.comm_id)
        self._send("picture", picture(self.run.view), update=True)
        self._send("widget", {}, update=True)
        widget.close()
        self._closed(self)

    def _deliver(self, content: dict[str, Any], buffers: list[memoryview]) -> None:
        self._widget._handle_custom_msg(content, buffers)

    def _heard(self, entry: Any) -> None:
        # Entries come in batches: one look afterwards is enough for all of them.
        if entry.type in _TELLING and not self._due:
            self._due = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._due = False
        view = self.run.view
        if view.ended and not view.resumable and not self._stays:
            self.close()
        elif self._open:
            self._send_beside()

    @property
    def mounted(self) -> list[Any]:
        """The widgets of open questions that are shown here."""
        return self._mounted

    def mount(self, widgets: list[Any]) -> None:
        """Show these widgets, of open questions, below the live view; none takes them away. Any thread."""
        self._mounted = list(widgets)
        if self._open:
            self._send_beside()

    def _send_beside(self) -> None:
        """What stands beside the live view: the picture, which it hides, or the widgets of open questions."""
        data: dict[str, Any] = dict(picture(self.run.view, hidden_by_widget=True))
        metadata: dict[str, Any] = {}
        if mounted := self._mounted:
            made, metadata = self._format(as_one(mounted))
            data = {**made, **data}  # where the widget cannot be shown, the picture is
        self._send("picture", data, metadata, update=True)

    def _send(
        self, which: str, data: dict[str, Any], metadata: dict[str, Any] | None = None, *, update: bool = False
    ) -> None:
        self._publish(data=data, metadata=metadata or {}, transient={"display_id": self._ids[which]}, update=update)
