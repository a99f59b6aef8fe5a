"""The widget's Python side: snapshots out, clicks in, everything on the loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from loom_kernel import events as ev
from loom_kernel.errors import AnswerError
from loom_kernel.notebook.run_widget import Publisher, RunWidget
from loom_kernel.views.run import RunView
from tests.views import histories
from tests.views.histories import History

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop on a thread of its own, as the runs have one."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="loom-test", daemon=True)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


class FakeRun:
    """A run whose events the test writes; it notes what it is asked to do, and on which thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, history: History) -> None:
        self.loop, self.history = loop, history
        self.view = RunView(history.run_id)
        self.calls: list[tuple[Any, ...]] = []
        self.threads: set[str] = set()
        self.listeners: list[Callable[[Any], None]] = []
        self.children: list[FakeRun] = []
        self.refuse: Exception | None = None
        self.advance()

    def advance(self) -> None:
        """Take in what the test wrote into the history since."""

        def take() -> None:
            for entry in self.history.entries[self.view.revision :]:
                self.view.apply(entry)
                for fn in list(self.listeners):
                    fn(entry)

        if self.listeners:
            call(self.loop, take)
        else:
            take()

    def listen_said(self, fn: Any) -> Any:
        return lambda: None

    def listen(self, fn: Callable[[Any], None]) -> Callable[[], None]:
        self.listeners.append(fn)
        return lambda: self.listeners.remove(fn)

    def family(self) -> list[FakeRun]:
        return [self, *self.children]

    async def answer_async(self, value: Any, *, prompt: str | None = None, by: str = "") -> None:
        self.note("answer", value, prompt)

    async def stop_async(self) -> None:
        self.note("stop")

    async def cancel_async(self) -> None:
        self.note("cancel")

    async def resume_async(self, *, accept: bool = False, recorded: bool = False) -> None:
        if recorded:
            self.note("recorded")
        else:
            self.note("resume", accept)

    async def fork_async(self) -> None:
        self.note("fork")

    def note(self, *call: Any) -> None:
        self.threads.add(threading.current_thread().name)
        if self.refuse is not None:
            raise self.refuse
        self.calls.append(call)


def call(loop: asyncio.AbstractEventLoop, fn: Callable[[], None]) -> None:
    """Call on the loop's thread and wait until that and what it scheduled is done."""

    async def run() -> None:
        fn()
        await asyncio.sleep(0.01)

    asyncio.run_coroutine_threadsafe(run(), loop).result(5)


def settle(loop: asyncio.AbstractEventLoop) -> None:
    call(loop, lambda: None)


class Widget(RunWidget):
    """The widget with what it sends kept in a list."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.said: list[dict[str, Any]] = []
        super().__init__(*args, **kwargs)

    def send(self, content: Any, buffers: Any = None) -> None:
        self.said.append(content)

    def hear(self, **content: Any) -> None:
        """A message from the browser, on this thread, as a kernel would deliver it."""
        self._handle_custom_msg(content, [])
        settle(self._loop)


@pytest.fixture
def make(loop: asyncio.AbstractEventLoop) -> Iterator[Callable[[History], tuple[FakeRun, Widget]]]:
    """Makes a run and its widget, closed at the end."""
    made: list[Widget] = []

    def make(history: History) -> tuple[FakeRun, Widget]:
        run = FakeRun(loop, history)
        widget = Widget(run, loop=loop, clock=lambda: history.now)
        made.append(widget)
        settle(loop)
        return run, widget

    yield make
    for widget in made:
        widget.close()
    settle(loop)


Make = Callable[[History], tuple[FakeRun, Widget]]


def test_a_click_is_handed_over_to_the_loop(make: Make) -> None:
    """An answer reaches the run on the loop's thread, with its node, and is acknowledged."""
    run, widget = make(histories.waiting())
    (question,) = widget.snapshot["questions"]
    widget.hear(type="answer", prompt=question["node"], generation=1, value=True, request="r1")
    assert run.calls == [("answer", True, question["node"])]
    assert run.threads == {"loom-test"}
    assert widget.said[-1] == {"type": "ack", "request": "r1", "ok": True, "text": ""}


def test_a_click_that_arrives_twice_acts_once(make: Make) -> None:
    """The request's name makes it one click."""
    run, widget = make(histories.waiting())
    for _ in range(2):
        widget.hear(type="stop", request="same")
    assert run.calls == [("stop",)]


def test_buttons_do_what_they_say(make: Make) -> None:
    """Stop, cancel, resume, and resume with acceptance."""
    run, widget = make(histories.running())
    for i, verb in enumerate(["stop", "cancel", "resume", "accept"]):
        widget.hear(type=verb, request=str(i))
    assert run.calls == [("stop",), ("cancel",), ("resume", False), ("resume", True)]


def test_a_refusal_is_shown_with_its_sentence(make: Make) -> None:
    """An error comes back as a negative acknowledgement, whatever its class."""
    run, widget = make(histories.waiting())
    run.refuse = AnswerError("the question was answered by ben already; the first answer counts")
    widget.hear(type="answer", prompt="prompt:drop:#1", generation=1, value=True, request="r1")
    assert (widget.said[-1]["ok"], widget.said[-1]["text"]) == (False, str(run.refuse))
    run.refuse = OSError("gone")
    widget.hear(type="stop", request="r2")
    assert widget.said[-1]["text"] == "OSError: gone"


def test_an_answer_to_an_older_question_is_not_taken_for_the_newer(make: Make) -> None:
    """A click that crossed a question asked again is refused."""
    run, widget = make(histories.form())
    widget.hear(type="answer", prompt="prompt:settings:#1", generation=1, value={}, request="r1")
    assert run.calls == [] and "asked again" in widget.said[-1]["text"]


def test_pings_and_details_are_answered(make: Make) -> None:
    """A ping gets its number back; a detail comes from the view; nonsense is passed over."""
    run, widget = make(histories.weather()[0])
    widget.hear(type="ping", n=7)
    assert widget.said[-1] == {"type": "pong", "n": 7}
    widget.hear(type="detail", node=run.view.order[0])
    assert (widget.said[-1]["type"], widget.said[-1]["label"]) == ("detail", "read")
    before = list(widget.said)
    widget.hear(type="rm -rf", request="x")
    widget._handle_custom_msg("nonsense", [])
    widget.hear()
    assert widget.said == before and not widget.greeted
    widget.hear(type="hello")
    assert widget.greeted


def test_events_become_snapshots(make: Make) -> None:
    """What happens is in the trait a moment later; a question at once."""
    run, widget = make(histories.weather()[0])
    assert widget.snapshot["words"] == "running"
    run.history.ask("go", "Go?")
    run.advance()
    assert widget.snapshot["words"] == "waiting for you"


def test_many_events_make_few_snapshots(loop: asyncio.AbstractEventLoop) -> None:
    """A thousand changes within a tenth of a second are two or three snapshots, the last one complete."""
    run = FakeRun(loop, histories.running())
    seen: list[int] = []

    class Counting(Widget):
        def _publish(self) -> None:
            super()._publish()
            seen.append(self.snapshot["revision"])

    widget = Counting(run, loop=loop)
    settle(loop)
    seen.clear()
    node = run.view.order[-1]
    for i in range(1_000):
        run.history.add(ev.NodeProgressed(done=i, total=1_000), node)
    begun = time.monotonic()
    run.advance()
    while not seen or seen[-1] != run.view.revision:
        assert time.monotonic() - begun < 5
        settle(loop)
    assert len(seen) <= 3
    widget.close()
    settle(loop)


def test_a_slow_snapshot_is_made_less_often(loop: asyncio.AbstractEventLoop) -> None:
    """A snapshot takes at most a tenth of the loop's time."""
    times: list[float] = []

    def send() -> None:
        times.append(time.monotonic())
        time.sleep(0.02)

    publisher = Publisher(loop, send, period_s=0.01)

    async def busy() -> None:
        end = time.monotonic() + 0.7
        while time.monotonic() < end:
            publisher.changed()
            await asyncio.sleep(0.005)
        publisher.stop()

    asyncio.run_coroutine_threadsafe(busy(), loop).result(5)
    assert 2 <= len(times) <= 5


def test_a_childs_question_is_asked_here(make: Make, loop: asyncio.AbstractEventLoop) -> None:
    """A child run that lives here is followed, and its question is in the parent's snapshot."""
    h = History()
    h.started()
    run, widget = make(h)
    child_history = History("child", run_id="childchild12")
    child_history.started()
    child = FakeRun(loop, child_history)
    run.children.append(child)
    h.start("child", kind="workflow", child_run_id="childchild12")
    run.advance()
    child_history.ask("ok", "Fine?")
    child.advance()
    assert [q["prompt"] for q in widget.snapshot["questions"]] == ["ok"]
    widget.close()
    settle(loop)
    assert child.listeners == [] and run.listeners == []


def test_closed_is_closed(make: Make, loop: asyncio.AbstractEventLoop) -> None:
    """After closing nothing is followed, sent or done; closing twice is closing once."""
    run, widget = make(histories.waiting())
    widget.close()
    widget.close()
    settle(loop)
    assert run.listeners == [] and widget.comm is None
    widget.hear(type="stop", request="late")
    assert run.calls == []


def test_its_text_is_stable(make: Make) -> None:
    """The text beside the widget names the run and its state, never an address or an id."""
    _, widget = make(histories.completed())
    assert repr(widget) == "RunWidget(clean-weather: completed, 8 of 8 steps)"
    made = widget._repr_mimebundle_()
    data = made[0] if isinstance(made, tuple) else made
    assert data["text/plain"] == repr(widget)


def test_a_decision_is_answered_by_its_question(make: Make) -> None:
    """Each choice does what it says; one that crossed another decision, or is none of them, is refused."""
    h = histories.running()
    h.paused("needs_decision", "Another call.", what="arguments", name="clean", called={"n": 2}, diff="-a\n+b")
    run, widget = make(h)
    revision = h.view().revision
    [question] = widget.snapshot["questions"]
    assert (question["node"], question["generation"]) == ("decision", revision)
    assert [part["kind"] for part in question["shown"]] == ["table", "text"]
    for i, choice in enumerate([*question["options"], "nonsense"]):
        widget.hear(type="answer", prompt="decision", generation=revision, value=choice, request=f"d{i}")
    assert run.calls == [("resume", True), ("fork",), ("recorded",)]
    assert widget.said[-1]["ok"] is False and "none of the choices" in widget.said[-1]["text"]
    widget.hear(type="answer", prompt="decision", generation=revision - 1, value=question["options"][0], request="late")
    assert "in the meantime" in widget.said[-1]["text"] and len(run.calls) == 3


def test_after_hello_only_what_changes_is_sent(make: Make) -> None:
    """Who says hello gets the whole; then differences, each building on the last; another hello brings the whole again."""
    run, widget = make(histories.running())
    widget.hear(type="hello", deltas=True)
    settle_soon(widget, 0)
    first = widget.snapshot
    node = run.history.start("more", run.view.order[-1:])
    run.advance()
    time.sleep(0.1)
    run.history.done(node)
    run.advance()
    settle_soon(widget, 2)
    deltas = [m for m in widget.said if m["type"] == "delta"]
    assert widget.snapshot is first, "the whole was not sent again"
    assert [m["base"] for m in deltas] == [first["serial"] + i for i in range(len(deltas))] and len(deltas) >= 1
    assert any(new["box"]["id"] == node for m in deltas for new in m.get("new", []))
    widget.hear(type="hello", deltas=True)
    settle_soon(widget, 0)
    assert widget.snapshot["serial"] > deltas[-1]["serial"]
    assert node in [b["id"] for b in widget.snapshot["graph"]["boxes"]]


def settle_soon(widget: Widget, deltas: int) -> None:
    """Wait until so many deltas came, a second at most, and until what is due now is done."""
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline and sum(m["type"] == "delta" for m in widget.said) < deltas:
        time.sleep(0.02)
    time.sleep(0.15)
    settle(widget._loop)


def test_searches_and_timelines_are_answered(make: Make) -> None:
    """What is looked for comes back with its text; the timeline with its parts."""
    _, widget = make(histories.weather()[0])
    widget.hear(type="find", text="read")
    assert widget.said[-1]["type"] == "found" and [n["label"] for n in widget.said[-1]["nodes"]] == [
        "read · weather.csv"
    ]
    widget.hear(type="times")
    assert widget.said[-1]["type"] == "times" and widget.said[-1]["rows"][0]["label"] == "read"
