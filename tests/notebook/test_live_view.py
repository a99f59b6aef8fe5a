"""Under a cell stand a live view and a picture; when the run ends only the picture is left."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("anywidget")

from loom_kernel import events
from loom_kernel.journal.abc import JournalEntry
from loom_kernel.notebook.live_view import LiveView, picture
from loom_kernel.views.run import RunView

RUN_ID = "k3v9t2m4x7qa"
WIDGET = "application/vnd.jupyter.widget-view+json"


class FakeRun:
    """A run whose events the test writes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.id, self.view, self.loop = RUN_ID, RunView(RUN_ID), loop
        self.listeners: list[Callable[[Any], None]] = []
        self.happens(events.RunCreated(workflow="digest"), events.RunStarted(worker="w"))

    def listen_said(self, fn: Any) -> Any:
        return lambda: None

    def listen(self, fn: Callable[[Any], None]) -> Callable[[], None]:
        self.listeners.append(fn)
        return lambda: self.listeners.remove(fn)

    def happens(self, *these: events.Event, node_id: str | None = None) -> None:
        """Take events in, as the loop's thread would."""

        def take() -> None:
            for event in these:
                seq = self.view.revision + 1
                at = int(time.time() * 1e6)
                entry = JournalEntry(seq, RUN_ID, seq, None, event.type, node_id, events.encode(event), at)
                self.view.apply(entry)
                for fn in list(self.listeners):
                    fn(entry)
            done.set()

        done = threading.Event()
        self.loop.call_soon_threadsafe(take)
        assert done.wait(5)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    thread = threading.Thread(target=made.run_forever, daemon=True)
    thread.start()
    yield made
    made.call_soon_threadsafe(made.stop)
    thread.join(5)
    made.close()


class Page:
    """What a front end shows: outputs by display id, in order."""

    def __init__(self) -> None:
        self.outputs: dict[str, dict[str, Any]] = {}
        self.updates = 0

    def publish(self, *, data: dict[str, Any], metadata: Any, transient: dict[str, str], update: bool) -> None:
        assert update == (transient["display_id"] in self.outputs)
        self.outputs[transient["display_id"]] = data
        self.updates += update

    def shown(self) -> list[dict[str, Any]]:
        return list(self.outputs.values())


def open_view(run: FakeRun, page: Page, **options: Any) -> LiveView:
    def format(widget: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"text/plain": repr(widget), WIDGET: {"model_id": widget.model_id}}, {}

    view = LiveView(
        run,  # type: ignore[arg-type]
        publish=page.publish,
        format=format,
        loop=run.loop,
        clock=time.time,
        tap=None,
        **options,
    )
    settle(run.loop)
    return view


def settle(loop: asyncio.AbstractEventLoop) -> None:
    """Wait until the loop has done what is due now."""
    for _ in range(3):
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(5)


ASKED = events.PromptOpened(prompt="go", kind="confirm", message="Go on?")
ENDED = events.RunEnded(status="completed")


def test_a_picture_stands_beside_the_live_view(loop: asyncio.AbstractEventLoop) -> None:
    """The widget comes first, and the picture carries the id by which the widget hides it."""
    page = Page()
    open_view(FakeRun(loop), page)
    widget, still = page.shown()
    assert WIDGET in widget and f'data-run="{RUN_ID}"' in still["text/html"] and WIDGET not in still


def test_the_picture_follows_what_matters(loop: asyncio.AbstractEventLoop) -> None:
    """It is refreshed when a question opens, not at every step."""
    page, run = Page(), FakeRun(loop)
    open_view(run, page)
    before = page.updates
    run.happens(events.NodeStarted(name="a", kind="step"), node_id="step:a:0#1")
    settle(loop)
    assert page.updates == before
    run.happens(ASKED, node_id="prompt:go:#1")
    settle(loop)
    assert "Go on?" in page.shown()[1]["text/html"] and page.updates == before + 1


def test_when_the_run_ends_only_the_picture_is_left(loop: asyncio.AbstractEventLoop) -> None:
    """The widget's output is empty, its model closed, nothing listens, and the picture has no id in it."""
    page, run = Page(), FakeRun(loop)
    closed: list[LiveView] = []
    view = open_view(run, page, closed=closed.append)
    run.happens(ENDED)
    settle(loop)
    widget, still = page.shown()
    assert widget == {} and RUN_ID not in still["text/html"] and still["text/plain"].startswith("digest: completed")
    assert closed == [view] and run.listeners == [] and view._widget.comm is None


def test_a_failed_run_keeps_its_resume_button(loop: asyncio.AbstractEventLoop) -> None:
    """What failed and can go on stays live; once it has gone on and ended well, only the picture is left."""
    page, run = Page(), FakeRun(loop)
    open_view(run, page)
    failure = events.ErrorRecord(type="builtins:ValueError", message="no")
    run.happens(events.RunEnded(status="failed", resumable=True, error=failure))
    settle(loop)
    widget, still = page.shown()
    assert WIDGET in widget and still["text/plain"].startswith("digest: failed")
    run.happens(events.RunStarted(worker="me", resumed=True))
    run.happens(ENDED)
    settle(loop)
    widget, still = page.shown()
    assert widget == {} and still["text/plain"].startswith("digest: completed")


def test_one_that_was_asked_for_stays(loop: asyncio.AbstractEventLoop) -> None:
    """``%loom show`` keeps the widget for a finished run, until it is closed."""
    page, run = Page(), FakeRun(loop)
    run.happens(ENDED)
    view = open_view(run, page, stays=True)
    assert WIDGET in page.shown()[0]
    view.close()
    view.close()
    assert page.shown()[0] == {}


def test_a_run_that_ends_while_its_view_opens_is_noticed(loop: asyncio.AbstractEventLoop) -> None:
    """An end that came before anybody listened still closes the view."""
    page, run = Page(), FakeRun(loop)
    run.happens(ENDED)
    open_view(run, page)
    assert page.shown()[0] == {}


def test_pictures_of_two_executions_are_equal(loop: asyncio.AbstractEventLoop) -> None:
    """Without times and ids, one job gives one picture."""
    first, second = FakeRun(loop), FakeRun(loop)
    second.view.run_id = "other"
    for run in (first, second):
        run.happens(events.NodeStarted(name="a", kind="step"), node_id="step:a:0#1")
        run.happens(events.NodeCompleted(duration_s=time.time()), node_id="step:a:0#1")
        run.happens(ENDED)
    assert picture(first.view, times=False) == picture(second.view, times=False)
