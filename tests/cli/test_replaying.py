"""``loom replay`` on a real journal: its lines, its JSON and its exit status."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.test_comparing import Loom, first, loom
from tests.cli.test_main import FLOWS

__all__ = ["first", "loom"]


def test_replaying_one_run(loom: Loom, first: str, project: Path) -> None:
    """Zero where it replays whole; one, with both sides, where it does not; the journal is as before."""
    _, before, _ = loom("sql", "select count(*) from events", "--csv")
    assert loom("replay", first, "flows.py") == (0, f"total {first} replays whole: 1 calls\n", "")
    assert loom("replay", first[:6])[0] == 0  # the record says which file its calls were made in
    assert loom("replay", first, "--save", "kept.jsonl")[0] == 0
    assert loom("sql", "select count(*) from events", "--csv")[1] == before
    (project / "flows.py").write_text(FLOWS.replace("add(x, 2)", "add(x, 3)"))
    status, out, _ = loom("replay", first, "flows.py")
    assert status == 1 and "recorded: step add(a=1, b=2) at flows.py, line 11" in out
    assert "now:      step add(a=1, b=3) at flows.py, line 11" in out
    status, out, _ = loom("replay", "kept.jsonl", "flows.py", "--json")
    assert status == 1 and json.loads(out)["divergence"]["now"]["arguments"] == {"a": 1, "b": 3}


def test_replaying_every_run(loom: Loom, first: str, project: Path) -> None:
    """Each run of the workflows in the files, and how many replay."""
    loom("run", "flows.py:failing")
    status, out, _ = loom("replay", "--all", "flows.py")
    assert status == 0 and out.endswith("2 of 2 runs replay whole\n")
    (project / "flows.py").write_text(FLOWS.replace('await add("a", 1)', "pass"))
    status, out, _ = loom("replay", "--all", "flows.py", "--json")
    assert status == 1 and sorted(run["ok"] for run in json.loads(out)["runs"]) == [False, True]


def test_what_is_missing_is_said(loom: Loom, first: str, project: Path) -> None:
    """No file that defines it; options that do not go together."""
    (project / "flows.py").rename(project / "other.py")
    assert "say which file defines its workflow" in loom("replay", first)[2]
    assert "--limit goes with --all" in loom("replay", first, "--limit", "3")[2]
    assert "there is no file" in loom("replay", first, "nothing.py")[2]
