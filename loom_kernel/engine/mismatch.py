"""What a person is told when a resumed run would do another effect than its record says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from loom_kernel.engine.calls import Call
from loom_kernel.engine.endings import Ending
from loom_kernel.engine.replay import Record

SHOWN = 5
"""Records that are told one by one."""


def ending_for(run_id: str, call: Call, recorded: Sequence[Record]) -> Ending:
    """The pause before the effect of ``call``."""
    hint = f"%loom resume {run_id} --accept"
    called = _shown(call.preview())
    detail: dict[str, Any] = {
        "node": call.node_id,
        "kind": call.kind,
        "name": call.name,
        "called": called,
        "recorded": [
            {"node": record.node_id, "args": _shown(bytes(record.args)), "status": record.status, "where": record.where}
            for record in recorded[:SHOWN]
        ],
        "recorded_count": len(recorded),
        "where": call.where,
        "hint": hint,
    }
    before = _brief(detail["recorded"][0]["args"])
    more = f" (and {len(recorded) - 1} more)" if len(recorded) > 1 else ""
    message = (
        f"{call.kind} {call.name!r} was called with {_brief(called)} at {call.where}, but the record has it with "
        f"{before}{more}. `{hint}` runs it as it is called now."
    )
    return Ending(kind="paused", reason="needs_decision", message=message, detail=detail)


def unknown_attempt(run_id: str, call: Call) -> Ending:
    """The pause before an attempt is repeated of which nobody knows how far it came."""
    hint = f"%loom resume {run_id} --accept"
    detail = {
        "node": call.node_id,
        "kind": call.kind,
        "name": call.name,
        "called": _shown(call.preview()),
        "recorded": [],
        "unknown": True,
        "where": call.where,
        "hint": hint,
    }
    message = (
        f"{call.kind} {call.name!r} was under way when its worker died, and nobody knows how far it came. "
        f"`{hint}` runs it again."
    )
    return Ending(kind="paused", reason="needs_decision", message=message, detail=detail)


def _shown(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return None


def _brief(args: Any) -> str:
    if isinstance(args, dict):
        text = ", ".join(f"{name}={msgspec.json.encode(value).decode()}" for name, value in args.items())
    else:
        text = msgspec.json.encode(args).decode()
    text = text or "no arguments"
    return text if len(text) <= 200 else text[:199] + "…"
