"""What earlier versions recorded replays against its definition for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from loom_kernel.testing import replay
from tests.histories import flows

HISTORIES = sorted(Path(__file__).parent.glob("*.jsonl"))


@pytest.mark.parametrize("history", HISTORIES, ids=lambda path: path.stem)
def test_a_recorded_run_replays(history: Path) -> None:
    """Whole, from the record alone, without a step that runs."""
    flows.ran.clear()
    report = replay(history, getattr(flows, history.stem.partition("-")[0]))
    assert report.ok and report.calls > 0
    assert flows.ran == []


def test_what_was_recorded_is_all_there() -> None:
    """Each workflow has a history, and what only waits, waits for the same."""
    from tests.histories.record import NAMES

    assert {path.stem for path in HISTORIES} >= set(NAMES)
    [parent] = replay(Path(__file__).parent / "parent.jsonl", flows.parent).children
    assert parent.workflow == "sequence" and parent.calls == 4
