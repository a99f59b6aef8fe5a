"""Runs made by hand: their events as an engine would write them, for the tests and for the pictures of the widget."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from msgspec import Raw

from loom_kernel import events as ev
from loom_kernel.journal.abc import JournalEntry
from loom_kernel.views.run import RunView

START = 1_767_225_600.0  # 2026-01-01T00:00:00Z


def raw(value: Any) -> Raw:
    """A plain value as the journal encodes it."""
    return Raw(json.dumps(value).encode())


def error(
    kind: str = "builtins:ValueError", message: str = "bad url", *frames: ev.Frame, notes: Sequence[str] = ()
) -> ev.ErrorRecord:
    """An error as the journal keeps it."""
    return ev.ErrorRecord(type=kind, message=message, frames=list(frames), notes=list(notes))


class History:
    """Writes a run's entries, one after the other, on a clock that it moves itself."""

    def __init__(self, workflow: str = "clean-weather", run_id: str = "k3v9t2m4x7qa", **created: Any) -> None:
        self.run_id, self.now, self.entries = run_id, START, list[JournalEntry]()
        self._occurrences: dict[str, int] = {}
        self.add(ev.RunCreated(workflow=workflow, **created))

    def add(self, event: ev.Event, node_id: str | None = None, after_s: float = 0.0) -> JournalEntry:
        """One more entry, ``after_s`` seconds after the one before."""
        self.now += after_s
        entry = JournalEntry(
            global_seq=len(self.entries) + 1, run_id=self.run_id, seq=len(self.entries) + 1, key=None, type=event.type,
            node_id=node_id, payload=ev.encode(event), created_at=round(self.now * 1e6),
        )  # fmt: skip
        self.entries.append(entry)
        return entry

    def view(self) -> RunView:
        return RunView.of(self.entries, self.run_id)

    # ------------------------------------------------------------ the run

    def started(self, *, resumed: bool = False, after_s: float = 0.0) -> None:
        self.add(ev.RunStarted(worker="worker", resumed=resumed), after_s=after_s)

    def ended(self, status: str = "completed", after_s: float = 0.0, **fields: Any) -> None:
        self.add(ev.RunEnded(status=status, **fields), after_s=after_s)

    def paused(self, reason: str = "stopped", message: str = "", after_s: float = 0.0, **detail: Any) -> None:
        self.add(ev.RunPaused(reason=reason, message=message, detail=detail), after_s=after_s)

    # ------------------------------------------------------------ nodes

    def start(
        self, name: str, parents: Sequence[str] = (), *, kind: str = "step", args: Any = None, after_s: float = 0.0,
        **fields: Any,
    ) -> str:  # fmt: skip
        """A call begins; gives its node id."""
        identity = sha256(json.dumps(args, sort_keys=True).encode()).hexdigest()[:16] if args is not None else ""
        scope = f"{kind}:{name}:{identity}"
        self._occurrences[scope] = self._occurrences.get(scope, 0) + 1
        node_id = f"{scope}#{self._occurrences[scope]}"
        shown = raw(args if args is not None else {})
        self.add(
            ev.NodeStarted(name=name, kind=kind, parents=list(parents), args=shown, **fields), node_id, after_s=after_s
        )
        return node_id

    def done(self, node_id: str, took_s: float = 0.1, result: Any = None, **fields: Any) -> None:
        self.add(ev.NodeCompleted(result=raw(result), duration_s=took_s, **fields), node_id, after_s=took_s)

    def failed(self, node_id: str, failure: ev.ErrorRecord | None = None, took_s: float = 0.1, **fields: Any) -> None:
        self.add(ev.NodeFailed(error=failure or error(), duration_s=took_s, **fields), node_id, after_s=took_s)

    def step(self, name: str, parents: Sequence[str] = (), *, took_s: float = 0.1, args: Any = None) -> str:
        """A call from its begin to its good end."""
        node_id = self.start(name, parents, args=args)
        self.done(node_id, took_s)
        return node_id

    def ask(
        self, prompt: str, message: str, parents: Sequence[str] = (), *, kind: str = "confirm", generation: int = 1,
        node_id: str | None = None, **fields: Any,
    ) -> str:  # fmt: skip
        """A question opens; gives its node id."""
        node_id = node_id or f"prompt:{prompt}:#1"
        self.add(
            ev.PromptOpened(
                prompt=prompt, kind=kind, message=message, parents=list(parents), generation=generation, **fields
            ),
            node_id,
        )
        return node_id

    def answer(self, node_id: str, value: Any, *, by: str = "ana", generation: int = 1, after_s: float = 1.0) -> None:
        """An answer is posted and taken."""
        self.add(ev.PromptAnswered(generation=generation, value=raw(value), by=by), node_id, after_s=after_s)
        self.add(ev.NodeCompleted(result=raw(value), answered_by=by), node_id)


OUTLIERS = ev.Shown(
    kind="table",
    columns=["date", "temp_max", "wind", "why"],
    rows=[
        ["2012-01-19", "−41.2", "3.1", "z = 7.9"],
        ["2013-06-30", "33.9", "91.0", "z = 11.2"],
        ["2015-12-08", "−0.1", "64.5", "z = 8.4"],
    ],
    total=37,
)


def weather(*, resumed: bool = True) -> tuple[History, list[str]]:
    """The tour's job up to its question: what ran first ran in an earlier kernel where ``resumed``."""
    h = History(description="Weather without its mistakes")
    h.started()
    read = h.start("read", args={"path": "weather.csv"}, where="cell 4, line 7")
    h.add(ev.NodeLogged(attempt=1, lines=["1,461 rows, 6 columns"]), read)
    h.done(read, 0.31, {"$loom": "pandas", "blob": "ab" * 32, "size": 40_211, "shape": [1461, 6]})
    if resumed:
        h.started(resumed=True, after_s=60)
    profile = h.step("profile", [read], took_s=0.08)
    columns = ["temp_max", "temp_min", "precipitation", "wind"]
    found = [h.start("outliers", [profile], args={"column": c}) for c in columns]
    for node_id, took in zip(found, (1.4, 0.9, 1.2, 1.1), strict=True):
        h.done(node_id, took)
    return h, found


def waiting(**fields: Any) -> History:
    """Waits for a yes or no, with a table to look at."""
    h, found = weather()
    h.ask("drop", "Drop these 37 of 1,461 rows?", found, shown=[OUTLIERS], where="cell 5, line 3", **fields)
    h.now += 48
    return h


def running() -> History:
    """Some branches still going, one of them tried again, one with progress."""
    h = History()
    h.started()
    read = h.step("read", took_s=0.31, args={"path": "weather.csv"})
    profile = h.step("profile", [read], took_s=0.08)
    columns = ["temp_max", "temp_min", "precipitation", "wind"]
    nodes = [h.start("outliers", [profile], args={"column": c}) for c in columns]
    h.done(nodes[0], 1.4)
    h.add(ev.NodeProgressed(done=3, total=10), nodes[1])
    h.add(ev.NodeRetrying(attempt=1, error=error("builtins:OSError", "disk busy"), delay_s=4.0), nodes[2])
    h.add(ev.OutputReported(value=raw("Looking at four columns")))
    h.now += 2.0
    return h


def failing() -> History:
    """Ends at its last step."""
    h, found = weather()
    drop = h.ask("drop", "Drop these 37 of 1,461 rows?", found, shown=[OUTLIERS])
    h.answer(drop, True, after_s=20)
    write = h.start("write", [drop], args={"target": "out/clean.parquet"}, where="cell 4, line 12")
    problem = error(
        "builtins:PermissionError", "'out/clean.parquet' is not writable",
        ev.Frame("cell 4", 12, "write", "table.to_parquet(target)"),
    )  # fmt: skip
    h.failed(write, problem, 0.02)
    h.ended("failed", error=problem, failed_node_id=write)
    return h


def completed() -> History:
    """The same job with a good end."""
    h, found = weather(resumed=False)
    drop = h.ask("drop", "Drop these 37 of 1,461 rows?", found, shown=[OUTLIERS])
    h.answer(drop, True, after_s=20)
    write = h.step("write", [drop], took_s=0.2, args={"target": "out/clean.parquet"})
    check = h.step("check", [write], took_s=0.05)
    assert check
    h.ended(result=raw({"rows": 1424, "dropped": 37, "target": "out/clean.parquet"}))
    return h


def fan_out(n: int = 40, *, failures: int = 2) -> History:
    """One step, many alike, one more, and a few that differ."""
    h = History("digest")
    h.started()
    plan = h.step("plan", took_s=0.02)
    nodes = [h.start("fetch", [plan], args={"url": f"https://example.org/feed/{i}"}) for i in range(n)]
    for i, node_id in enumerate(nodes[: n * 3 // 4]):
        if i < failures:
            h.failed(node_id, error("builtins:TimeoutError", f"feed {i} does not answer"), 0.01)
        else:
            h.done(node_id, 0.05)
    return h


def mixed(n: int = 40) -> History:
    """Forty nodes of several names, so that none of them folds."""
    h = History("nightly-report")
    h.started()
    load = h.step("load", took_s=0.4)
    ends = []
    for i, region in enumerate(["north", "east", "south", "west", "islands"]):
        clean = h.step(f"clean_{region}", [load], took_s=0.2 + i / 10)
        parts = [h.step(f"{what}_{region}", [clean], took_s=0.3) for what in ("model", "score", "plot", "check")]
        join = h.step(f"join_{region}", parts, took_s=0.1)
        ends.append(h.step(f"publish_{region}", [join], took_s=1.2))
    total = h.step("total", ends, took_s=0.7)
    h.start("mail", [total], args={"to": "team"})
    h.start("archive", [total, load])
    h.now += 3
    return h


FORM_SCHEMA = {
    "type": "object",
    "title": "Settings",
    "required": ["title", "threshold", "method"],
    "properties": {
        "title": {"type": "string", "description": "Stands on top of the report", "minLength": 3},
        "threshold": {"type": "number", "minimum": 0, "maximum": 10, "default": 3.5},
        "days": {"type": "integer", "minimum": 1, "default": 30},
        "method": {"enum": ["z-score", "iqr", "isolation forest"], "title": "Method"},
        "columns": {"type": "array", "items": {"enum": ["temp_max", "temp_min", "wind"]}, "default": ["wind"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "notify": {"type": "boolean", "title": "Send a mail when it is done", "default": True},
    },
}


def form() -> History:
    """Waits for a form whose first answer was not taken."""
    h, found = weather(resumed=False)
    h.ask("settings", "How should the report be made?", found, kind="form", schema=FORM_SCHEMA, generation=2,
          error="threshold: must be above 1 for z-score", initial=raw({"title": "Seattle", "threshold": 0.5}))  # fmt: skip
    return h


def thousand() -> History:
    """A thousand steps of different names in layers of ten: nothing folds."""
    h = History("wide")
    h.started()
    rng = random.Random(1)
    ids: list[str] = []
    for i in range(1_000):
        above = (i // 10 - 1) * 10
        parents = sorted({ids[above + rng.randrange(10)] for _ in range(1 + (rng.random() < 0.35))}) if i >= 10 else []
        if i > 40 and rng.random() < 0.05:
            parents.append(ids[rng.randrange(above - 10)])
        ids.append(h.step(f"step_{i}", parents, args={"n": i}))
    return h


def ten_thousand() -> History:
    """Five thousand pages fetched, each of which comes before each of the five thousand that are parsed."""
    h = History("big")
    h.started()
    plan = h.step("plan")
    fetched = [h.step("fetch", [plan], args={"url": f"https://example.org/{i}"}, took_s=0.001) for i in range(5_000)]
    first = h.start("parse", fetched, args={"n": 0})
    for i in range(1, 5_000):
        node = h.start("parse", [f"={first}"], args={"n": i})
        if i < 4_000:
            h.done(node, 0.001)
    return h


def timed() -> History:
    """One run with every way of spending time, in round seconds."""
    h = History("timed")
    h.started()
    read = h.step("read", took_s=2.0)
    slow = h.start("slow", [read], after_s=1.0)  # the body thought for a second
    quick = h.start("quick", [read], queued_s=0.5)
    h.done(quick, 1.0)
    h.add(ev.NodeCompleted(duration_s=4.0), slow, after_s=3.0)
    flaky = h.start("flaky", [slow, quick])
    h.add(
        ev.NodeRetrying(attempt=1, error=error("builtins:OSError", "busy"), delay_s=2.0, duration_s=1.0),
        flaky,
        after_s=1.0,
    )
    h.add(ev.NodeStarted(name="flaky", kind="step", attempt=2, parents=[slow, quick]), flaky, after_s=2.0)
    h.done(flaky, 1.0, attempts=2)
    drop = h.ask("drop", "Drop them?", [flaky])
    h.answer(drop, True, after_s=10.0)
    h.paused(after_s=0.0)
    h.started(resumed=True, after_s=60.0)
    pooled = h.start("pooled", [drop])
    h.add(ev.NodeCompleted(duration_s=1.0), pooled, after_s=3.0)  # two seconds until a thread was free
    h.ended(after_s=0.0)
    return h
