"""A session: what was said, as a tree of messages, of which one way from the root is what a model is told.

Pure. Built from the journal's events and kept up with the same ones, so that a session that is reopened is the one that
was closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from loom_kernel import events as ev
from loom_kernel.agents.model import ToolCall

WITHHELD = "[not kept]"
"""Stands for a text of which nothing was stored, when a session with ``no_store`` is reopened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message. ``parts`` holds OpenAI content parts where there is more than text, pictures say."""

    id: int
    parent: int
    role: str
    text: str = ""
    parts: tuple[Mapping[str, Any], ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    model: str = ""
    kind: str = ""
    withheld: bool = False
    source: str = ""

    @property
    def chat(self) -> dict[str, Any]:
        """As it stands in a request."""
        said: dict[str, Any] = {"role": self.role, "content": list(self.parts) if self.parts else self.text}
        if self.tool_calls:
            said["tool_calls"] = [
                {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                for c in self.tool_calls
            ]
            said["content"] = self.text or None
        if self.role == "tool":
            said["tool_call_id"] = self.tool_call_id
        return said

    @property
    def shown(self) -> dict[str, Any]:
        """As people get it."""
        calls = [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in self.tool_calls]
        return {
            "id": str(self.id),
            "parent": str(self.parent),
            "role": self.role,
            "text": self.text,
            "tool_calls": calls,
        }

    def event(self, session: str, *, withhold: bool = False) -> ev.MessageRecorded:
        """As the journal keeps it; parts are kept as they are, since they are JSON."""
        calls = [{"id": c.id, "name": c.name, "arguments": "" if withhold else c.arguments} for c in self.tool_calls]
        return ev.MessageRecorded(
            session=session,
            id=self.id,
            parent=self.parent,
            role=self.role,
            text="" if withhold else self.text,
            content=msgspec.Raw(msgspec.json.encode(self.parts)) if self.parts and not withhold else ev.NULL,
            tool_calls=msgspec.Raw(msgspec.json.encode(calls)) if calls else ev.NULL,
            tool_call_id=self.tool_call_id,
            model=self.model,
            kind=self.kind,
            withheld=withhold,
            source=self.source,
        )

    @classmethod
    def of(cls, event: ev.MessageRecorded) -> Message:
        calls = msgspec.json.decode(bytes(event.tool_calls)) or ()
        parts = msgspec.json.decode(bytes(event.content)) or ()
        return cls(
            id=event.id,
            parent=event.parent,
            role=event.role,
            text=WITHHELD if event.withheld else event.text,
            parts=tuple(parts),
            tool_calls=tuple(ToolCall(id=c["id"], name=c["name"], arguments=c["arguments"] or "{}") for c in calls),
            tool_call_id=event.tool_call_id,
            model=event.model,
            kind=event.kind,
            withheld=event.withheld,
            source=event.source,
        )


class Session:
    """The tree, and where in it the next message goes.

    Args:
        name: within its run.
        said: events in order.
    """

    def __init__(self, name: str, said: Iterable[ev.MessageRecorded | ev.SessionMoved] = ()) -> None:
        self.name = name
        self.by_id: dict[int, Message] = {}
        self.leaf = 0
        for event in said:
            self.apply(event)

    def apply(self, event: ev.MessageRecorded | ev.SessionMoved) -> None:
        """Take an event."""
        if isinstance(event, ev.SessionMoved):
            self.leaf = event.to
        else:
            self.add(Message.of(event))

    def add(self, message: Message) -> Message:
        """Take a message; the next one follows it."""
        self.by_id[message.id] = message
        self.leaf = message.id
        return message

    def next(self, role: str, text: str = "", **more: Any) -> Message:
        """What would be said next; it is not added."""
        return Message(id=len(self.by_id) + 1, parent=self.leaf, role=role, text=text, **more)

    def path(self, leaf: int | None = None) -> list[Message]:
        """The messages on the way to where the session is, oldest first. A summary stands for what came before it."""
        found: list[Message] = []
        at = self.leaf if leaf is None else leaf
        while at:
            message = self.by_id[at]
            found.append(message)
            at = message.parent
        found.reverse()
        return found

    @property
    def chat(self) -> list[dict[str, Any]]:
        """What a model is told."""
        return [message.chat for message in self.path()]

    def unanswered(self) -> list[ToolCall]:
        """Tool calls of the newest answer that have no result yet, in order."""
        done: set[str] = set()
        at = self.leaf
        while at:
            message = self.by_id[at]
            if message.role == "tool":
                done.add(message.tool_call_id)
            elif message.role == "assistant":
                return [call for call in message.tool_calls if call.id not in done]
            else:
                return []
            at = message.parent
        return []

    @property
    def last(self) -> Message | None:
        """The newest message on the way."""
        return self.by_id.get(self.leaf)
