"""The interpreter's settings while runs are live."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest

from loom_kernel.runtime.tuning import SWITCH_INTERVAL_S, YOUNG, Tuning


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    """Give back what was set."""
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(0.005)
    gc.set_threshold(700, 10, 10)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*thresholds)


def test_set_and_restored() -> None:
    """For as long as a run is live, however often that is said."""
    tuning = Tuning()
    tuning.begin()
    tuning.begin()
    assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL_S)
    assert gc.get_threshold() == (YOUNG, 10, 10)
    tuning.end()
    tuning.end()
    assert sys.getswitchinterval() == pytest.approx(0.005)
    assert gc.get_threshold() == (700, 10, 10)


def test_what_others_set_stays() -> None:
    """Before and meanwhile; a collector that is switched off stays off."""
    gc.set_threshold(0, 10, 10)
    sys.setswitchinterval(0.0005)
    tuning = Tuning()
    tuning.begin()
    assert (sys.getswitchinterval(), gc.get_threshold()[0]) == (pytest.approx(0.0005), 0)
    tuning.end()
    gc.set_threshold(700, 10, 10)
    sys.setswitchinterval(0.005)
    tuning.begin()
    gc.set_threshold(5_000, 5, 5)
    sys.setswitchinterval(0.01)
    tuning.end()
    assert (sys.getswitchinterval(), gc.get_threshold()) == (pytest.approx(0.01), (5_000, 5, 5))
