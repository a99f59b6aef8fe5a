"""Compaction: a summary in the place of what was said, so that a session fits its model again.

Passages between the tags of :func:`keep_context` are kept word for word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from loom_kernel.agents.asking import Asker
from loom_kernel.agents.session import Message, Session
from loom_kernel.engine.stages import Turn

OPEN, CLOSE = "<keep_context>", "</keep_context>"

INSTRUCTIONS = (
    "Summarise this conversation so that the work can go on from the summary alone: the task, what was decided and why, "
    "what was done and found, names and numbers that matter, what is still to do."
)

_KEPT = re.compile(rf"^{re.escape(OPEN)}\n(.*?)\n{re.escape(CLOSE)}$", re.S | re.M)


def keep_context(text: str) -> str:
    """Mark a text that compaction keeps word for word. Marking it twice changes nothing.

    Source: Atomic's ``keepContext``.
    """
    stripped = text.strip("\n")
    if stripped.startswith(OPEN + "\n") and stripped.endswith("\n" + CLOSE):
        return text
    return f"{OPEN}\n{text}\n{CLOSE}"


def kept(messages: Sequence[Message]) -> list[str]:
    """What is to be kept word for word, once each; marks in results of tools are only text."""
    found: dict[str, None] = {}
    for message in messages:
        if message.role != "tool":
            found.update(dict.fromkeys(_KEPT.findall(message.text)))
    return list(found)


async def compact(
    turn: Turn,
    session: Session,
    asker: Asker,
    messages: Sequence[Message],
    instructions: str,
    to: int,
    *,
    redact: Callable[[str], str],
) -> dict[str, Any]:
    """Ask for a summary of ``messages`` and go on from it, after the message ``to``.

    Returns:
        ``{"summary", "messages_before", "messages_after"}``.
    """
    said = "\n\n".join(
        f"[{m.role}] {m.text}" + "".join(f"\n-> {c.name}({c.arguments})" for c in m.tool_calls)
        for m in messages
        if m.role != "system"
    )
    await turn.look()
    asked = await asker.ask(
        turn,
        [{"role": "system", "content": instructions}, {"role": "user", "content": said}],
        tools=(),
        response_format=None,
        deadline_s=None,
        on_text=None,
    )
    text = redact(asked.reply.text)
    missing = [passage for passage in kept(messages) if passage not in text]
    if missing:
        text += "\n\n" + "\n\n".join(keep_context(passage) for passage in missing)
    session.go(to)
    summary = session.next("user", f"Summary of what came before:\n\n{text}", kind="summary")
    session.add(summary)
    await turn.record(summary.event(session.name), asked.event)
    return {"summary": text, "messages_before": len(messages), "messages_after": len(session.path)}
