"""Killed at random points, a worker and its hub repeat nothing that was finished."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.e2e.kill_points import campaign


@pytest.mark.timeout(240)
def test_no_finished_step_runs_again(tmp_path: Path) -> None:
    """What was recorded as finished when the worker, the hub or both were killed is not executed afterwards."""
    seed = int(os.environ.get("LOOM_SEED") or random.randrange(1_000_000))

    found = campaign(tmp_path, kills=8, seed=seed, steps=120)

    assert not found.problems, f"seed {seed}: {found.problems}"
    assert not found.repeated_finished, f"seed {seed}: {found.repeated_finished}"
    assert found.kills == 8
    assert found.workers and found.finished >= 120
