"""Lines of files that a regular expression finds.

Also a program: some expressions take for ever on some lines, and Python holds its lock meanwhile, so those of a model are run
in a process that can be killed. It imports nothing of ours, so that it starts in no time.
"""

import json
import os
import re
import sys

MAX_BYTES = 1 << 20
"""Larger files are passed over."""

LINE = 300
"""Characters of a line that are told."""


def find(root: str, names: list[str], pattern: str, most: int) -> list[str]:
    """``name:line: text`` for each line found, in order, and one more than ``most`` if there are more."""
    wanted = re.compile(pattern)
    found: list[str] = []
    for name in names:
        try:
            path = os.path.join(root, name)
            if os.path.getsize(path) > MAX_BYTES:
                continue
            with open(path, encoding="utf-8") as file:
                text = file.read()
        except (UnicodeDecodeError, OSError):  # no text, or gone meanwhile
            continue
        if "\0" in text:
            continue
        for n, line in enumerate(text.split("\n"), start=1):
            if wanted.search(line):
                found.append(f"{name}:{n}: {line.strip()[:LINE]}")
                if len(found) > most:
                    return found
    return found


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as job:
        lines = find(**json.load(job))
    sys.stdout.write(json.dumps(lines))
