"""Prompt templates and skills: texts in files, asked for by ``/name arguments`` and ``/skill:name``.

Templates are ``<agent folder>/prompts/NAME.md``, in which ``$ARGUMENTS`` stands for what follows the name; skills are
``<agent folder>/skills/NAME/SKILL.md``, told with their folder so that a stage finds what lies beside them.
"""

from __future__ import annotations

import re
from pathlib import Path

from loom_kernel.errors import DefinitionError

_CALL = re.compile(r"^/(skill:)?([A-Za-z0-9][A-Za-z0-9_-]*)(?:\s+(.*))?$", re.S)


def expand(text: str, folder: Path | None) -> str:
    """The text with what it asks for; one that asks for nothing is as it was.

    Raises:
        DefinitionError: there is no such template or skill; those that there are are named.
    """
    asked = _CALL.match(text.strip())
    if asked is None:
        return text
    skill, name, arguments = bool(asked[1]), asked[2], asked[3] or ""
    kind = "skill" if skill else "prompt template"
    place = (folder or Path(".loom/agent")) / ("skills" if skill else "prompts")
    file = place / name / "SKILL.md" if skill else place / f"{name}.md"
    if not file.is_file():
        there = sorted(p.parent.name if skill else p.stem for p in place.glob("*/SKILL.md" if skill else "*.md"))
        raise DefinitionError(f"there is no {kind} {name!r} in {place}; there are: {', '.join(there) or 'none'}")
    said = _body(file.read_text(encoding="utf-8"))
    if skill:
        files = sorted(str(p.relative_to(file.parent)) for p in file.parent.rglob("*") if p.is_file() and p != file)
        attached = f"\n\nFiles of this skill, in {file.parent}: {', '.join(files)}" if files else ""
        return f"{said}{attached}" + (f"\n\n{arguments}" if arguments else "")
    if "$ARGUMENTS" in said:
        return said.replace("$ARGUMENTS", arguments)
    return said + (f"\n\n{arguments}" if arguments else "")


def _body(text: str) -> str:
    """Without the head between ``---`` lines."""
    return re.sub(r"\A---\n.*?\n---\n", "", text, count=1, flags=re.S).strip()
