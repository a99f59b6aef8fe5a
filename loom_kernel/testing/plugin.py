"""The fixture ``loom_replay``. In a ``conftest.py``: ``from loom_kernel.testing import loom_replay``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from loom_kernel.authoring.workflow import WorkflowDefinition
from loom_kernel.engine.replaying import Replay
from loom_kernel.journal.abc import JournalEntry
from loom_kernel.runtime.run import Run


@pytest.fixture
def loom_replay(request: pytest.FixtureRequest) -> Callable[..., Replay]:
    """:func:`loom_kernel.testing.replay`, with paths that are read from the folder of the test's file."""
    from loom_kernel.testing.replays import replay

    folder = request.path.parent

    def replaying(
        run_or_history: Run[Any] | str | Path | Iterable[JournalEntry],
        definition: WorkflowDefinition[..., Any],
        **options: Any,
    ) -> Replay:
        if isinstance(run_or_history, (str, Path)):
            run_or_history = folder / run_or_history
        return replay(run_or_history, definition, **options)

    return replaying
