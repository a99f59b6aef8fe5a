"""Messages between the stages of a run: who is in which group, who may write to whom, what waits for whom.

Every stage is in a group: that of its whole family of runs, ``workflow:<root>``, or a named one within it,
``workflow:<root>/<name>``. Its address is its group and its name. The family's group may write into the named ones, not the
other way, not sideways, and nobody into another family. Source: Atomic's intercom groups.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from loom_kernel.agents.agent import Queue, Queued
from loom_kernel.agents.tools import Tool, ToolTurn
from loom_kernel.errors import LoomError

AUTOMATIC = ("true", "auto")
SHARED = "default"


def group_of(root_run_id: str, given: str | bool | None, fresh: Callable[[], str]) -> str:
    """The group of a stage.

    Args:
        given: the option: a name, True for one of its own, ``"default"`` for the one that all runs share, None for the
            family's.
        fresh: makes the name of one of its own.
    """
    family = f"workflow:{root_run_id}"
    if given is None:
        return family
    name = str(given).strip()
    if given is True or name.lower() in AUTOMATIC:
        name = fresh()
    if name == SHARED:
        return SHARED
    return f"{family}/{name}"


def may_write(sender: str, receiver: str) -> bool:
    """Whether a stage of one group reaches stages of another."""
    owns = sender.startswith("workflow:") and "/" not in sender
    return sender == receiver or (owns and receiver.startswith(f"{sender}/"))


def pattern(sender: str, to: str) -> str:
    """The whole address that ``to`` means: from the sender's own group, unless it begins with one.

    Raises:
        LoomError: it is no address.
    """
    to = to.strip().strip("/")
    if not to or any(not part for part in to.split("/")):
        raise LoomError(
            f"{to!r} is no address; one is a stage's name, group/name, or has * for one part and ** for any"
        )
    return to if to.startswith("workflow:") else f"{sender}/{to}"


def matches(address: str, wanted: str) -> bool:
    """Whether an address fits a pattern: ``*`` is one part, ``**`` any number of them."""
    parts = [".*" if p == "**" else re.escape(p).replace(r"\*", "[^/]*") for p in wanted.split("/")]
    return re.fullmatch("/".join(parts), address) is not None


@dataclass
class Member:
    """A stage that was at work or is."""

    address: str
    group: str
    queue: Queue
    answer: Callable[[str, str], Awaitable[str]]
    live: bool = True
    heard: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Letter:
    """A message on its way. ``id`` is the same whenever the call that sends it is made again."""

    id: str
    sender: str
    group: str
    wanted: str
    text: str

    @property
    def said(self) -> str:
        """As the receiver gets it."""
        return f"[message from {self.sender}]\n{self.text}"


class Bus:
    """The messages of one process: stages join while they are at work."""

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._letters: dict[str, Letter] = {}

    def join(self, member: Member, kept: Iterable[Letter] = ()) -> None:
        """A stage begins a turn; what waits for it comes.

        Args:
            kept: letters that the journal has of an earlier execution.
        """
        before = self._members.get(member.address)
        if before is not None:
            member.heard |= before.heard
        self._members[member.address] = member
        for letter in kept:
            self._letters.setdefault(letter.id, letter)
        for letter in list(self._letters.values()):
            self._deliver(letter, member)

    def leave(self, member: Member) -> None:
        """Its turn is over: from now on nothing comes in."""
        member.live = False

    def forget(self, root_run_id: str) -> list[Letter]:
        """A family of runs has ended. Returns the letters that nobody got."""
        family = f"workflow:{root_run_id}"
        heard = {id for m in self._members.values() for id in m.heard}
        mine = [one for one in self._letters.values() if one.group == family or one.group.startswith(f"{family}/")]
        for one in mine:
            del self._letters[one.id]
        for address in [a for a in self._members if a.startswith(f"{family}/")]:
            del self._members[address]
        return [one for one in mine if one.id not in heard]

    def _deliver(self, letter: Letter, member: Member) -> bool:
        if not member.live or letter.id in member.heard or member.address == letter.sender:
            return False
        if not may_write(letter.group, member.group) or not matches(member.address, letter.wanted):
            return False
        member.heard.add(letter.id)
        member.queue.steer.append(Queued(letter.said, (), letter.id))
        return True

    def reached(self, group: str) -> list[Member]:
        """The stages that one of this group may write to."""
        return [m for m in self._members.values() if may_write(group, m.group)]

    def send(self, letter: Letter) -> list[str]:
        """Give it to all who are there and fit, and keep it for those who come. Returns who got it now."""
        self._letters.setdefault(letter.id, letter)
        return [m.address for m in self._members.values() if self._deliver(letter, m)]

    async def ask(self, sender: Member, to: str, text: str) -> str:
        """What one stage says to a question of another, beside what it is doing: nothing changes for it.

        Raises:
            LoomError: nobody of that address, or several.
        """
        wanted = pattern(sender.group, to)
        found = [m for m in self.reached(sender.group) if m is not sender and matches(m.address, wanted)]
        if len(found) != 1:
            there = (
                ", ".join(_short(m, sender.group) for m in self.reached(sender.group) if m is not sender) or "nobody"
            )
            raise LoomError(f"{len(found)} stages are {to!r}; a question goes to one. There are: {there}")
        return await found[0].answer(_short(sender, found[0].group), text)


def _short(member: Member, group: str) -> str:
    return member.address.removeprefix(f"{group}/")


def intercom(bus: Bus, member: Callable[[], Member], keep: Callable[[Letter], Awaitable[None]]) -> Tool:
    """The tool ``intercom``: list, send, ask.

    Args:
        member: the stage that has it.
        keep: writes a letter to the journal before it is sent.
    """

    async def run(arguments: dict[str, Any], turn: ToolTurn) -> str:
        me, action = member(), arguments["action"]
        if action == "list":
            rows = [f"{_short(m, me.group)}{'' if m.live else ' (done)'}" for m in bus.reached(me.group) if m is not me]
            return "\n".join(rows) or "nobody else is here"
        to, text = arguments.get("to", ""), arguments.get("text", "")
        if not text.strip():
            raise LoomError(f"{action} needs text")
        if action == "ask":
            return await bus.ask(me, to, text)
        letter = Letter(f"{turn.run_id}:{me.address}:{turn.call_id}", me.address, me.group, pattern(me.group, to), text)
        if not may_write(me.group, letter.wanted.rpartition("/")[0]) and not letter.wanted.startswith(f"{me.group}/"):
            raise LoomError(f"{to!r} is not in reach from here; intercom list says who is")
        await keep(letter)
        got = bus.send(letter)
        if got:
            return f"delivered to {', '.join(address.removeprefix(me.group + '/') for address in got)}"
        return "not_in_known_set: nobody of that address is at work; it is kept for whoever comes"

    return Tool(
        name="intercom",
        description="Other stages of this run: list them, send one a message, or ask one a question and get its answer.",
        parameters={
            "type": "object",
            "properties": {
                "action": {"type": "string", "enum": ["list", "send", "ask"]},
                "to": {"type": "string", "description": "A stage's name, group/name, * for one part, ** for any."},
                "text": {"type": "string"},
            },
            "required": ["action"],
            "additionalProperties": False,
        },
        run=run,
        repeatable=True,  # a letter has one id, and a question changes nothing
        waits=True,
        source="builtin",
    )
