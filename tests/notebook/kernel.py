"""A real ipykernel with a front end made of this test: it runs cells, clicks on widgets, interrupts and kills.

``LOOM_TEST_KERNEL_PYTHON`` names the Python whose ipykernel is started, so that the same tests run on older ones.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

ROOT = Path(__file__).parents[2]
Message = dict[str, Any]


class Cell:
    """One execution of a cell: what has come of it so far."""

    def __init__(self, kernel: Kernel, msg_id: str, code: str) -> None:
        self.kernel, self.msg_id, self.code = kernel, msg_id, code
        self.reply: Message | None = None

    @property
    def messages(self) -> list[Message]:
        """Everything on iopub whose parent is this execution."""
        return [m for m in self.kernel.messages() if m["parent_header"].get("msg_id") == self.msg_id]

    @property
    def outputs(self) -> list[Message]:
        """The cell's outputs as a front end keeps them: updates of a display are applied, whoever published them."""
        kept: list[Message] = []
        for message in self.kernel.messages():
            mine = message["parent_header"].get("msg_id") == self.msg_id
            kind, content = message["msg_type"], message["content"]
            if mine and kind in ("stream", "display_data", "execute_result", "error"):
                kept.append({"type": kind, **content})
            elif kind == "update_display_data":
                for output in kept:
                    if output.get("transient", {}).get("display_id") == content["transient"]["display_id"]:
                        output.update(data=content["data"], metadata=content["metadata"])
        return kept

    @property
    def text(self) -> str:
        """Streams and plain texts, in order."""
        return "\n".join(
            o["text"].rstrip("\n") if o["type"] == "stream" else o["data"].get("text/plain", "")
            for o in self.outputs
            if o["type"] != "error"
        ).strip()

    @property
    def html(self) -> str:
        """All HTML outputs."""
        return "\n".join(o["data"].get("text/html", "") for o in self.outputs if "data" in o)

    @property
    def error(self) -> str | None:
        """``"Name: text"`` of the error output."""
        return next((f"{o['ename']}: {o['evalue']}" for o in self.outputs if o["type"] == "error"), None)

    @property
    def traceback(self) -> str:
        """The error's lines as they are shown."""
        return next(("\n".join(o["traceback"]) for o in self.outputs if o["type"] == "error"), "")

    @property
    def done(self) -> bool:
        """Whether the reply and the idle status have come."""
        self.kernel.pump()
        idle = any(m["msg_type"] == "status" and m["content"]["execution_state"] == "idle" for m in self.messages)
        return self.reply is not None and idle

    def wait(self, patience_s: float = 30.0) -> Cell:
        """Wait for its end."""
        self.kernel.until(lambda: self.done, patience_s, lambda: f"cell still running: {self.code!r}\n{self.text}")
        return self


class Kernel:
    """A kernel in ``folder``. ``interactive`` says whether a person is there (``allow_stdin``)."""

    def __init__(self, folder: Path, *, interactive: bool = True, env: dict[str, str] | None = None) -> None:
        self.folder, self.interactive = folder, interactive
        self.env = {**os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(folder.parent / "ipython"), **(env or {})}
        self._messages: list[Message] = []
        self._news = threading.Condition()
        self._cells: dict[str, Cell] = {}
        self._replies: dict[str, Message] = {}

    def start(self) -> Kernel:
        python = os.environ.get("LOOM_TEST_KERNEL_PYTHON") or sys.executable
        self.manager = KernelManager(kernel_name="python3")
        spec = self.manager.kernel_spec
        assert spec is not None
        spec.argv = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        self.manager.start_kernel(cwd=str(self.folder), env=self.env)
        self.client: BlockingKernelClient = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        self._stop = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    @property
    def pid(self) -> int:
        return int(self.manager.provisioner.pid)  # type: ignore[union-attr]

    # -- cells

    def send(self, code: str, *, cell_id: str | None = None) -> Cell:
        """Start a cell without waiting for it."""
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": self.interactive,
            "stop_on_error": False,
        }
        message = self.client.session.msg("execute_request", content, metadata={"cellId": cell_id} if cell_id else {})
        cell = Cell(self, message["header"]["msg_id"], code)
        self._cells[cell.msg_id] = cell
        self.client.shell_channel.send(message)
        return cell

    def run(self, code: str, *, cell_id: str | None = None, patience_s: float = 60.0) -> Cell:
        """Run a cell to its end."""
        return self.send(code, cell_id=cell_id).wait(patience_s)

    def ok(self, code: str, **options: Any) -> Cell:
        """Run a cell that must not fail."""
        cell = self.run(code, **options)
        assert cell.error is None, cell.error + "\n" + cell.traceback
        return cell

    def complete(self, code: str, at: int | None = None) -> list[str]:
        """What Tab offers at a place of a cell."""
        message = self.client.session.msg(
            "complete_request", {"code": code, "cursor_pos": len(code) if at is None else at}
        )
        self.client.shell_channel.send(message)
        msg_id = message["header"]["msg_id"]
        self.until(lambda: self.pump() or msg_id in self._replies, 30)
        return list(self._replies[msg_id]["content"]["matches"])

    # -- widgets

    def widgets(self) -> list[Message]:
        """Widgets that were opened and not closed: ``comm_id`` and ``state``."""
        opened: dict[str, Message] = {}
        for message in self.messages():
            content = message["content"]
            if message["msg_type"] == "comm_open" and content.get("target_name") == "jupyter.widget":
                opened[content["comm_id"]] = {"comm_id": content["comm_id"], "state": dict(content["data"]["state"])}
            elif message["msg_type"] == "comm_msg" and content["comm_id"] in opened:
                if content["data"].get("method") == "update":
                    opened[content["comm_id"]]["state"].update(content["data"]["state"])
            elif message["msg_type"] == "comm_close":
                opened.pop(content["comm_id"], None)
        return [w for w in opened.values() if "snapshot" in w["state"]]

    def widget(self, patience_s: float = 10.0) -> Message:
        """The newest live view, waiting for it if need be."""
        self.until(lambda: bool(self.widgets()), patience_s, lambda: "no live view was opened")
        return self.widgets()[-1]

    def click(self, content: dict[str, Any], comm_id: str | None = None) -> None:
        """Send a custom message from the widget's script."""
        target = comm_id or self.widget()["comm_id"]
        data = {"comm_id": target, "data": {"method": "custom", "content": content}}
        self.client.shell_channel.send(self.client.session.msg("comm_msg", data))

    def question(self, patience_s: float = 10.0) -> dict[str, Any]:
        """The open question in the newest live view."""
        found: list[Any] = []

        def look() -> bool:
            found[:] = [w["state"]["snapshot"].get("questions") or [] for w in self.widgets()[-1:]]
            return bool(found and found[0])

        self.until(look, patience_s, lambda: "no question was shown")
        return dict(found[0][0])

    def answer(self, value: Any) -> None:
        """Answer the open question by a click."""
        question = self.question()
        request = uuid.uuid4().hex
        self.click(
            {
                "type": "answer",
                "prompt": question["node"],
                "generation": question["generation"],
                "value": value,
                "request": request,
            }
        )

    # -- signals

    def interrupt(self) -> None:
        """What the stop button does."""
        os.kill(self.pid, signal.SIGINT)

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        self._close_channels()
        self.manager.shutdown_kernel(now=True)

    def stop(self) -> None:
        self._close_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()

    # -- reading

    def messages(self) -> list[Message]:
        with self._news:
            return list(self._messages)

    def until(
        self,
        test: Callable[[], Any],
        patience_s: float = 10.0,
        complaint: Callable[[], str] = lambda: "it did not happen",
    ) -> None:
        """Wait until something is so."""
        end = time.monotonic() + patience_s
        while not test():
            if time.monotonic() > end:
                raise AssertionError(f"after {patience_s:g} s: {complaint()}")
            with self._news:
                self._news.wait(0.02)

    def pump(self) -> None:
        """Take what has come on the shell channel."""
        while True:
            try:
                message = self.client.shell_channel.get_msg(timeout=0)
            except Empty:
                return
            msg_id = message["parent_header"].get("msg_id", "")
            self._replies[msg_id] = message
            if msg_id in self._cells:
                self._cells[msg_id].reply = message

    def _read(self) -> None:
        while not self._stop.is_set():
            try:
                message = self.client.iopub_channel.get_msg(timeout=0.1)
            except Empty:
                continue
            with self._news:
                self._messages.append(message)
                self._news.notify_all()

    def _close_channels(self) -> None:
        if not self._stop.is_set():
            self._stop.set()
            self._reader.join(5)
            self.client.stop_channels()

    def __enter__(self) -> Kernel:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()


def kernels(folder: Path, *, interactive: bool = True) -> Iterator[Kernel]:
    """For fixtures: a running kernel with the extension loaded."""
    with Kernel(folder, interactive=interactive) as kernel:
        kernel.ok("%load_ext loom_kernel")
        yield kernel
