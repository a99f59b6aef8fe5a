"""Tools for the project's files: read, list, search, write, edit."""

from __future__ import annotations

import asyncio
import difflib
import fnmatch
import json
import re
import sys
import tempfile
from typing import Any

from loom_kernel.agents.tools import Approval, Tool, ToolTurn
from loom_kernel.project import matching
from loom_kernel.project.access import ProjectAccess, ProjectError

LINES = 2_000
"""Lines of a file in one answer."""

FOUND = 200
"""Places that a search names."""

SEARCH_S = 10.0
"""How long a regular expression is looked for."""


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
    pattern, glob = arguments["pattern"], arguments.get("glob", "*")
    if arguments.get("regex"):
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise ProjectError(f"{pattern!r} is no regular expression: {error}") from None

    def names() -> list[str]:
        return [name for path in access.walk() if _matches(name := access.relative(path), glob)]

    job = {"root": str(access.root), "names": await asyncio.to_thread(names), "pattern": pattern, "most": FOUND}
    if arguments.get("regex"):
        found = await _found_elsewhere(access, job)
    else:
        found = await asyncio.to_thread(matching.find, **{**job, "pattern": re.escape(pattern)})
    more = f"\n[more than {FOUND}; narrow it]" if len(found) > FOUND else ""
    return ("\n".join(found[:FOUND]) + more) or "nothing found"


async def _found_elsewhere(access: ProjectAccess, job: dict[str, Any]) -> list[str]:
    """What a regular expression finds, in a process of its own with a limit of time; see :mod:`.matching`."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(job, file)
        file.flush()
        done = await access.run([sys.executable, "-I", "-S", matching.__file__, file.name], timeout_s=SEARCH_S)
    if done.timed_out:
        raise ProjectError(f"{job['pattern']!r} was looked for longer than {SEARCH_S:g} s; use a simpler one, or glob")
    if done.exit_code != 0:
        raise ProjectError(f"{job['pattern']!r} could not be looked for: {done.stderr.strip().splitlines()[-1:]}")
    found: list[str] = json.loads(done.stdout)
    return found


def _matches(path: str, glob: str) -> bool:
    glob = glob.replace("**/", "")  # a * goes over folders already, and ** may stand for none
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
        old, replacement = arguments["old"], arguments["new"]
        if "\r\n" in text:  # a model says \n; the file keeps its own line ends
            if old not in text:
                old = _with_crlf(old)
            if text.count("\r\n") == text.count("\n"):
                replacement = _with_crlf(replacement)
        times = text.count(old)
        if times != 1:
            what = "is not in it" if times == 0 else f"is in it {times} times; give more around it"
            raise ProjectError(f"{arguments['path']!r}: the old text {what}")
        new = text.replace(old, replacement, 1)
        access.write(arguments["path"], new)
        return "\n".join(difflib.unified_diff(text.splitlines(), new.splitlines(), lineterm="", n=2))

    return await asyncio.to_thread(edit)


def _with_crlf(text: str) -> str:
    return re.sub(r"(?<!\r)\n", "\r\n", text)


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
