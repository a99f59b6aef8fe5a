"""States, numbers and names in the words that every screen uses."""

from __future__ import annotations

import re
import time
from typing import Any

import msgspec

from loom_kernel.events import ErrorRecord
from loom_kernel.views.node import NodeView
from loom_kernel.views.run import RunView

_PAUSED = {
    "stopped": "stopped",
    "needs_decision": "needs a decision",
    "budget": "out of budget",
    "provider": "model unavailable",
}

_TONES = {
    "pending": "run",
    "running": "run",
    "awaiting_input": "wait",
    "paused": "warn",
    "blocked": "warn",
    "interrupted": "warn",
    "completed": "ok",
    "skipped": "quiet",
    "cancelled": "quiet",
    "failed": "bad",
    "killed": "bad",
}

GLYPHS = {
    "pending": "○",
    "running": "●",
    "waiting": "◆",
    "retrying": "↻",
    "completed": "✓",
    "failed": "✗",
    "cancelled": "–",
}
"""A node's status as one character, for text."""

_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{4,}\b")


def duration(seconds: float) -> str:
    """Seconds as people say them: ``0.31 s``, ``12 s``, ``1 m 12 s``, ``2 h 05 m``, ``3 d 4 h``."""
    seconds = max(0.0, seconds)
    if seconds < 0.005:
        return "< 0.01 s"
    if seconds < 0.995:
        return f"{seconds:.2f} s"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole} s"
    if whole < 3_600:
        return f"{whole // 60} m {whole % 60:02d} s"
    if whole < 86_400:
        return f"{whole // 3_600} h {whole % 3_600 // 60:02d} m"
    return f"{whole // 86_400} d {whole % 86_400 // 3_600} h"


def number(value: float) -> str:
    """A count with thin groups: ``1,461``; fractions keep two digits."""
    return f"{int(value):,}" if float(value).is_integer() else f"{value:,.2f}"


def spent(view: RunView) -> str:
    """What models cost, in short; empty where none was asked."""
    if view.cost_usd:
        return f"${view.cost_usd:.2f}" if view.cost_usd >= 0.01 else f"${view.cost_usd:.4f}"
    return plural(view.tokens, "token") if view.tokens else ""


def cached(node: NodeView) -> str:
    """``from cache, run of 14:02``: where a result is from that was not made here; with the day when it was not today."""
    then = time.localtime(node.cached_at)
    return f"from cache, run of {time.strftime('%H:%M' if then[:3] == time.localtime()[:3] else '%d %b, %H:%M', then)}"


def plural(n: int, one: str, many: str = "") -> str:
    """``1 step``, ``13 steps``."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def short(text: str, limit: int) -> str:
    """The text's first line, cut to ``limit`` characters with an ellipsis."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def stable(text: str) -> str:
    """The text without memory addresses, which differ from run to run."""
    return _ADDRESS.sub("0x…", text)


def class_name(error: ErrorRecord) -> str:
    """``module:Outer.Name`` as people know it: ``Name``."""
    return error.type.rpartition(":")[2].rpartition(".")[2] or "Error"


def scalar(raw: Any, limit: int = 24) -> str | None:
    """A short value as text; None for what is not one (a table, a list, an object, null)."""
    if isinstance(raw, bool):
        return "yes" if raw else "no"
    if isinstance(raw, int):
        return str(raw) if len(str(raw)) <= limit else None
    if isinstance(raw, float):
        return f"{raw:g}"
    if isinstance(raw, str) and raw.strip():
        return short(raw, limit)
    return None


def loads(raw: bytes) -> Any:
    """JSON bytes as plain values; None where they are not JSON."""
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return None


def status_words(view: RunView) -> str:
    """The run's status as a person would say it: ``waiting for you``, ``failed at write``."""
    status = view.shown_status
    if view.asked and not view.at_rest:
        return "stopping" if view.asked == "stop" else "cancelling"
    if asks(view):
        return "waiting for you"
    if status == "pending":
        return "waiting for a worker" if view.for_worker and not view.held_by else "starting"
    if status == "running":
        active = [n for n in list(view.nodes.values()) if n.status in ("running", "waiting", "retrying")]
        return "sleeping" if active and all(n.kind == "sleep" for n in active) else "running"
    if status == "paused":
        return _PAUSED.get(view.reason or "", f"paused: {view.reason}" if view.reason else "paused")
    if status == "failed" and view.failed_node_id in view.nodes:
        return f"failed at {view.nodes[view.failed_node_id].label}"
    return status


def tone(view: RunView) -> str:
    """What the status feels like: run, wait, ok, bad, warn, quiet. Colours follow it."""
    if view.asked and not view.at_rest:
        return "quiet"
    return "wait" if asks(view) else _TONES.get(view.shown_status, "quiet")


def asks(view: RunView) -> bool:
    """Whether a person is waited for, by the run or by a child run."""
    return view.shown_status in ("running", "awaiting_input") and bool(view.family_prompts)


def steps_words(view: RunView) -> str:
    """``8 of 13 steps``."""
    counts = view.counts
    return f"{counts.done:,} of {plural(counts.total, 'step')}"
