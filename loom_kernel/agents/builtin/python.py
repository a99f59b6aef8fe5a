"""Tools that run Python: in a scratch kernel of the stage's own, or in this notebook's namespace."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import re
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from loom_kernel.agents.tools import Tool, ToolTurn
from loom_kernel.errors import LoomError

START_S = 60.0
RUN_S = 300.0
INTERRUPT_S = 5.0
LOOK_S = 0.5
"""How often a kernel that says nothing is looked after."""

TAIL = 20_000

_ANSI = re.compile(r"\x1b\[[0-9;]*m")

_PARAMETERS = {
    "type": "object",
    "properties": {"code": {"type": "string", "minLength": 1}},
    "required": ["code"],
    "additionalProperties": False,
}


class ScratchKernel:
    """An ipykernel that a stage has to itself, started when it is first used. Use as an async context manager."""

    def __init__(self) -> None:
        self._manager: Any = None
        self._client: Any = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> ScratchKernel:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._end()

    async def _begin(self, cwd: str) -> None:
        from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
        from jupyter_client.manager import AsyncKernelManager

        class Ours(KernelSpecManager):
            """This Python, whatever kernels are installed under its name; what it runs is not the person's history."""

            def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
                program = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
                return KernelSpec(argv=[*program, "--HistoryManager.enabled=False"], display_name="Scratch")

        self._folder = tempfile.TemporaryDirectory(prefix="loom-")
        folder = Path(self._folder.name)
        self._manager = AsyncKernelManager(
            kernel_name="python3",
            kernel_spec_manager=Ours(),
            transport="ipc",  # no port that others could reach
            connection_file=str(folder / "k.json"),
        )
        try:
            with open(folder / "said", "wb") as said:  # noqa: ASYNC230 - an empty file in a folder of its own
                await self._manager.start_kernel(cwd=cwd, stdout=said, stderr=said)
            self._client = self._manager.client()
            self._client.start_channels()
            await self._client.wait_for_ready(timeout=START_S)
        except (RuntimeError, OSError) as error:
            why = (folder / "said").read_text(errors="replace").strip().splitlines()[-1:]
            await self._end()
            raise LoomError(f"the scratch kernel did not start: {error} {' '.join(why)}".rstrip()) from None
        except BaseException:
            await asyncio.shield(self._end())  # whoever was cancelled here leaves no half a kernel
            raise

    async def _end(self) -> None:
        """End the kernel and what it started."""
        manager, client, folder = self._manager, self._client, self._folder
        self._manager = self._client = self._folder = None
        if client is not None:
            client.stop_channels()
        if manager is not None and manager.has_kernel:
            group = getattr(manager.provisioner, "pgid", None)
            with contextlib.suppress(Exception):
                await manager.shutdown_kernel(now=True)
            if group is not None and group != os.getpgrp():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(group, signal.SIGKILL)
        if folder is not None:
            folder.cleanup()

    async def run(self, code: str, cwd: str, timeout_s: float = RUN_S) -> str:
        """Run a cell and return what it printed and gave, or its traceback. Cancelling interrupts it."""
        async with self._lock:
            if self._manager is None or not await self._manager.is_alive():
                await self._end()
                await self._begin(cwd)
            said = _Said()
            asked = self._client.execute(code, allow_stdin=False, store_history=True)
            try:
                async with asyncio.timeout(timeout_s):
                    alive = await self._listen(asked, said)
            except TimeoutError:
                await self._interrupt(asked)
                said.add(f"interrupted after {timeout_s:g} s")
            except asyncio.CancelledError:
                await asyncio.shield(self._interrupt(asked))
                raise
            else:
                if not alive:
                    await self._end()
                    said.add("the kernel died; its variables are gone, and the next call starts another")
            return said.text() or "(no output)"

    async def _interrupt(self, asked: str) -> None:
        """End a cell; a kernel that does not hear is started anew with the next one."""
        if self._manager is None:
            return
        try:
            await self._manager.interrupt_kernel()
            async with asyncio.timeout(INTERRUPT_S):
                alive = await self._listen(asked, _Said())  # what is asked before it has ended is not done
        except (TimeoutError, RuntimeError, OSError):
            alive = False
        if not alive:
            await self._end()

    async def _listen(self, asked: str, said: _Said) -> bool:
        """Take what a cell says to its end; whether the kernel lives."""
        while True:
            try:
                message = await self._client.get_iopub_msg(timeout=LOOK_S)
            except queue.Empty:
                if await self._manager.is_alive():
                    continue
                return False
            if message["parent_header"].get("msg_id") != asked:
                continue
            content = message["content"]
            match message["msg_type"]:
                case "stream":
                    said.add(content["text"])
                case "execute_result" | "display_data":
                    said.add(content["data"].get("text/plain", "") + "\n")
                case "error":
                    said.add(_ANSI.sub("", "\n".join(content["traceback"])) + "\n")
                case "status" if content["execution_state"] == "idle":
                    return True


class _Said:
    """The end of what a cell says, however much that is."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._held = self._dropped = 0

    def add(self, text: str) -> None:
        self._parts.append(text)
        self._held += len(text)
        if self._held > 8 * TAIL:
            whole = "".join(self._parts)
            self._dropped += len(whole) - TAIL
            self._parts, self._held = [whole[-TAIL:]], TAIL

    def text(self) -> str:
        return tail("".join(self._parts), self._dropped)


def tail(text: str, before: int = 0) -> str:
    """The end of a long text, of which ``before`` characters are gone already."""
    before += max(0, len(text) - TAIL)
    return f"[{before} characters before]\n{text[-TAIL:]}" if before else text


def scratch(kernel: ScratchKernel) -> Tool:
    """The tool ``python``, on a stage's kernel."""

    async def run(arguments: dict[str, Any], turn: ToolTurn) -> str:
        return await kernel.run(arguments["code"], str(turn.cwd))

    return Tool(
        name="python",
        description="Run Python in a kernel of your own. Variables stay from one call to the next; it ends with your task.",
        parameters=_PARAMETERS,
        run=run,
        approval="ask",
        source="builtin",
        show=lambda arguments: str(arguments.get("code", "")),
    )


def notebook(run_cell: Callable[[str], Awaitable[str]] | None) -> Tool:
    """The tool ``notebook``: the person's own namespace, each call with their approval."""

    async def run(arguments: dict[str, Any], turn: ToolTurn) -> str:
        if run_cell is None:
            raise LoomError("there is no notebook here; the tool works where the workflow runs in a notebook's kernel")
        return tail(await run_cell(arguments["code"])) or "(no output)"

    return Tool(
        name="notebook",
        description="Run Python in the person's notebook, with its variables. They look at each cell and may refuse it.",
        parameters=_PARAMETERS,
        run=run,
        approval="always",
        source="builtin",
        show=lambda arguments: str(arguments.get("code", "")),
    )
