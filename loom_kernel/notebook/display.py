"""A kernel as the host of runs: where calls come from, what is shown under a cell, what an interrupt means."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from loom_kernel.notebook.tap import Tap, advice
from loom_kernel.notebook.waiting import Interrupts, left, left_in_task

if TYPE_CHECKING:
    from loom_kernel.notebook.live_view import LiveView
    from loom_kernel.notebook.mounted import Mounted
    from loom_kernel.runtime.core import Runtime
    from loom_kernel.runtime.host import Place
    from loom_kernel.runtime.run import Run

_VSCODE_PATH = "__vsc_ipynb_file__"
_RUN = ("loom_kernel.runtime.run", "Run")
_BLOCKED_AFTER_S = 0.3


class KernelHost:
    """The host of an ipykernel. One a kernel; :meth:`close` gives everything back.

    Args:
        shell: IPython's shell, whose ``kernel`` is the ipykernel.
        runtime: gives the runtime, which is loaded when a run is first shown.
        static: never show a live view (``LOOM_TEST=1``); None asks the runtime's settings.
    """

    def __init__(self, shell: Any, runtime: Callable[[], Runtime], *, static: bool | None = None) -> None:
        self._shell, self._runtime, self._given_static = shell, runtime, static
        self._interrupts = Interrupts()
        self._tap: Tap | None = None
        self._views: dict[str, LiveView] = {}
        self._seen: dict[str, str] = {}  # run id -> the execution that shows or has shown it
        self._pictured: dict[str, str] = {}  # run id -> the text that was last published of it
        self._mounted: Mounted | None = None
        self._last_cell = contextvars.copy_context()
        self._cell_started = self._interrupts.cell_started  # one object, so that it can be unregistered
        self._cell_noted = self._note_cell
        shell.events.register("pre_run_cell", self._cell_started)
        shell.events.register("pre_run_cell", self._cell_noted)
        formatters = shell.display_formatter
        formatters.ipython_display_formatter.for_type_by_name(*_RUN, self._shown_already)
        formatters.mimebundle_formatter.for_type_by_name(*_RUN, self._bundle)

    # ------------------------------------------------------------ the host's four duties

    def place(self) -> Place:
        """The notebook's path as a label, the cell's id or the hash of its source, and this execution of it."""
        from loom_kernel.runtime.host import Place

        parent = self._parent()
        notebook = os.environ.get("JPY_SESSION_NAME") or self._shell.user_ns.get(_VSCODE_PATH)
        cell = (parent.get("metadata") or {}).get("cellId")
        if not isinstance(cell, str) or not cell:
            code = self.cell_text()
            cell = f"source:{hashlib.sha256(code.encode()).hexdigest()[:16]}" if code else None
        notebook = str(notebook) if notebook else None
        return Place(
            notebook=notebook,
            cell=cell,
            execution=self._execution(parent),
            headless=self.headless,
            label=PurePath(notebook).name if notebook else "notebook",
            kind="kernel",
        )

    def started(self, run: Run[Any], how: str) -> None:
        """Show the live view under the running cell; headless, nothing is shown before a cell waits."""
        if not run.show:
            return
        if how:
            print(how)
        self._seen[run.id] = self._execution(self._parent())
        if not (self.headless or self.static):
            self.show(run)

    @contextlib.contextmanager
    def waiting(self, run: Run[Any]) -> Iterator[None]:
        """Around every wait of a cell: interrupts are noted, and headless the picture is published at its end."""
        with self._interrupts.watching(), self._advising(run):
            yield
        if run.show and (self.headless or self.static):
            self._publish_picture(run)

    def interrupted(self, run: Run[Any]) -> BaseException | None:
        """The first interrupt detaches, the next within ten seconds cancels; other cancellations pass."""
        if not self._interrupts.noted:
            return None
        name = run.view.workflow or "the run"
        if self._interrupts.again(run.id):
            runtime = self._runtime()
            asyncio.run_coroutine_threadsafe(run.cancel_async(), runtime.loop.loop)
            line = f"{name} is being cancelled"
        else:
            line = f"stopped waiting; {name} goes on. Interrupt a cell that waits for it again within 10 s to cancel it"
        if self._interrupts.in_cell:
            return left(line)
        print(line)
        return left_in_task()

    def widgets(self) -> Mounted | None:
        """Where widgets of custom questions are shown; None where nobody would see them."""
        if self.headless or self.static:
            return None
        if self._mounted is None:
            from loom_kernel.notebook.mounted import Mounted

            self._mounted = Mounted(
                loop=self._runtime().loop.loop,
                tap=self.tap,
                views=lambda: list(self._views.values()),
                publish=self._publish_under_last_cell,
                format=self._shell.display_formatter.format,
            )
        return self._mounted

    # ------------------------------------------------------------ what a kernel is like

    @property
    def headless(self) -> bool:
        """Nobody is there to answer: the front end takes no input (nbclient, papermill, nbval)."""
        return not getattr(self._shell.kernel, "_allow_stdin", False)

    @property
    def static(self) -> bool:
        """Pictures only, whoever is there."""
        if self._given_static is None:
            self._given_static = bool(self._runtime().settings.get("test"))
        return self._given_static

    @property
    def tap(self) -> Tap:
        """What brings clicks while a cell runs; installed when first needed."""
        if self._tap is None:
            self._tap = Tap(self._shell.kernel, self._runtime().loop.loop)
            # After the runtime's own, so that a kernel that ends in peace leaves pictures before runs are let go.
            atexit.register(self.close)
        return self._tap

    def cell_text(self) -> str:
        """The running cell as the person wrote it."""
        code = (self._parent().get("content") or {}).get("code")
        return code if isinstance(code, str) else ""

    # ------------------------------------------------------------ showing

    def show(self, run: Run[Any], *, stays: bool = False) -> None:
        """Show the live view under the running cell; an earlier one of the run becomes a picture."""
        from loom_kernel.notebook.live_view import LiveView

        earlier = self._views.pop(run.id, None)
        if earlier is not None:
            earlier.close()
        self._seen[run.id] = self._execution(self._parent())
        self._views[run.id] = LiveView(
            run,
            publish=self._shell.display_pub.publish,
            format=self._shell.display_formatter.format,
            loop=self._runtime().loop.loop,
            clock=self._runtime().clock.time,
            tap=self.tap,
            closed=self._forget,
            stays=stays,
        )
        if self._mounted is not None:
            self._mounted.arrange()

    def picture(self, run: Run[Any]) -> dict[str, str]:
        """The static picture; headless and in tests without durations, so that two executions give the same."""
        from loom_kernel.notebook.live_view import picture

        return picture(run.view, times=not (self.headless or self.static))

    async def run_cell(self, code: str) -> str:
        """Run code in the person's namespace for a tool; see :mod:`~loom_kernel.notebook.cell_runner`."""
        from loom_kernel.notebook.cell_runner import run_cell

        return await run_cell(self._shell, code)

    def publish(self, data: dict[str, Any]) -> None:
        """Publish one output of the running cell."""
        self._shell.display_pub.publish(data=data, metadata={})

    def close(self) -> None:
        """Turn every live view into its picture and give the kernel back as it was."""
        for view in list(self._views.values()):
            view.close()
        atexit.unregister(self.close)
        if self._mounted is not None:
            self._mounted.close()
        if self._tap is not None:
            self._tap.remove()
        with contextlib.suppress(ValueError):
            self._shell.events.unregister("pre_run_cell", self._cell_started)
            self._shell.events.unregister("pre_run_cell", self._cell_noted)
        formatters = self._shell.display_formatter
        for formatter in (formatters.ipython_display_formatter, formatters.mimebundle_formatter):
            with contextlib.suppress(KeyError):
                formatter.pop(".".join(_RUN))

    # ------------------------------------------------------------ inside

    def _publish_picture(self, run: Run[Any]) -> None:
        made = self.picture(run)
        self._seen[run.id] = self._execution(self._parent())
        if self._pictured.get(run.id) != made["text/html"]:
            self._pictured[run.id] = made["text/html"]
            self.publish(made)

    def _shown_already(self, run: Run[Any]) -> None:
        """A run that this very execution shows is not shown a second time as the cell's value."""
        if self._seen.get(run.id) != self._execution(self._parent()):
            raise NotImplementedError  # IPython goes on to the other formatters

    def _bundle(self, run: Run[Any]) -> dict[str, str]:
        _ = run.status  # brings the view up to date
        return self.picture(run)

    def _forget(self, view: LiveView) -> None:
        if self._views.get(view.run.id) is view:
            del self._views[view.run.id]

    @contextlib.contextmanager
    def _advising(self, run: Run[Any]) -> Iterator[None]:
        """Where a blocked cell hears no clicks, say so once a question opens."""
        if self.headless or self.static or self.tap.reach == "always":
            yield
            return
        loop = self._runtime().loop.loop
        main = getattr(getattr(self._shell.kernel, "io_loop", None), "asyncio_loop", None)
        context = contextvars.copy_context()
        told = False

        async def ask() -> None:
            nonlocal told
            heard = asyncio.Event()
            if self.tap.reach == "awaiting" and main is not None:
                main.call_soon_threadsafe(loop.call_soon_threadsafe, heard.set)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(heard.wait(), _BLOCKED_AFTER_S)
            if not heard.is_set() and not told:
                told = True
                context.run(print, advice(self.tap.reach))

        def look(entry: Any = None) -> None:
            if (entry is None or entry.type == "prompt.opened") and run.view.open_prompts:
                tasks.add(loop.create_task(ask()))

        tasks: set[asyncio.Task[None]] = set()
        unlisten = run.listen(look)
        loop.call_soon_threadsafe(look)
        try:
            yield
        finally:
            unlisten()
            for task in tasks:
                loop.call_soon_threadsafe(task.cancel)

    def _note_cell(self, *_: Any) -> None:
        self._last_cell = contextvars.copy_context()  # it says which cell an output belongs to

    def _publish_under_last_cell(self, **output: Any) -> None:
        self._last_cell.copy().run(lambda: self._shell.display_pub.publish(**output))

    def _parent(self) -> dict[str, Any]:
        parent = self._shell.kernel.get_parent("shell")
        return parent if isinstance(parent, dict) else {}

    def _execution(self, parent: dict[str, Any]) -> str:
        return str((parent.get("header") or {}).get("msg_id", ""))
