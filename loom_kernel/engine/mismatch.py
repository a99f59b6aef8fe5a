"""What a person is told when a resumed run would do another effect than its record says."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from loom_kernel.engine.calls import Call
from loom_kernel.engine.endings import Ending
from loom_kernel.engine.replay import Record

if TYPE_CHECKING:
    from loom_kernel.engine.execution import Execution

DIFF = 20_000
"""Characters of a diff."""

SHOWN = 5
"""Records that are told one by one."""


def ending_for(x: Execution, call: Call, recorded: Sequence[Record]) -> Ending:
    """The pause before the effect of ``call``, in whose place the record has others."""
    called = _shown(call.preview())
    detail = _detail(x, call, "arguments", recorded)
    before = _brief(detail["recorded"][0]["args"])
    more = f" (and {len(recorded) - 1} more)" if len(recorded) > 1 else ""
    message = (
        f"{call.kind} {call.name!r} was called with {_brief(called)} at {call.where}, but the record has it with "
        f"{before}{more}. `{detail['hint']}` runs it as it is called now."
    )
    return Ending(kind="paused", reason="needs_decision", message=message, detail=detail)


def gone_ending(x: Execution, call: Call, recorded: Sequence[Record]) -> Ending:
    """The pause before the first effect of code that does not do any more what is recorded."""
    detail = _detail(x, call, "gone", recorded)
    names = list(dict.fromkeys(f"{record.kind} {record.name!r}" for record in recorded))
    told = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
    message = (
        f"{told} {'is' if len(names) == 1 else 'are'} recorded, and the code does not call "
        f"{'it' if len(names) == 1 else 'them'} any more; next it would run {call.kind} {call.name!r} at {call.where}. "
        f"`{detail['hint']}` goes on so; what is recorded stays in the record."
    )
    return Ending(kind="paused", reason="needs_decision", message=message, detail=detail)


def unknown_attempt(x: Execution, call: Call, attempt: int) -> Ending:
    """The pause before an attempt is repeated of which nobody knows how far it came."""
    detail = {**_detail(x, call, "unknown", ()), "unknown": True, "attempt": attempt}
    message = (
        f"{call.kind} {call.name!r} was under way when its worker died, and nobody knows how far it came. "
        f"`{detail['hint']}` runs it again."
    )
    return Ending(kind="paused", reason="needs_decision", message=message, detail=detail)


def _detail(x: Execution, call: Call, what: str, recorded: Sequence[Record]) -> dict[str, Any]:
    """What the question is about: the call, the records, and the lines of the body that changed."""
    return {
        "what": what,
        "node": call.node_id,
        "kind": call.kind,
        "name": call.name,
        "called": _shown(call.preview()),
        "recorded": [
            {
                "node": record.node_id,
                "name": record.name,
                "args": _shown(bytes(record.args)),
                "status": record.status,
                "where": record.where,
            }
            for record in recorded[:SHOWN]
        ],
        "recorded_count": len(recorded),
        "where": call.where,
        "hint": f"%loom resume {x.run_id} --accept",
        "diff": diff(x.before, x.definition.source)[:DIFF],
    }


def diff(before: str, after: str) -> str:
    """The lines that changed, as ``diff -u`` shows them; empty where there is nothing to compare or no difference."""
    if not before or not after or before == after:
        return ""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "recorded", "now", lineterm="", n=2)
    return "\n".join(lines)


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
