"""The journal behind a hub keeps the same contract as the others, and some of it through the hub's death."""

from __future__ import annotations

from pathlib import Path

import pytest

from loom_kernel.journal.abc import RunJournal
from loom_kernel.journal.hub.client import HubJournal
from loom_kernel.testing.journal_conformance import ANN, RunJournalConformance


class TestHubJournal(RunJournalConformance):
    """A real hub process a test."""

    persistent = True

    @pytest.fixture(autouse=True)
    def _same_folder(self, _own_folder: None, folder: Path) -> None:
        # The fixture of this folder's tests ends the hub.
        self.folder = folder

    async def open_journal(self) -> RunJournal:
        return await HubJournal.open(self.folder, ANN)
