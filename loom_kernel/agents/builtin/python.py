"""Tools that run Python: in a scratch kernel of the stage's own, or in this notebook's namespace."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable
from typing import Any

from loom_kernel.agents.tools import Tool, ToolTurn
from loom_kernel.errors import LoomError

START_S = 60.0
RUN_S = 300.0
INTERRUPT_S = 5.0
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
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> ScratchKernel:
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._client is not None:
            self._client.stop_channels()
        if self._manager is not None:
            with contextlib.suppress(Exception):
                await self._manager.shutdown_kernel(now=True)

    async def _begin(self, cwd: str) -> None:
        from jupyter_client.manager import AsyncKernelManager

        self._manager = AsyncKernelManager(kernel_name="python3")
        await self._manager.start_kernel(cwd=cwd)
        self._client = self._manager.client()
        self._client.start_channels()
        try:
            await self._client.wait_for_ready(timeout=START_S)
        except RuntimeError as error:
            raise LoomError(f"the scratch kernel did not start: {error}") from None

    async def run(self, code: str, cwd: str, timeout_s: float = RUN_S) -> str:
        """Run a cell and return what it printed and gave, or its traceback. Cancelling interrupts it."""
        async with self._lock:
            if self._manager is None or not await self._manager.is_alive():
                await self._begin(cwd)
            said: list[str] = []
            asked = self._client.execute(code, allow_stdin=False, store_history=True)
            try:
                async with asyncio.timeout(timeout_s):
                    await self._listen(asked, said)
            except TimeoutError:
                await self._interrupt(asked)
                said.append(f"interrupted after {timeout_s:g} s")
            except asyncio.CancelledError:
                await asyncio.shield(self._interrupt(asked))
                raise
            return tail("".join(said)) or "(no output)"

    async def _interrupt(self, asked: str) -> None:
        """End a cell; a kernel that does not hear is started anew with the next one."""
        await self._manager.interrupt_kernel()
        try:
            async with asyncio.timeout(INTERRUPT_S):
                await self._listen(asked, [])  # what is asked before it has ended is not done
        except TimeoutError:
            await self._manager.shutdown_kernel(now=True)

    async def _listen(self, asked: str, said: list[str]) -> None:
        while True:
            message = await self._client.get_iopub_msg(timeout=None)
            if message["parent_header"].get("msg_id") != asked:
                continue
            content = message["content"]
            match message["msg_type"]:
                case "stream":
                    said.append(content["text"])
                case "execute_result" | "display_data":
                    said.append(content["data"].get("text/plain", "") + "\n")
                case "error":
                    said.append(_ANSI.sub("", "\n".join(content["traceback"])) + "\n")
                case "status" if content["execution_state"] == "idle":
                    return


def tail(text: str) -> str:
    """The end of a long text."""
    return text if len(text) <= TAIL else f"[{len(text) - TAIL} characters before]\n{text[-TAIL:]}"


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
