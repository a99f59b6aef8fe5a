"""What a failure looks like to a body: the same class live and replayed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loom_kernel import codec
from loom_kernel.codec.classes import module_of
from loom_kernel.engine.redact import redact
from loom_kernel.errors import StepFailed

TEXT_BYTES = 16 * 1024
"""Of a tool error's texts; the end is kept, where the reason usually stands."""


def as_raised(error: BaseException, name: str, namespace: Mapping[str, Any] | None = None) -> BaseException:
    """The exception to raise into a body: itself, or ``StepFailed`` where a replay could not raise the same class."""
    if isinstance(error, Exception) and codec.rebuildable(error, namespace):
        return error
    if isinstance(error, StepFailed):
        return error
    kind = f"{module_of(type(error))}.{type(error).__qualname__}"
    kind = kind.removeprefix("builtins.").removeprefix("__main__.")
    return StepFailed(name, kind, str(error))


def tool_error(error: BaseException) -> dict[str, Any]:
    """``ctx.tool(failure_mode="return")``: the error as data, after Atomic's; bounded, and without what looks secret."""
    out: dict[str, Any] = {"name": type(error).__name__, "message": _tail(str(error))}
    code = getattr(error, "returncode", getattr(error, "exit_code", None))
    if isinstance(code, int) and not isinstance(code, bool):
        out["exit_code"] = code
    for stream in ("stdout", "stderr"):
        text = getattr(error, stream, None)
        if isinstance(text, (bytes, bytearray)):
            text = bytes(text).decode("utf-8", "replace")
        if isinstance(text, str):
            out[stream] = _tail(text)
    return out


def _tail(text: str) -> str:
    text = redact(text[-4 * TEXT_BYTES :]) if len(text) > 4 * TEXT_BYTES else redact(text)
    data = text.encode("utf-8", "replace")
    if len(data) <= TEXT_BYTES:
        return data.decode()
    marker = "[… the beginning was cut …]\n"
    return marker + data[-(TEXT_BYTES - len(marker.encode())) :].decode("utf-8", "ignore")
