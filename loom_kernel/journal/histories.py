"""Recorded runs as a file: one event a line, then the large values that they name. For replays; nothing is restored by it."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec import Raw

from loom_kernel.errors import LoomError
from loom_kernel.journal.abc import JournalEntry
from loom_kernel.journal.memory_store import MemoryRunJournal


class _Line(msgspec.Struct, omit_defaults=True):
    run: str = ""
    seq: int = 0
    type: str = ""
    event: Raw = Raw(b"{}")
    node: str | None = None
    key: str | None = None
    at: int = 0
    blob: str = ""
    data: str = ""


def dump(entries: Iterable[JournalEntry], blobs: Mapping[str, bytes] | None = None) -> str:
    """The lines of a file; the first event is the run's that it is about, its children's runs may follow."""
    lines = [_Line(e.run_id, e.seq, e.type, Raw(bytes(e.payload)), e.node_id, e.key, e.created_at) for e in entries] + [
        _Line(blob=sha256, data=base64.b64encode(data).decode()) for sha256, data in (blobs or {}).items()
    ]
    return "".join(msgspec.json.encode(line).decode() + "\n" for line in lines)


def load(path: Path) -> tuple[list[JournalEntry], dict[str, bytes]]:
    """The events and large values of a file.

    Raises:
        LoomError: it cannot be read, or is no such file; the sentence names the line.
    """
    entries: list[JournalEntry] = []
    blobs: dict[str, bytes] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise LoomError(f"the history {path} cannot be read: {error}") from None
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            line = msgspec.json.decode(text, type=_Line)
            if line.blob:
                blobs[line.blob] = base64.b64decode(line.data, validate=True)
                continue
            payload = bytes(line.event)
            entry = JournalEntry(len(entries) + 1, line.run, line.seq, line.key, line.type, line.node, payload, line.at)
            entry.event  # noqa: B018  # it is known, and its fields fit
            entries.append(entry)
        except (ValueError, KeyError, msgspec.MsgspecError) as error:
            raise LoomError(f"line {number} of the history {path} is no event: {error}") from None
    if not entries:
        raise LoomError(f"the history {path} has no events")
    return entries, blobs


def journal_of(entries: Iterable[JournalEntry], blobs: Mapping[str, bytes] | None = None) -> MemoryRunJournal:
    """A journal in memory that can be read and has these; no run of it can be taken."""
    journal = MemoryRunJournal()
    journal.hold(entries, blobs or {})
    return journal
