"""A journal of many runs, made quickly: what a project has after a year.

``python -m tests.bench.generated FOLDER [EVENTS] [RUNS]`` makes one (a million events over 10,000 runs, if not told
otherwise) through the tables themselves, as the applier would, with runs that interleave ten at a time.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from msgspec import Raw

from loom_kernel import events as ev
from loom_kernel.journal import database
from loom_kernel.journal.abc import JournalEntry
from loom_kernel.journal.core import RELEASED

WORKFLOWS = ("digest", "clean", "forecast", "report", "train")
STEPS = ("fetch", "parse", "join", "score", "plot", "store")
AT_ONCE = 10
BATCH = 20_000

Row = tuple[str | None, str, str | None, bytes]


def story(number: int, length: int, chance: random.Random) -> Iterator[Row]:
    """The events of one run: steps one after the other, some retried, a question in every fifth run, some failures."""

    def row(event: ev.Event, node: str | None = None, key: str | None = None) -> Row:
        return key, event.type, node, ev.encode(event)

    workflow = WORKFLOWS[number % len(WORKFLOWS)]
    yield row(
        ev.RunCreated(
            workflow=workflow,
            definition_version=f"{number // 2_000:016x}",
            inputs=Raw(b'{"day":"2026-03-%02d"}' % (1 + number % 28)),
            notebook="analysis.ipynb",
            source="async def body(ctx, day): ...",
        ),
        key="created",
    )
    yield row(ev.LeaseTaken(epoch=1, holder="h" * 12, pid=4711, host="desk", label="analysis.ipynb"), key="lease:1")
    yield row(ev.RunStarted(worker="h" * 12, definition_version=f"{number // 2_000:016x}"), key="started:1")
    left = length - 4
    parents: list[str] = []
    if number % 5 == 0:
        node = "prompt:go:#1"
        yield row(
            ev.PromptOpened(prompt="go", kind="confirm", message="Drop the anomalies?", schema={"type": "boolean"}),
            node,
            f"{node}:open:1",
        )
        if number % 1_000 == 0:
            yield None, RELEASED, None, b"1"  # still open, and nobody executes it
            return
        yield row(ev.PromptAnswered(generation=1, value=Raw(b"true"), by="ann"), node, f"answer:{node}:1")
        yield row(ev.NodeCompleted(result=Raw(b"true"), answered_by="ann"), node, f"{node}:done")
        parents = [node]
        left -= 3
    fails = number % 13 == 0
    for i in itertools.count():
        if left < 2:
            break
        name = STEPS[i % len(STEPS)]
        node = f"step:{name}:{chance.getrandbits(64):016x}#1"
        started = ev.NodeStarted(
            name=name,
            kind="step",
            parents=parents,
            args=Raw(b'{"i":%d}' % i),
            where=f"cell 4, line {10 + i}",
            code="c" * 16,
        )
        yield row(started, node, f"{node}:start:1:1")
        left -= 2
        took = chance.random() / 10
        error = ev.ErrorRecord(type="builtins:TimeoutError", message="the source did not answer")
        if left >= 2 and i % 17 == 3:
            yield row(ev.NodeRetrying(attempt=1, error=error, delay_s=1.0, duration_s=took), node, f"{node}:retry:1:1")
            again = ev.NodeStarted(name=name, kind="step", attempt=2, parents=parents, where=started.where)
            yield row(again, node, f"{node}:start:1:2")
            left -= 2
        if fails and left < 2:
            yield row(ev.NodeFailed(error=error, duration_s=took), node, f"{node}:failed:1")
        else:
            result = Raw(b'{"rows":%d,"mean":%.6f}' % (i * 31, took))
            yield row(ev.NodeCompleted(result=result, result_hash="d" * 32, duration_s=took), node, f"{node}:done")
        parents = [node]
    if number % 997 == 0:
        pass  # its worker left
    elif fails:
        failed = ev.ErrorRecord(type="builtins:TimeoutError", message="the source did not answer")
        yield row(ev.RunEnded(status="failed", error=failed, resumable=True), key="ended:1")
    else:
        yield row(ev.RunEnded(status="completed", result=Raw(b'{"ok":true}')), key="ended:1")
    yield None, RELEASED, None, b"1"


def run_id(number: int) -> str:
    """As little in order as real ones."""
    return hashlib.sha256(b"%d" % number).hexdigest()[:12]


def entries(total: int, runs: int) -> Iterator[JournalEntry]:
    """All events, as they were committed."""
    chance = random.Random(7)
    length = total // runs
    waiting = iter(range(runs))
    open_runs: list[list] = []
    global_seq, now = 0, 1_767_225_600_000_000
    while True:
        while len(open_runs) < AT_ONCE and (number := next(waiting, None)) is not None:
            open_runs.append([run_id(number), 0, story(number, length, chance)])
        if not open_runs:
            return
        here = chance.choice(open_runs)
        for key, type_, node_id, payload in itertools.islice(here[2], chance.randint(1, 4)):
            global_seq += 1
            now += 3_000
            control = type_ == RELEASED
            here[1] += not control
            yield JournalEntry(global_seq, here[0], 0 if control else here[1], key, type_, node_id, payload, now)
        if here[2].gi_frame is None:  # told to its end
            open_runs.remove(here)


def generate(folder: Path, total: int = 1_000_000, runs: int = 10_000) -> None:
    """Make the journal in ``folder``, applied and checkpointed."""
    opened = database.open_folder(folder)
    source = entries(total, runs)
    while batch := list(itertools.islice(source, BATCH)):
        opened.tables.apply(batch)
        opened.tables.settle()
    while opened.tables.tidy():
        pass
    opened.close(everything_applied=True)


if __name__ == "__main__":
    generate(Path(sys.argv[1]), *map(int, sys.argv[2:4]))
