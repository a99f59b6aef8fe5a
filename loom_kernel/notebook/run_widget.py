"""The live view of a run: a widget that carries snapshots to the browser and a person's clicks back.

What a view shows goes one way, at most about sixteen times a second: first the whole run, as a synced trait, then only
what changes, as custom messages. Who joins later, or has missed one, says hello and gets the whole again. Clicks come the
other way as custom messages, on whichever thread the kernel hears them; each is handed over to the runs' loop at once
and answered from there.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import anywidget
import traitlets

from loom_kernel.errors import LoomError
from loom_kernel.views.detail import detail
from loom_kernel.views.finding import find
from loom_kernel.views.live import LiveShots
from loom_kernel.views.run import RunView
from loom_kernel.views.snapshot import CHOICES, DECISION, decisions
from loom_kernel.views.text import plain
from loom_kernel.views.times import timeline

BUNDLE = Path(__file__).parent / "static" / "run_widget.js"

PERIOD_S = 0.06
"""Shortest time between two snapshots."""

_SHARE = 10
"""A snapshot may take one part in this many of the loop's time: a large graph is redrawn less often."""

_UNBUILT = """export default { render({ el }) {
  el.textContent = "The live view was not built: run `python hatch_build.py` in the source folder, or install the package.";
} }"""

_AT_ONCE = frozenset({"run.ended", "run.paused", "prompt.opened", "prompt.answered"})
_REQUESTS_KEPT = 200


class Watched(Protocol):
    """What the widget needs of a run; :class:`loom_kernel.runtime.run.Run` is one."""

    @property
    def view(self) -> RunView: ...
    def listen(self, fn: Callable[[Any], None]) -> Callable[[], None]: ...
    def listen_said(self, fn: Callable[[], None]) -> Callable[[], None]: ...
    async def answer_async(self, value: Any, *, prompt: str | None = None, by: str = "") -> None: ...
    async def stop_async(self) -> None: ...
    async def cancel_async(self) -> None: ...
    async def resume_async(self, *, accept: bool = False, recorded: bool = False) -> Any: ...
    async def fork_async(self) -> Any: ...


class Publisher:
    """Coalesces changes: at most one snapshot a period, always the last state. Lives on the loop's thread.

    Args:
        loop: the loop.
        send: makes and sends a snapshot.
        period_s: shortest time between two; longer where ``send`` takes long.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, send: Callable[[], None], period_s: float = PERIOD_S) -> None:
        self._loop, self._send, self._period_s = loop, send, period_s
        self._timer: asyncio.TimerHandle | None = None
        self._next_at = 0.0

    def changed(self) -> None:
        """Something changed: send soon, or not at all if a snapshot is due anyway."""
        if self._timer is None:
            self._timer = self._loop.call_at(max(self._loop.time(), self._next_at), self.flush)

    def hurry(self) -> None:
        """Something changed that a person waits for: send once the entries that came with it are taken in."""
        self.stop()
        self._next_at = 0.0
        self.changed()

    def flush(self) -> None:
        """Send now."""
        self.stop()
        begun = time.perf_counter()
        self._send()
        took = time.perf_counter() - begun
        self._next_at = self._loop.time() + max(self._period_s, took * _SHARE)

    def stop(self) -> None:
        """Send nothing that is due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class RunWidget(anywidget.AnyWidget):
    """One live view of one run. :meth:`close` ends it; it also stops following then.

    Args:
        run: what is shown.
        loop: the loop of all runs; the run's listeners are called on its thread.
        clock: seconds since the epoch, by the clock that stamps events.
    """

    _esm = BUNDLE if BUNDLE.exists() else _UNBUILT
    snapshot = traitlets.Dict().tag(sync=True)

    def __init__(
        self, run: Watched, *, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = time.time
    ) -> None:
        self.run = run
        self.greeted = False
        self._loop, self._clock = loop, clock
        self._over = False
        self._shots = LiveShots(run.view)
        self._whole = True  # what is sent next
        self._deltas = False  # whether all who said hello take deltas
        self._requests: dict[str, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._unlisten: dict[int, Callable[[], None]] = {}
        self._publisher = Publisher(loop, self._publish)
        super().__init__(snapshot=self._shots.whole(clock()))
        self.on_msg(self._on_message)
        self._unlisten[id(run)] = run.listen(self._heard)
        self._unlisten_said = run.listen_said(self._publisher.changed)
        loop.call_soon_threadsafe(self._begin)

    def __repr__(self) -> str:
        return f"RunWidget({plain(self.run.view).splitlines()[0]})"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        made = super()._repr_mimebundle_(**kwargs)
        data, metadata = made if isinstance(made, tuple) else (made or {}, {})
        # Where the widget cannot be shown, the line is; the picture beside it says the rest.
        return {**data, "text/plain": repr(self)}, metadata

    def close(self) -> None:
        """Close the view in the browser and follow no longer. Any thread; twice is once."""
        if self._over:
            return
        self._over = True
        with contextlib.suppress(RuntimeError):  # the loop may be gone before its views
            self._loop.call_soon_threadsafe(self._end)
        super().close()

    # ------------------------------------------------------------ Python to browser (loop thread)

    def _begin(self) -> None:
        if not self._over:
            self._follow_children()
            self._publisher.flush()

    def _end(self) -> None:
        self._publisher.stop()
        self._unlisten_said()
        for unlisten in self._unlisten.values():
            unlisten()
        self._unlisten.clear()

    def _heard(self, entry: Any) -> None:
        if self._over:
            return
        if (entry.node_id or "").startswith("workflow:"):
            self._follow_children()
        if entry.type in _AT_ONCE:
            self._publisher.hurry()
        else:
            self._publisher.changed()

    def _publish(self) -> None:
        """Send what has changed; the whole where somebody just said hello, or nobody has said that deltas are taken."""
        if self._over:
            return
        if self._deltas and not self._whole and (delta := self._shots.delta(self._clock())) is not None:
            self._say({"type": "delta", **delta})
            return
        self._whole = False
        self.snapshot = self._shots.whole(self._clock())

    def _follow_children(self) -> None:
        """Hear of what child runs do that live here: their questions are asked in this view too."""
        family = getattr(self.run, "family", None) or getattr(self.run, "_family", None)
        if family is None:
            return
        for member in family():
            for node in list(member.view.nodes.values()):
                if node.child_run_id is None:
                    continue
                child = next((r for r in family() if r.view.run_id == node.child_run_id), None)
                if child is not None and id(child) not in self._unlisten:
                    member.view.children[node.child_run_id] = child.view
                    self._unlisten[id(child)] = child.listen(self._heard)

    # ------------------------------------------------------------ browser to Python (any thread)

    def _on_message(self, _: Any, content: Any, __: Any) -> None:
        """Hand over, nothing more: this may be the main thread, a subshell's or the loop's own."""
        if isinstance(content, dict) and not self._over:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._handle, content)

    def _handle(self, content: dict[str, Any]) -> None:
        match content.get("type"):
            case "hello":
                self._deltas = bool(content.get("deltas")) and (self._deltas or not self.greeted)
                self.greeted = self._whole = True
                self._publisher.changed()
            case "ping":
                self._say({"type": "pong", "n": content.get("n")})
            case "find":
                self._say({"type": "found", **find(self.run.view, str(content.get("text") or ""))})
            case "times":
                self._say({"type": "times", **timeline(self.run.view, self._clock())})
            case "detail":
                node = str(content.get("node") or "")
                self._say({"type": "detail", **detail(self.run.view, node)})
            case "answer" | "stop" | "cancel" | "resume" | "accept" as verb:
                request = str(content.get("request") or "")
                if request in self._requests:  # the same click, sent twice
                    return
                self._requests[request] = None
                while len(self._requests) > _REQUESTS_KEPT:
                    del self._requests[next(iter(self._requests))]
                task = self._loop.create_task(self._do(verb, content, request))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _do(self, verb: str, content: dict[str, Any], request: str) -> None:
        try:
            match verb:
                case "answer":
                    await self._answer(content)
                case "stop":
                    await self.run.stop_async()
                case "cancel":
                    await self.run.cancel_async()
                case "resume":
                    await self.run.resume_async()
                case "accept":
                    await self.run.resume_async(accept=True)
        except LoomError as error:
            self._say({"type": "ack", "request": request, "ok": False, "text": str(error)})
        except Exception as error:
            self._say({"type": "ack", "request": request, "ok": False, "text": f"{type(error).__name__}: {error}"})
        else:
            self._say({"type": "ack", "request": request, "ok": True, "text": ""})

    async def _answer(self, content: dict[str, Any]) -> None:
        node_id, generation = str(content.get("prompt") or ""), content.get("generation")
        if node_id == DECISION:
            await self._decide(content.get("value"), generation)
            return
        for prompt in self.run.view.family_prompts:
            if prompt.node_id == node_id and prompt.generation != generation:
                raise LoomError("the question was asked again in the meantime; look at it and answer once more")
        await self.run.answer_async(content.get("value"), prompt=node_id)

    async def _decide(self, value: Any, generation: Any) -> None:
        """How the run goes on: the answer to the question of a run that rests."""
        view = self.run.view
        if generation != view.revision or not decisions(view):
            raise LoomError("it was decided in the meantime")
        chosen = {label: choice for choice, label in CHOICES[str(view.detail.get("what"))].items()}.get(str(value))
        match chosen:
            case "accept":
                await self.run.resume_async(accept=True)
            case "resume":
                await self.run.resume_async()
            case "recorded":
                await self.run.resume_async(recorded=True)
            case "fork":
                await self.run.fork_async()
            case _:
                raise LoomError(f"{value!r} is none of the choices")

    def _say(self, message: dict[str, Any]) -> None:
        if not self._over:
            self.send(message)
