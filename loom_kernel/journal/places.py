"""Where in a person's SQL an error is: the line, with a caret under the place."""

from __future__ import annotations

import re

WIDTH = 100
"""Characters of a line that are shown around the place."""

_LINE = re.compile(r"\n+LINE (\d+): (.*)\n( *)(\^+)")
_NAMED = (
    re.compile(r"[Tt]able (?:with name )?[\"']?([\w.]+)[\"']? (?:does not exist|not found)"),
    re.compile(r"there is no (?:table|artifact) '([^']+)'"),
    re.compile(r"column named? \"([^\"]+)\""),
    re.compile(r"column \"([^\"]+)\""),
    re.compile(r"[Ff]unction with name \"?(\w+)\"? does not exist"),
    re.compile(r"[Nn]o function matches the given name and argument types '(\w+)\("),
    re.compile(r"table \"([^\"]+)\""),
    re.compile(r"variable '(\w+)'"),
)
_NOT_CODE = re.compile(r"'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/", re.DOTALL)


def pointed(sentence: str, sql: str) -> str:
    """The sentence with the line that it is about, as the person wrote it, and a caret; as it is where there is no telling."""
    found = _LINE.search(sentence)
    head = sentence
    if found is not None:
        head = sentence[: found.start()] + sentence[found.end() :]
        place = _told(found, sql)
        if place is not None:
            return _drawn(head, sql, *place)
    place = _named(head, sql)
    return _drawn(head, sql, *place) if place is not None else head.strip()


def _told(found: re.Match[str], sql: str) -> tuple[int, int, int] | None:
    """Line (from 0), column and width, where DuckDB's line is one of the person's: ours around it shift its number."""
    prefix = len(f"LINE {found[1]}: ")
    shown, column, width = found[2], len(found[3]) - prefix, len(found[4])
    cut = shown.startswith("...")
    core = shown.removeprefix("...").removesuffix("...")
    if not core.strip():
        return None
    lines = sql.split("\n")
    near = sorted(range(len(lines)), key=lambda n: abs(n + 1 - int(found[1])))
    for n in near:
        at = lines[n].find(core)
        if at >= 0:
            return n, at + column - (3 if cut else 0), width
    return None


def _named(sentence: str, sql: str) -> tuple[int, int, int] | None:
    """The place of the name that the sentence is about."""
    code = _NOT_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), sql)
    for pattern in _NAMED:
        for named in pattern.finditer(sentence):
            last = named[1].rpartition(".")[2]
            for text in (code, sql):  # a name in quotes, such as an artifact's, stands outside of the code
                at = re.search(rf"(?<!\w){re.escape(last)}(?!\w)", text, re.IGNORECASE)
                if at is not None:
                    line = sql.count("\n", 0, at.start())
                    return line, at.start() - (sql.rfind("\n", 0, at.start()) + 1), len(last)
    return None


def _drawn(head: str, sql: str, line: int, column: int, width: int) -> str:
    text = sql.split("\n")[line].replace("\t", " ")
    column = min(max(column, 0), len(text))
    start = max(0, column - WIDTH * 2 // 3) if len(text) > WIDTH else 0
    shown = text[start : start + WIDTH]
    before, after = "…" if start else "", "…" if start + WIDTH < len(text) else ""
    prefix = f"LINE {line + 1}: {before}"
    width = max(1, min(width, len(shown) - (column - start)))
    return f"{head.strip()}\n\n{prefix}{shown}{after}\n{' ' * (len(prefix) + column - start)}{'^' * width}"
