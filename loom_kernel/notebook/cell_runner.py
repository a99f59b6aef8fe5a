"""Code that an agent may run in the person's notebook: on the main thread, with what it prints as text."""

from __future__ import annotations

import ast
import asyncio
import re
from typing import Any

from loom_kernel.errors import LoomError

_ANSI = re.compile(r"\x1b\[[0-9;]*m")

PATIENCE_S = 30.0
"""How long the main thread may be busy before the code is given up."""


async def run_cell(shell: Any, code: str) -> str:
    """Run a cell on the kernel's main thread and return what it printed and gave, or its traceback.

    Called on the loop of all runs. The person's variables are the code's; the cell is in no history.

    Raises:
        LoomError: the main thread does not come to it: a cell blocks it.
    """
    main = getattr(getattr(shell.kernel, "io_loop", None), "asyncio_loop", None)
    if main is None:
        raise LoomError("this kernel has no loop on its main thread, so no cell can be run for a tool")
    here = asyncio.get_running_loop()
    begun: asyncio.Event = asyncio.Event()
    done: asyncio.Future[str] = here.create_future()

    async def run() -> None:
        here.call_soon_threadsafe(begun.set)
        try:
            said = await _captured(shell, code)
        except BaseException as error:
            here.call_soon_threadsafe(_fail, done, LoomError(f"{type(error).__name__}: {error}"))
            if not isinstance(error, Exception):
                raise
        else:
            here.call_soon_threadsafe(_give, done, said)

    started: list[asyncio.Task[None]] = []
    handle = main.call_soon_threadsafe(lambda: started.append(main.create_task(run())))
    try:
        await asyncio.wait_for(begun.wait(), PATIENCE_S)
    except TimeoutError:
        main.call_soon_threadsafe(handle.cancel)
        raise LoomError(
            "the notebook's main thread is busy, so the cell did not run. `await` the run instead of r.wait(), or end the cell"
        ) from None
    try:
        return await done
    except asyncio.CancelledError:
        main.call_soon_threadsafe(lambda: [task.cancel() for task in started])
        raise


def _give(future: asyncio.Future[str], said: str) -> None:
    if not future.done():
        future.set_result(said)


def _fail(future: asyncio.Future[str], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


async def _captured(shell: Any, code: str) -> str:
    from IPython.core.interactiveshell import ExecutionInfo, ExecutionResult
    from IPython.utils.capture import capture_output

    tracebacks: list[str] = []

    def keep(kind: Any, error: Any, lines: list[str]) -> None:
        """In the place of the kernel's own, which would show it below the person's cell."""
        tracebacks.append(_ANSI.sub("", "\n".join(lines)))

    own, shell._showtraceback = shell._showtraceback, keep
    try:
        with capture_output() as captured:
            try:
                tree = ast.parse(shell.transform_cell(code))
            except SyntaxError:
                shell.showsyntaxerror()
            else:
                name = shell.compile.cache(code, shell.execution_count)
                info = ExecutionInfo(code, False, False, False, None)
                await shell.run_ast_nodes(
                    tree.body, name, interactivity="last_expr", compiler=shell.compile, result=ExecutionResult(info)
                )
    finally:
        shell._showtraceback = own
    shown = [one.data.get("text/plain", "") for one in captured.outputs if one.data]
    said = (captured.stdout.rstrip(), captured.stderr.rstrip(), *shown, *tracebacks)
    return "\n".join(part for part in said if part)
