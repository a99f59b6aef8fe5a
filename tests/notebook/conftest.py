"""Kernels for the tests of this room: one with a person in front of it, one without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.notebook.kernel import Kernel, kernels


@pytest.fixture
def kernel(project: Path) -> Iterator[Kernel]:
    """A kernel with the extension loaded and a person who can answer."""
    yield from kernels(project)


@pytest.fixture
def headless(project: Path) -> Iterator[Kernel]:
    """A kernel with the extension loaded, driven by a program: nobody can answer."""
    yield from kernels(project, interactive=False)
