"""Fixtures shared by all rooms: a project folder of its own for each test, and a browser where there is one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

OURS = {
    "LOOM_ARTIFACTS",
    "LOOM_LOAD_SECONDS",
    "LOOM_SEED",
    "LOOM_REQUIRE_BROWSER",
    "LOOM_TEST_KERNEL_PYTHON",
    "LOOM_VERBOSE",
}
"""Variables that steer the tests themselves; every other ``LOOM_*`` would change what is tested."""


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the machine reaches a test."""
    for name in list(os.environ):
        if name.startswith("LOOM_") and name not in OURS:
            monkeypatch.delenv(name)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty project folder: the test's working folder and journal, without a hub when the test ends."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("LOOM_HOME", str(folder / ".loom"))
    close_runtime()
    yield folder
    close_runtime()
    stop_hub(folder / ".loom")


def close_runtime() -> None:
    """Settings are read once per process; the next use reads them anew."""
    if (runtime := sys.modules.get("loom_kernel.runtime")) is not None:
        runtime.close()


def stop_hub(home: Path, patience_s: float = 5.0) -> None:
    """End the hub of the journal in ``home``, if one runs: politely, then not."""
    try:
        pid = int(json.loads((home / "hub.json").read_text())["pid"])
        command = Path(f"/proc/{pid}/cmdline").read_bytes() if Path("/proc").is_dir() else b"loom_kernel"
    except (OSError, ValueError, KeyError):
        return
    if b"loom_kernel" not in command:  # the number belongs to somebody else by now
        return
    try:
        os.kill(pid, signal.SIGTERM)
        end = time.monotonic() + patience_s
        while time.monotonic() < end:
            os.kill(pid, 0)
            time.sleep(0.02)
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


@pytest.fixture(scope="session")
def artifacts() -> Path:
    """Where screenshots and logs are kept after the tests."""
    folder = Path(os.environ.get("LOOM_ARTIFACTS") or Path(__file__).parent / "artifacts")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a Chromium. Without one the test is skipped, or fails where ``LOOM_REQUIRE_BROWSER`` is set."""
    for name in (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"):
        if name and (found := shutil.which(name)):
            return found
    if os.environ.get("LOOM_REQUIRE_BROWSER"):
        pytest.fail("no Chromium on this machine, and LOOM_REQUIRE_BROWSER asks for one")
    pytest.skip("no Chromium on this machine")
