"""Clicks reach a run while a cell computes: our widgets' messages are taken off before the queue behind the cell.

A kernel handles one shell message after the other, so a click on a widget normally waits for the running cell. What
can be done about it differs with ipykernel, and all of it uses names that are private there; each is tested for:

* ipykernel 7 reads its shell channel on a thread of its own. There a click is handed over at any time.
* ipykernel 6 reads it on the main thread's loop. There a click is handed over while a cell awaits, not while it blocks.
* Elsewhere nothing is taken off: clicks arrive between cells.

Only custom messages of registered widgets are taken, and whatever is said to a registered widget of somebody else's;
everything else goes its usual way, in its usual order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

Reach = Literal["always", "awaiting", "idle"]
"""When a click arrives: always, while a cell awaits or between cells, only between cells."""

Deliver = Callable[[dict[str, Any], list[memoryview]], None]


Hear = Callable[[dict[str, Any]], None]
"""Takes a whole message for a widget, on the thread that reads the channel."""


class Tap:
    """Takes our widgets' messages off the shell channel and hands them to ``loop``'s thread.

    Args:
        kernel: the running ipykernel.
        loop: the event loop on which deliveries are called; it runs in a thread of its own.
    """

    def __init__(self, kernel: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.reach: Reach = "idle"
        self._kernel, self._loop = kernel, loop
        self._deliver: dict[str, Deliver] = {}
        self._hear: dict[str, Hear] = {}
        self._restore: Callable[[], None] | None = None
        stream, session = getattr(kernel, "shell_stream", None), getattr(kernel, "session", None)
        if stream is None or session is None or not hasattr(stream, "on_recv"):
            return
        thread, behind = (getattr(kernel, n, None) for n in ("shell_channel_thread", "shell_channel_thread_main"))
        if thread is not None and behind is not None and hasattr(thread, "io_loop"):
            self._install(thread.io_loop.add_callback, stream, partial(self._in_channel_thread, behind), behind)
            self.reach = "always"
            return
        schedule, dispatch = (getattr(kernel, n, None) for n in ("schedule_dispatch", "dispatch_shell"))
        if schedule is not None and dispatch is not None:
            behind = partial(schedule, dispatch)
            # already on the main thread, whose loop reads the channel
            self._install(lambda fn: fn(), stream, partial(self._in_main_loop, behind), behind)
            self.reach = "awaiting"

    def add(self, comm_id: str, deliver: Deliver) -> None:
        """From now on messages for ``comm_id`` are given to ``deliver(content, buffers)`` on the loop's thread."""
        self._deliver[comm_id] = deliver

    def add_whole(self, comm_id: str, hear: Hear) -> None:
        """From now on every message for ``comm_id``, changes of traits too, is given to ``hear`` as it came."""
        self._hear[comm_id] = hear

    def heard(self, message: dict[str, Any]) -> None:
        """Tell the browser that a message was handled: it holds back further changes of traits until then."""
        self._kernel._publish_status("idle", "shell", parent=message)

    def discard(self, comm_id: str) -> None:
        """Messages for ``comm_id`` go their usual way again."""
        self._deliver.pop(comm_id, None)
        self._hear.pop(comm_id, None)

    def remove(self) -> None:
        """Give the channel back as it was."""
        self._deliver.clear()
        self._hear.clear()
        if self._restore is not None:
            self._restore()
            self._restore = None
        self.reach = "idle"

    def _install(self, on_thread: Callable[[Any], None], stream: Any, handler: Any, behind: Any) -> None:
        on_thread(lambda: stream.on_recv(handler, copy=False))
        self._restore = lambda: on_thread(lambda: stream.on_recv(behind, copy=False))

    async def _in_channel_thread(self, behind: Callable[[Any], Any], msg: Any) -> None:
        if not self._taken(msg):
            await behind(msg)

    def _in_main_loop(self, behind: Callable[[Any], Any], msg: Any) -> None:
        if not self._taken(msg):
            behind(msg)

    def _taken(self, msg: Any) -> bool:
        if not self._deliver and not self._hear:
            return False
        try:
            session = self._kernel.session
            _, parts = session.feed_identities(msg, copy=False)
            # Without its content, so that the signature is not recorded: whoever handles the message checks it once.
            peek = session.deserialize(parts, content=False, copy=False)
            if peek["header"]["msg_type"] != "comm_msg":
                return False
            content = session.unpack(peek["content"])
            if (hear := self._hear.get(content.get("comm_id"))) is not None:
                hear(session.deserialize(parts, content=True, copy=False))
                return True
            deliver = self._deliver.get(content.get("comm_id"))
            data = content.get("data") or {}
            if deliver is None or data.get("method") != "custom":
                return False
            whole = session.deserialize(parts, content=True, copy=False)
            self._loop.call_soon_threadsafe(deliver, data.get("content") or {}, whole["buffers"])
        except Exception:
            self._kernel.log.exception("loom: a widget's message goes its usual way")
            return False
        return True


def advice(reach: Reach) -> str:
    """How to answer on a kernel that hears clicks only at times; empty where it always does."""
    if reach == "always":
        return ""
    when = "between cells" if reach == "idle" else "while a cell awaits, or between cells"
    return (
        f"This kernel hears clicks only {when}: interrupt this cell (the run goes on) and answer then, "
        "or answer from another notebook or terminal with `loom answer`."
    )
