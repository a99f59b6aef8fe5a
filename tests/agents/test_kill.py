"""A worker that is killed in the middle of an answer, or of a tool: the real hub, litellm and a server that counts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loom_kernel.testing.fake_openai import FakeOpenAI

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def fake() -> Iterator[FakeOpenAI]:
    with FakeOpenAI(leftovers=False) as server:
        yield server


class Shop:
    """The workflow's process, and another after it."""

    def __init__(self, folder: Path, fake: FakeOpenAI) -> None:
        self.folder, self.fake = folder, fake
        self.env = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "LOOM_HOME": str(folder / ".loom"),
            "LOOM_MODEL": "openai/test-model",
            "OPENAI_API_KEY": "sk-test-0123456789abcdef",
            "OPENAI_API_BASE": fake.base_url,
            "EFFECTS": str(folder / "effects.txt"),
        }

    def start(self, *arguments: str, **env: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.agents.kill_flow", *arguments]
        return subprocess.Popen(command, cwd=ROOT, env={**self.env, **env}, stdout=subprocess.PIPE, text=True)

    def kill_when(self, condition: Callable[[], bool], **env: str) -> str:
        """Start, kill -9 as soon as something holds, and give the run's id."""
        process = self.start(**env)
        assert process.stdout is not None
        run_id = process.stdout.readline().strip()
        end = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < end
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        return run_id

    def resume(self, run_id: str) -> str:
        process = self.start(run_id)
        out, _ = process.communicate(timeout=90)
        assert process.returncode == 0, out
        return out.splitlines()[-1]

    def effects(self) -> list[str]:
        file = self.folder / "effects.txt"
        return file.read_text().split() if file.exists() else []

    def messages(self, run_id: str) -> list[tuple[str, str]]:
        """The transcript as SQL has it."""
        query = f"select role, text from messages where run_id = '{run_id}' order by seq"
        done = subprocess.run(
            [sys.executable, "-m", "loom_kernel.cli.main", "sql", "--json", query],
            cwd=self.folder, env=self.env, capture_output=True, text=True, check=True,
        )  # fmt: skip
        import json

        return [(row["role"], row["text"]) for row in json.loads(done.stdout)]


def last(request: Any) -> str:
    content = request["messages"][-1].get("content") or ""
    return str(content)


def prompts(fake: FakeOpenAI, text: str) -> int:
    """How often a request ended with this prompt."""
    return sum(last(request) == text for request in fake.requests)


def scripted(fake: FakeOpenAI, **slow: Any) -> None:
    for_ever = {"times": float("inf")}
    fake.when(lambda r: last(r) == "get apples").call_tool("buy", {"what": "apples"}, id="a", **for_ever)
    fake.when(lambda r: "bought apples" in last(r)).reply("apples are here", **for_ever)
    fake.when(lambda r: "nobody knows" in last(r)).reply("I looked: it is done", **for_ever)
    fake.when(lambda r: last(r) == "get pears").reply("one two three four five six seven eight", **{**for_ever, **slow})


def test_killed_in_the_middle_of_an_answer_only_that_turn_is_asked_again(tmp_path: Path, fake: FakeOpenAI) -> None:
    """The first prompt, its tool and its answer are not repeated; the transcript is whole."""
    scripted(fake, chunk_s=0.25)
    shop = Shop(tmp_path, fake)
    run_id = shop.kill_when(lambda: prompts(fake, "get pears") == 1)
    asked = len(fake.requests)
    assert shop.resume(run_id) == "['apples are here', 'one two three four five six seven eight']"
    assert len(fake.requests) == asked + 1  # the open turn, once more
    assert prompts(fake, "get apples") == 1
    assert shop.effects() == ["apples"]
    roles = [role for role, _ in shop.messages(run_id)]
    assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"]


def test_killed_in_the_middle_of_a_tool_it_is_not_run_again(tmp_path: Path, fake: FakeOpenAI) -> None:
    """Nobody knows whether it took effect; the model is told and decides."""
    scripted(fake)
    shop = Shop(tmp_path, fake)
    run_id = shop.kill_when(lambda: shop.effects() == ["apples"], SLOW="30")
    assert shop.resume(run_id) == "['I looked: it is done', 'one two three four five six seven eight']"
    assert shop.effects() == ["apples"]
    assert prompts(fake, "get apples") == 1
    said = shop.messages(run_id)
    assert [role for role, _ in said] == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert "nobody knows" in said[2][1]
