"""Where results of earlier runs are found again: an index of who has them, in a stream of the project's own.

An entry only points to the event in which a run recorded the result, so that nothing is kept twice, a result goes with
its run, and one that is gone is simply not found. Whoever asks in the same turn is answered together: the stream is
read on from where it was known, and each run that has many of the results is read once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from loom_kernel import events as ev
from loom_kernel.errors import UnknownRunError
from loom_kernel.ids import RunId
from loom_kernel.journal.abc import Append, JournalEntry, RunJournal

STREAM = RunId("results")
"""The stream's id; run ids never hold a ``u``."""

TOGETHER = 500
"""Entries in one event."""

FEW = 4
"""Results of one run that are looked up one by one; for more, the run is read."""


class Found(NamedTuple):
    """A result of an earlier run, and when it was recorded, in seconds since the epoch."""

    run_id: str
    at: float
    event: ev.NodeCompleted


class ResultCache:
    """The results that the steps of one journal's runs may use again, as this process knows them."""

    def __init__(self, journal: RunJournal) -> None:
        self._journal = journal
        self._seq = 0
        self._index: dict[str, ev.KeptResult] = {}
        self._asked: list[tuple[str, float | None, asyncio.Future[Found | None]]] = []
        self._kept: list[tuple[ev.KeptResult, asyncio.Future[None]]] = []
        self._reader: asyncio.Task[None] | None = None
        self._writer: asyncio.Task[None] | None = None

    async def find(self, key: str, since: float | None) -> Found | None:
        """The newest result under the key, if it was recorded after ``since`` and is still there."""
        future: asyncio.Future[Found | None] = asyncio.get_running_loop().create_future()
        self._asked.append((key, since, future))
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._answer())
        return await future

    async def keep(self, kept: ev.KeptResult) -> None:
        """Let others find a result that was just recorded; returns when it is durable."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._kept.append((kept, future))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write())
        await future

    # ------------------------------------------------------------ many at once

    async def _answer(self) -> None:
        while self._asked:
            asked, self._asked = self._asked, []
            try:
                async for entry in self._journal.read(STREAM, self._seq + 1):
                    self._take(entry)
                wanted = [self._usable(key, since) for key, since, _ in asked]
                found = await self._fetch({kept.key: kept for kept in wanted if kept is not None}.values())
            except BaseException as error:
                _fail([future for *_, future in asked], error)
                if not isinstance(error, Exception):
                    raise
                continue
            for kept, (*_, future) in zip(wanted, asked, strict=True):
                if not future.done():
                    future.set_result(None if kept is None else found.get(kept.key))

    def _take(self, entry: JournalEntry) -> None:
        self._seq = entry.seq
        if isinstance(entry.event, ev.ResultsKept):
            for kept in entry.event.results:
                before = self._index.get(kept.key)
                if before is None or before.at <= kept.at:
                    self._index[kept.key] = kept

    def _usable(self, key: str, since: float | None) -> ev.KeptResult | None:
        kept = self._index.get(key)
        return kept if kept is not None and (since is None or kept.at > since) else None

    async def _fetch(self, wanted: Iterable[ev.KeptResult]) -> dict[str, Found]:
        by_run: dict[str, list[ev.KeptResult]] = {}
        for kept in wanted:
            by_run.setdefault(kept.run_id, []).append(kept)
        found: dict[str, Found] = {}
        for run_id, results in by_run.items():
            try:
                there = await self._recorded(RunId(run_id), {kept.recorded: kept for kept in results})
            except UnknownRunError:
                continue
            found.update(there)
        return found

    async def _recorded(self, run_id: RunId, wanted: dict[str, ev.KeptResult]) -> dict[str, Found]:
        entries: list[JournalEntry | None] = []
        if len(wanted) <= FEW:
            entries += [await self._journal.read_key(run_id, recorded) for recorded in wanted]
        else:
            entries += [entry async for entry in self._journal.read(run_id) if entry.key in wanted]
        return {
            wanted[entry.key].key: Found(run_id, entry.created_at / 1e6, entry.event)
            for entry in entries
            if entry is not None and entry.key is not None and isinstance(entry.event, ev.NodeCompleted)
        }

    async def _write(self) -> None:
        while self._kept:
            batch, self._kept = self._kept[:TOGETHER], self._kept[TOGETHER:]
            try:
                if self._seq == 0:
                    created = ev.RunCreated(workflow="", mode="results", parent_run_id=STREAM)
                    await self._journal.create_run(STREAM, created)
                await self._journal.post(
                    STREAM, Append(ev.ResultsKept(results=[kept for kept, _ in batch]), None, None)
                )
            except BaseException as error:
                _fail([future for _, future in batch], error)
                if not isinstance(error, Exception):
                    raise
                continue
            for _, future in batch:
                if not future.done():
                    future.set_result(None)


def _fail(futures: list[asyncio.Future[Found | None]] | list[asyncio.Future[None]], error: BaseException) -> None:
    for future in futures:
        if not future.done():
            if isinstance(error, Exception):
                future.set_exception(error)
            else:
                future.cancel()
