"""What steps print: their log. ``sys.stdout`` and ``sys.stderr`` route each write by the call it comes from."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from loom_kernel import codec
from loom_kernel import events as ev
from loom_kernel.authoring.context import CancelToken, current, in_step
from loom_kernel.authoring.step import StepHandle
from loom_kernel.engine import figures

MAX_LINE = 4_000
MAX_BYTES = 2_000_000
"""Of one attempt's log; more is cut, with a line that says so."""

_BAR = re.compile(r"\|\s*(\d+(?:\.\d+)?)([kMG]?)/(\d+(?:\.\d+)?)([kMG]?)\s")
_BAR_OPEN = re.compile(r"^(?:.*:\s)?(\d+(?:\.\d+)?)([kMG]?)(?:it)?\s\[")
_SCALE = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}


class LiveHandle(StepHandle):
    """``current_step()`` within a run. May be used from any thread."""

    def __init__(
        self,
        *,
        attempt: int,
        run_id: str,
        node_id: str,
        loop: asyncio.AbstractEventLoop,
        on_output: Callable[[LiveHandle], None],
        now: Callable[[], float],
    ) -> None:
        # Not the base's __init__: its token is made when somebody looks at it, which few steps do.
        self.attempt, self.run_id, self.node_id = attempt, run_id, node_id
        self.idempotency_key = f"{run_id}:{node_id}"
        self._token: CancelToken | None = None
        self._loop, self._on_output, self._now = loop, on_output, now
        self.began = now()
        """When its body began, which may be later than it was asked for: threads are few."""
        self._lock = threading.Lock()
        self._lines: list[str] = []
        self._partial = ""
        self._bytes = 0
        self._progress: tuple[float, float | None] | None = None
        self._told = False
        self._figures: OrderedDict[Any, Any] | None = None
        self._shown: list[codec.Image] = []
        self._usage: list[ev.ModelCalled] = []

    @property
    def figures(self) -> OrderedDict[Any, Any]:
        """pyplot's open figures of this step."""
        if self._figures is None:
            self._figures = OrderedDict()
        return self._figures

    def show(self, figure: Any) -> None:
        """Put a figure into the step's node, as ``plt.show()`` does.

        Raises:
            ValueNotStorableError: it is no figure, or cannot be drawn.
        """
        image = codec.picture(figure, path="the figure shown")
        with self._lock:
            self._shown.append(image)
        self.log(f"figure shown: {image!r}")

    def take_shown(self) -> list[codec.Image]:
        """What was shown since the last look."""
        with self._lock:
            shown, self._shown = self._shown, []
        return shown

    @property
    def has_shown(self) -> bool:
        """Whether there is something to take."""
        return bool(self._shown)

    @property
    def cancelled(self) -> CancelToken:  # type: ignore[override]
        """Truthy once somebody asked for the end."""
        if self._token is None:
            with self._lock:
                self._token = self._token or CancelToken()
        return self._token

    def begin(self) -> None:
        """The body begins now."""
        self.began = self._now()

    @property
    def took(self) -> float:
        """Seconds since the body began."""
        return self._now() - self.began

    def progress(self, done: float, total: float | None = None) -> None:
        """Say how far the step is."""
        with self._lock:
            self._progress = (float(done), None if total is None else float(total))
        self._tell()

    def log(self, line: str) -> None:
        """Add a line to the step's log."""
        self.write(f"{line}\n")

    def write(self, text: str) -> None:
        """Take what was printed; a line that ends in a carriage return is replaced by what follows it."""
        with self._lock:
            text = self._partial + text
            *lines, self._partial = text.split("\n")
            for line in lines:
                self._keep(line)
            if "\r" in self._partial:
                shown = [part for part in self._partial.split("\r") if part.strip()]
                if shown and (bar := read_bar(shown[-1])) is not None:
                    self._progress = bar
                self._partial = "\r" + shown[-1] if shown else ""
            if len(self._partial) > MAX_LINE:
                self._keep(self._partial)
                self._partial = ""
        self._tell()

    def take(self, *, final: bool = False) -> tuple[list[str], tuple[float, float | None] | None]:
        """What was logged and said since the last look; ``final`` ends the line that is still open."""
        with self._lock:
            if final and self._partial.strip():
                self._keep(self._partial)
                self._partial = ""
            lines, self._lines = self._lines, []
            progress, self._progress = self._progress, None
            self._told = False
        return lines, progress

    def usage(
        self,
        model: str = "",
        *,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cached_tokens: int = 0,
        cost_usd: float = 0.0,
    ) -> None:
        """See :meth:`StepHandle.usage`."""
        super().usage(
            model,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            cached_tokens=cached_tokens,
            cost_usd=cost_usd,
        )
        call = ev.ModelCalled(
            model=model,
            attempt=self.attempt,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            cached_tokens=cached_tokens,
            cost_usd=cost_usd,
        )
        with self._lock:
            self._usage.append(call)
        self._tell()

    def take_usage(self) -> list[ev.ModelCalled]:
        """What models used since the last look."""
        with self._lock:
            usage, self._usage = self._usage, []
        return usage

    @property
    def silent(self) -> bool:
        """Nothing was logged or said since the last look."""
        return not (self._lines or self._partial or self._progress or self._usage)

    def _keep(self, line: str) -> None:
        if "\r" in line:
            shown = [part for part in line.split("\r") if part.strip()]
            line = shown[-1] if shown else ""
            if (bar := read_bar(line)) is not None:
                self._progress = bar
        if self._bytes > MAX_BYTES:
            return
        self._bytes += len(line) + 1
        if self._bytes > MAX_BYTES:
            line = "… more output was not kept"
        self._lines.append(line if len(line) <= MAX_LINE else line[: MAX_LINE - 1] + "…")

    def _tell(self) -> None:
        if self._told:
            return
        self._told = True
        try:
            self._loop.call_soon_threadsafe(self._on_output, self)
        except RuntimeError:
            pass  # the loop is closed


def read_bar(text: str) -> tuple[float, float | None] | None:
    """How far a line of tqdm says it is, or None if it is no such line."""
    found = _BAR.search(text)
    if found:
        return float(found[1]) * _SCALE[found[2]], float(found[3]) * _SCALE[found[4]]
    found = _BAR_OPEN.search(text)
    return (float(found[1]) * _SCALE[found[2]], None) if found else None


class RoutedStream:
    """Stands in for ``sys.stdout`` or ``sys.stderr``. Everything but ``write`` is the original's."""

    def __init__(self, original: Any) -> None:
        self._loom_original = original

    def write(self, text: str) -> int:
        handle = in_step.get()
        if isinstance(handle, LiveHandle):
            handle.write(text)
            return len(text)
        context = current.get()
        if context is not None and getattr(context, "replaying", False):
            return len(text)  # the body printed this in an earlier execution
        written: int = self._loom_original.write(text)
        return written

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loom_original, name)

    def __iter__(self) -> Any:
        return iter(self._loom_original)


_users = 0


def install() -> None:
    """Route what is printed, until :func:`uninstall` was called as often."""
    global _users
    _users += 1
    refresh()
    figures.install()


def refresh() -> None:
    """Route again where somebody put another stream in place meanwhile."""
    if _users:
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if stream is not None and not isinstance(stream, RoutedStream):
                setattr(sys, name, RoutedStream(stream))


def uninstall() -> None:
    """Give the streams back, unless somebody put another in place meanwhile."""
    global _users
    _users -= 1
    if not _users:
        figures.uninstall()
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if isinstance(stream, RoutedStream):
                setattr(sys, name, stream._loom_original)
