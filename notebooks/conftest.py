"""``pytest --nbval notebooks/`` needs nothing else: answers, test mode and the sanitize file are set here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent
collect_ignore = ["out"]  # what the notebooks and the demo write
SANITIZE = HERE.parent / "loom_kernel" / "testing" / "nbval_sanitize.cfg"


def pytest_configure(config: pytest.Config) -> None:
    """Kernels inherit the environment; nbval reads its option when it collects."""
    os.environ.setdefault("LOOM_TEST", "1")
    os.environ.setdefault("LOOM_ANSWERS", str(HERE / "answers.yaml"))
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    if getattr(config.option, "nbval_sanitize_with", None) is None:
        config.option.nbval_sanitize_with = str(SANITIZE)
