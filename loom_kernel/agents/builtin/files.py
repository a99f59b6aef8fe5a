"""Tools for the project's files: read, list, search, write, edit."""

from __future__ import annotations

import asyncio
import difflib
import fnmatch
import re
from typing import Any

from loom_kernel.agents.tools import Approval, Tool, ToolTurn
from loom_kernel.project.access import TEXT_BYTES, ProjectAccess, ProjectError

LINES = 2_000
"""Lines of a file in one answer."""

FOUND = 200
"""Places that a search names."""


def _of(turn: ToolTurn) -> ProjectAccess:
    return ProjectAccess(turn.cwd)


def _object(required: tuple[str, ...], **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


_PATH = {"type": "string", "description": "Relative to the project's folder."}


async def _read(arguments: dict[str, Any], turn: ToolTurn) -> str:
    text = await asyncio.to_thread(_of(turn).read, arguments["path"])
    lines = text.splitlines()
    first = arguments.get("first_line", 1)
    last = min(arguments.get("last_line", len(lines)), first + LINES - 1, len(lines))
    if first > len(lines) and lines:
        raise ProjectError(f"{arguments['path']!r} has {len(lines)} lines")
    shown = "\n".join(f"{n}\t{lines[n - 1]}" for n in range(first, last + 1))
    rest = f"\n[{len(lines) - last} more lines; ask for first_line={last + 1}]" if last < len(lines) else ""
    return (shown + rest) or "(empty)"


async def _list(arguments: dict[str, Any], turn: ToolTurn) -> str:
    access = _of(turn)
    pattern = arguments.get("glob", "*")

    def find() -> list[str]:
        paths = (access.relative(path) for path in access.walk())
        return [p for p in paths if _matches(p, pattern)][: FOUND + 1]

    found = await asyncio.to_thread(find)
    more = f"\n[more than {FOUND}; narrow it with glob]" if len(found) > FOUND else ""
    return ("\n".join(found[:FOUND]) + more) or "no file"


async def _search(arguments: dict[str, Any], turn: ToolTurn) -> str:
    access = _of(turn)
    try:
        wanted = re.compile(arguments["pattern"] if arguments.get("regex") else re.escape(arguments["pattern"]))
    except re.error as error:
        raise ProjectError(f"{arguments['pattern']!r} is no regular expression: {error}") from None

    def find() -> list[str]:
        found: list[str] = []
        for path in access.walk():
            name = access.relative(path)
            if not _matches(name, arguments.get("glob", "*")) or path.stat().st_size > TEXT_BYTES:
                continue
            try:
                text = path.read_text(encoding="utf-8")
            except (UnicodeDecodeError, OSError):
                continue
            for n, line in enumerate(text.splitlines(), start=1):
                if wanted.search(line):
                    found.append(f"{name}:{n}: {line.strip()[:300]}")
                    if len(found) > FOUND:
                        return found
        return found

    found = await asyncio.to_thread(find)
    more = f"\n[more than {FOUND}; narrow it]" if len(found) > FOUND else ""
    return ("\n".join(found[:FOUND]) + more) or "nothing found"


def _matches(path: str, glob: str) -> bool:
    return fnmatch.fnmatch(path, glob) or fnmatch.fnmatch(path.rpartition("/")[2], glob)


def _free(path: str, turn: ToolTurn) -> None:
    """Raises: ProjectError: the stage writes that file itself."""
    if turn.reserved is not None and _of(turn).path(path) == turn.reserved.resolve():
        raise ProjectError(f"{path!r} is written with your answer when you are done; say in it what should stand there")


async def _write(arguments: dict[str, Any], turn: ToolTurn) -> str:
    _free(arguments["path"], turn)
    await asyncio.to_thread(_of(turn).write, arguments["path"], arguments["text"])
    return f"wrote {arguments['path']} ({len(arguments['text'].splitlines())} lines)"


async def _edit(arguments: dict[str, Any], turn: ToolTurn) -> str:
    access = _of(turn)
    _free(arguments["path"], turn)

    def edit() -> str:
        text = access.read(arguments["path"])
        times = text.count(arguments["old"])
        if times != 1:
            what = "is not in it" if times == 0 else f"is in it {times} times; give more around it"
            raise ProjectError(f"{arguments['path']!r}: the old text {what}")
        new = text.replace(arguments["old"], arguments["new"], 1)
        access.write(arguments["path"], new)
        return "\n".join(difflib.unified_diff(text.splitlines(), new.splitlines(), lineterm="", n=2))

    return await asyncio.to_thread(edit)


def _shown_edit(arguments: dict[str, Any]) -> str:
    old, new = str(arguments.get("old", "")), str(arguments.get("new", ""))
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), "before", "after", lineterm="", n=2)
    return f"{arguments.get('path')}\n" + "\n".join(lines)


def _tool(
    name: str,
    description: str,
    parameters: dict[str, Any],
    run: Any,
    *,
    approval: Approval = "never",
    repeatable: bool = True,
    show: Any = None,
) -> Tool:
    return Tool(
        name=name,
        description=description,
        parameters=parameters,
        run=run,
        repeatable=repeatable,
        approval=approval,
        source="builtin",
        show=show,
    )


READ = _tool(
    "read",
    "Read a text file of the project, with line numbers.",
    _object(
        ("path",),
        path=_PATH,
        first_line={"type": "integer", "minimum": 1},
        last_line={"type": "integer", "minimum": 1},
    ),
    _read,
)
LIST = _tool(
    "list",
    "List files of the project.",
    _object((), glob={"type": "string", "description": "Such as *.py or src/*."}),
    _list,
)
SEARCH = _tool(
    "search",
    "Find lines in the project's text files.",
    _object(
        ("pattern",),
        pattern={"type": "string", "minLength": 1},
        regex={"type": "boolean", "description": "The pattern is a regular expression."},
        glob={"type": "string"},
    ),
    _search,
)
WRITE = _tool(
    "write",
    "Write a text file of the project, in the place of what stands there.",
    _object(("path", "text"), path=_PATH, text={"type": "string"}),
    _write,
    approval="ask",
    show=lambda a: f"{a.get('path')}\n\n{a.get('text', '')}",
)
EDIT = _tool(
    "edit",
    "Replace one passage of a text file. The old text must stand in it exactly once.",
    _object(("path", "old", "new"), path=_PATH, old={"type": "string", "minLength": 1}, new={"type": "string"}),
    _edit,
    approval="ask",
    repeatable=False,
    show=_shown_edit,
)
