"""Identifiers: one ``NewType`` each, and the source that makes new ones."""

from __future__ import annotations

import random
import secrets
import uuid
from typing import NewType

RunId = NewType("RunId", str)
"""Names a run: twelve lower-case letters and digits, e.g. ``"k3v9t2m4x7qa"``."""

NodeId = NewType("NodeId", str)
"""Names a durable call within its run. It *is* the call's replay key, so it is the same after a restart."""

HolderId = NewType("HolderId", str)
"""Names a worker process that may hold leases."""

_ALPHABET = "abcdefghjkmnpqrstvwxyz23456789"  # no i, l, o, u, 0, 1: ids are read aloud and retyped
_LENGTH = 12


class Ids:
    """Makes ids; seeded ones repeat, so that a notebook under ``LOOM_TEST=1`` prints the same twice."""

    def __init__(self, seed: int | None = None) -> None:
        self._random: random.Random = secrets.SystemRandom() if seed is None else random.Random(seed)

    def run_id(self) -> RunId:
        return RunId("".join(self._random.choice(_ALPHABET) for _ in range(_LENGTH)))

    def holder_id(self) -> HolderId:
        return HolderId(uuid.UUID(int=self._random.getrandbits(128), version=4).hex)
