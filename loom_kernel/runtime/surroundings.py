"""What a run was started with beside its inputs: Python, packages, the commit of the project."""

from __future__ import annotations

import functools
import platform
import sys
from pathlib import Path

from loom_kernel._version import __version__

MOST = 60
"""Packages that are recorded."""


def surroundings(folder: Path) -> dict[str, str]:
    """Names to versions: ``python``, ``loom_kernel``, ``git`` (the commit, where there is one) and each loaded package
    that says its version, as ``package:NAME``. Nothing is imported and no program is run for it."""
    found = {"python": platform.python_version(), "loom_kernel": __version__}
    commit = git_commit(folder)
    if commit:
        found["git"] = commit
    return found | _packages(len(sys.modules))


@functools.lru_cache(maxsize=1)
def _packages(loaded: int) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, module in sorted(sys.modules.items()):
        if "." in name or name.startswith("_") or name in sys.stdlib_module_names or name == "loom_kernel":
            continue
        version = getattr(module, "__dict__", {}).get("__version__")
        if isinstance(version, str) and len(version) < 50:
            found[f"package:{name}"] = version
            if len(found) == MOST:
                break
    return found


def git_commit(folder: Path) -> str:
    """The commit that is checked out around ``folder``; empty where that cannot be told from its files."""
    try:
        git = next((place / ".git" for place in (folder, *folder.parents) if (place / ".git").exists()), None)
        if git is None:
            return ""
        if git.is_file():  # a worktree or a submodule
            git = (git.parent / git.read_text().removeprefix("gitdir:").strip()).resolve()
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref:"):
            return head
        name = head.removeprefix("ref:").strip()
        common = git / "commondir"
        homes = [git] if not common.is_file() else [git, (git / common.read_text().strip()).resolve()]
        for home in homes:
            if (home / name).is_file():
                return (home / name).read_text().strip()
            packed = home / "packed-refs"
            if packed.is_file():
                for line in packed.read_text().splitlines():
                    if line.endswith(f" {name}"):
                        return line.split()[0]
    except OSError:
        pass
    return ""
