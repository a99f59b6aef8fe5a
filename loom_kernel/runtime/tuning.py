"""Settings of the interpreter while runs are live. What somebody else sets meanwhile is left alone."""

from __future__ import annotations

import gc
import sys

SWITCH_INTERVAL_S = 0.001
"""So that a cell which computes does not hold up steps for five milliseconds at each hand-over."""

YOUNG = 10_000
"""New objects before the garbage collector looks at them. A run in full flow makes thousands that live until it ends; at
the usual 700 a third of a wide fan-out's time goes into looking at everything the kernel has, again and again."""


class Tuning:
    """On the loop thread."""

    def __init__(self) -> None:
        self._interval: float | None = None
        self._young: int | None = None

    def begin(self) -> None:
        """Runs are live."""
        if self._interval is None and sys.getswitchinterval() > SWITCH_INTERVAL_S:
            self._interval = sys.getswitchinterval()
            sys.setswitchinterval(SWITCH_INTERVAL_S)
        young, *older = gc.get_threshold()
        if self._young is None and 0 < young < YOUNG:
            self._young = young
            gc.set_threshold(YOUNG, *older)

    def end(self) -> None:
        """None is."""
        if self._interval is not None:
            if abs(sys.getswitchinterval() - SWITCH_INTERVAL_S) < 1e-6:
                sys.setswitchinterval(self._interval)
            self._interval = None
        if self._young is not None:
            young, *older = gc.get_threshold()
            if young == YOUNG:
                gc.set_threshold(self._young, *older)
            self._young = None
