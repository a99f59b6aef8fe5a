"""A session: what was said, as a tree of messages, of which one way from the root is what a model is told.

Pure. Built from the journal's events and kept up with the same ones, so that a session that is reopened is the one that
was closed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from loom_kernel import events as ev
from loom_kernel.agents.model import ToolCall

Said = ev.MessageRecorded | ev.SessionMoved

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

    What grows with each message grows by one: a session of hundreds costs a further one no more than a new one does.

    Args:
        name: within its run.
        said: events in order.
    """

    def __init__(self, name: str, said: Sequence[Said] = ()) -> None:
        self.name = name
        self.by_id: dict[int, Message] = {}
        self.answered: set[str] = set()
        """Ids of tool calls that have a result."""
        self._path: list[Message] = []
        self._chat: list[dict[str, Any]] = []
        self._taken = 0
        self.follow(said)

    def follow(self, said: Sequence[Said]) -> Session:
        """Take what was said since the last time; ``said`` only ever grows. What is known already changes nothing."""
        for event in said[self._taken :]:
            self.apply(event)
        self._taken = len(said)
        return self

    def apply(self, event: Said) -> None:
        """Take an event."""
        if isinstance(event, ev.SessionMoved):
            self.go(event.to)
        elif event.id not in self.by_id:
            self.add(Message.of(event))

    def add(self, message: Message) -> Message:
        """Take a message; the next one follows it."""
        self.by_id[message.id] = message
        if message.parent != self.leaf:
            self.go(message.parent)
        self._path.append(message)
        self._chat.append(message.chat)
        if message.role == "tool":
            self.answered.add(message.tool_call_id)
        return message

    def go(self, to: int) -> None:
        """Go on from that message; 0 is before the first."""
        if to == self.leaf:
            return
        path: list[Message] = []
        while to:
            message = self.by_id[to]
            path.append(message)
            to = message.parent
        self._path = path[::-1]
        self._chat = [message.chat for message in self._path]

    def next(self, role: str, text: str = "", **more: Any) -> Message:
        """What would be said next; it is not added."""
        return Message(id=len(self.by_id) + 1, parent=self.leaf, role=role, text=text, **more)

    @property
    def leaf(self) -> int:
        """The message that the next one follows; 0 for none."""
        return self._path[-1].id if self._path else 0

    @property
    def path(self) -> Sequence[Message]:
        """The messages on the way to where the session is, oldest first."""
        return self._path

    @property
    def chat(self) -> Sequence[dict[str, Any]]:
        """What a model is told."""
        return self._chat

    @property
    def last(self) -> Message | None:
        """The newest message on the way."""
        return self._path[-1] if self._path else None

    def unanswered(self) -> list[ToolCall]:
        """Tool calls of the newest answer that have no result yet, in order."""
        for message in reversed(self._path):
            if message.role == "assistant":
                return [call for call in message.tool_calls if call.id not in self.answered]
            if message.role != "tool":
                break
        return []
