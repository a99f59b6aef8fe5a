"""What a stage leaves behind: its text cut to size, its file, its transcript."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from loom_kernel.agents.session import Message
from loom_kernel.authoring.agents import Artifact, MaxOutput

EMPTY = "WARNING: the stage artifact is empty; search the companion transcript for this stage's work."


def cut(text: str, limit: MaxOutput) -> str:
    """The text within its limits: lines first, then bytes at the end of a character, and a note where it was cut."""
    lines = text.splitlines(keepends=True)
    kept = "".join(lines[: limit.lines]) if len(lines) > limit.lines else text
    data = kept.encode()
    if len(data) > limit.bytes:
        kept = data[: limit.bytes].decode(errors="ignore")
    if kept == text:
        return text
    return f"{kept}\n\n[cut: {len(kept.encode())} of {len(text.encode())} bytes, {min(len(lines), limit.lines)} of {len(lines)} lines]"


def supplemented(answers: Sequence[str]) -> str:
    """The answers of one prompt in order: the first as it is, later ones under headings."""
    if not answers:
        return ""
    return answers[0] + "".join(f"\n\n## Supplement {n}\n\n{text}" for n, text in enumerate(answers[1:], start=1))


def write(path: Path, text: str) -> None:
    """Write a file in one move, so that nobody finds half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def transcript(stage: str, messages: Sequence[Message]) -> str:
    """A session as a person reads it."""
    parts = [f"# {stage}"]
    for message in messages:
        head = (
            message.role
            + (f" ({message.kind})" if message.kind else "")
            + (f", {message.model}" if message.model else "")
        )
        body = [message.text] if message.text else []
        body += [f"-> {call.name}({call.arguments})" for call in message.tool_calls]
        parts.append(f"## {head}\n\n" + "\n".join(body))
    return "\n\n".join(parts) + "\n"


def safe(name: str) -> str:
    """A name as a file may have it."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "stage"


def transcript_path(folder: Path, session: str) -> Path:
    """Where a session's transcript lies in a run's folder."""
    return folder / f"{safe(session)}.md"


def receipt(output: Path, transcript: Path | None, text: str) -> str:
    """What stands for a text that is only in its file."""
    lines = [f"Output: {output} ({len(text.encode())} bytes, {len(text.splitlines())} lines)"]
    if transcript is not None:
        lines.append(f"Transcript: {transcript}")
    if not text.strip():
        lines.append(EMPTY)
    return "\n".join(lines)


def collected(stage: str, output: Path | None, transcript: Path | None, *, automatic: bool) -> tuple[Artifact, ...]:
    """The files as results name them."""
    found = []
    if output is not None:
        found.append(Artifact(kind="output", path=str(output), task_name=stage))
    if transcript is not None and automatic:
        found.append(Artifact(kind="session", path=str(transcript), task_name=stage))
    return tuple(found)
