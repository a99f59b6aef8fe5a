"""What the command line's tests share."""

from __future__ import annotations

import pytest

from loom_kernel.authoring.registry import registry


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test's file defines is forgotten."""
    monkeypatch.setattr(registry, "_definitions", {})
