"""Two scripts, two workers and the command line on one journal for a short while; ten minutes are run by hand."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from tests.e2e.mixed_load import load

SECONDS = 20.0


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_what_must_hold_holds_under_mixed_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """While the hub, workers and scripts are killed; the seed is printed and ``LOOM_SEED`` sets it."""
    seed = int(os.environ.get("LOOM_SEED") or random.randrange(1_000_000))
    figures = load(tmp_path, float(os.environ.get("LOOM_LOAD_SECONDS") or SECONDS), seed)
    with capsys.disabled():
        print(f"\n  seed {seed}: {json.dumps({name: figures[name] for name in ('runs', 'events', 'hub kills')})}")

    assert figures["problems"] == []
    assert figures["runs"] > 10  # a thousand on a quiet machine
    assert figures["hub kills"] >= 2
