"""Looking at runs: as they were at a moment, why they are as they are, and two of them beside each other."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from loom_kernel.errors import LoomError, UnknownRunError
from loom_kernel.runtime.node import NodeRef
from loom_kernel.views import compare as comparing
from loom_kernel.views import compare_page, why
from loom_kernel.views.compare import Comparison, Pair
from loom_kernel.views.node import PromptView
from loom_kernel.views.run import RunView

if TYPE_CHECKING:
    from loom_kernel.runtime.core import Runtime
    from loom_kernel.runtime.run import Run

TEXTS = 40
"""Values kept elsewhere that a comparison reads."""

TABLE_ROWS = 2_000
"""Rows of a table up to which a comparison compares its contents line by line."""

_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d+)?))?$")


class RunAt:
    """A run as it was at a moment: its nodes, its questions, its picture. It never changes.

    Attributes:
        time: the moment, seconds since the epoch.
        view: the read model of that moment.
    """

    def __init__(self, runtime: Runtime, run: Run[Any], view: RunView, at: float) -> None:
        self._runtime, self._run, self.view, self.time = runtime, run, view, at

    @property
    def status(self) -> str:
        """The status then. Whether somebody executed it then is not recorded, so it is never ``interrupted``."""
        return self.view.status

    def prompts(self) -> list[PromptView]:
        """The questions that were open."""
        return self.view.open_prompts

    def nodes(self) -> list[NodeRef]:
        """The nodes that there were, in the order they began."""
        return [_NodeAt(self._runtime, self, self.view.nodes[n]) for n in self.view.order]

    def __getitem__(self, path: str) -> NodeRef:
        """A node by its name, name and number, or id.

        Raises:
            KeyError: there was none, or several of that name.
        """
        from loom_kernel.runtime.node import find_node

        node = find_node(self.view, path)
        if node is None:
            names = list(dict.fromkeys(n.name for n in self.view.nodes.values()))
            raise KeyError(f"there was no node {path!r} then; there were {', '.join(names) or 'none yet'}")
        return _NodeAt(self._runtime, self, node)

    def to_svg(self) -> str:
        """The graph as SVG text."""
        from loom_kernel.views.svg import svg

        return svg(self.view)

    def __repr__(self) -> str:
        counts = self.view.counts
        return f"<run of {self.view.workflow} then: {self.view.status}, {counts.done} of {counts.total} steps>"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        from loom_kernel.views.text import bundle

        return bundle(self.view, times=_times(self._runtime))


class _NodeAt(NodeRef):
    """A node of a moment."""

    def __init__(self, runtime: Runtime, moment: RunAt, node: Any) -> None:
        super().__init__(runtime, moment, node)  # type: ignore[arg-type]  # only its view is asked for


async def at(runtime: Runtime, run: Run[Any], when: datetime | float | str | timedelta) -> RunAt:
    """See :meth:`Run.at`. On the loop thread."""
    await run._load()
    view = run.view
    moment = seconds(when, view.created_at or 0.0, view.started_at or view.created_at or 0.0)
    then = RunView(run.id)
    async for entry in runtime.journal.read(run._id):
        if entry.created_at > moment * 1e6:
            break
        then.apply(entry)
    if not then.workflow:
        raise LoomError(f"the run did not exist then; it was made at {clock(view.created_at or 0.0)}")
    return RunAt(runtime, run, then, moment)


def seconds(when: datetime | float | str | timedelta, created_at: float, started_at: float) -> float:
    """A moment as seconds since the epoch.

    Args:
        when: a datetime (naive ones are local), seconds since the epoch, a ``timedelta`` after the run's start, or a
            text: ``"14:03"`` and ``"14:03:20"`` on the day of the run (its whole minute or second counts), ISO 8601.

    Raises:
        LoomError: it is none of these.
    """
    if isinstance(when, timedelta):
        return started_at + when.total_seconds()
    if isinstance(when, datetime):
        return when.timestamp()
    if isinstance(when, bool) or not isinstance(when, (int, float, str)):
        raise LoomError(
            f"a moment is a datetime, a timedelta, seconds or a text like '14:03', not {type(when).__name__}"
        )
    if isinstance(when, (int, float)):
        return float(when)
    text = when.strip()
    if match := _CLOCK.match(text):
        day = list(time.localtime(created_at))
        day[3:6] = [int(match[1]), int(match[2]), 0]
        day[8] = -1
        base = time.mktime(tuple(day))  # type: ignore[arg-type]
        base += float(match[3]) if match[3] else 0.0
        base += 0.999999 if match[3] and "." not in match[3] else 0.0 if match[3] else 59.999999
        return base if base >= created_at else base + 86_400 if base + 86_400 < time.time() else base
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise LoomError(f"{when!r} is no moment; write '14:03', '14:03:20' or '2026-05-01 14:03:20'") from None


def clock(at: float) -> str:
    """A moment in the reader's zone, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


# ---------------------------------------------------------------- why


async def explain(runtime: Runtime, run: Run[Any], node: str | NodeRef | None) -> why.Why:
    """See :meth:`Run.why`. On the loop thread."""
    await run._load()
    if node is None:
        return why.why_run(run.view)
    ref = node if isinstance(node, NodeRef) else await run._node(node)
    if not isinstance(ref, NodeRef):
        raise LoomError(f"{len(ref)} nodes are named {node!r}; ask about one of {node}#1 ... {node}#{len(ref)}")
    owner = ref._run
    events = [
        (entry.created_at / 1e6, entry.event)
        async for entry in runtime.journal.read(owner._id)
        if entry.node_id == ref.id
    ]
    source: RunView | None = None
    if owner.view.forked_from:
        other: Run[Any] = runtime.run_object(owner.view.forked_from)
        try:
            await other._load()
            source = other.view
        except UnknownRunError:
            source = None
    return why.why_node(owner.view, ref.view, events, source)


# ---------------------------------------------------------------- diff


class RunDiff:
    """Two runs beside each other: graph, inputs, results, texts, times and cost. Shows itself as a cell's value.

    Attributes:
        a, b: the runs.
        comparison: what differs, as data.
    """

    def __init__(self, runtime: Runtime, a: Run[Any], b: Run[Any], comparison: Comparison) -> None:
        self._runtime, self.a, self.b, self.comparison = runtime, a, b, comparison

    @property
    def same(self) -> bool:
        """Whether nothing differs but times."""
        return self.comparison.same

    @property
    def counts(self) -> dict[str, int]:
        """Calls by how they compare: ``same, changed, only_a, only_b``."""
        return self.comparison.counts

    @property
    def nodes(self) -> list[Pair]:
        """The calls, paired."""
        return list(self.comparison.pairs)

    def __getitem__(self, name: str) -> Pair:
        """The pair of a call by its name; of several of that name the first that differs.

        Raises:
            KeyError: there is none.
        """
        named = [p for p in self.comparison.pairs if name in (p.node.name, p.id)]
        if not named:
            names = list(dict.fromkeys(p.node.name for p in self.comparison.pairs))
            raise KeyError(f"no node named {name!r}; there are {', '.join(names) or 'none'}")
        return next((p for p in named if p.change != "same"), named[0])

    @property
    def sql(self) -> str:
        """The query that tells the same, for ``loom_kernel.sql`` and ``%%loomsql``."""
        return comparing.sql(self.a.id, self.b.id)

    def table(self) -> Any:
        """The rows of :attr:`sql`, as a DuckDB relation."""
        return self._runtime.sql(self.sql, {})

    def text(self, *, times: bool = True) -> str:
        """The comparison as text; ``times=False`` leaves out what differs from run to run."""
        return compare_page.plain(self.comparison, times=times)

    def to_svg(self) -> str:
        """Both graphs in one picture."""
        return compare_page.svg(self.comparison)

    def to_json(self) -> dict[str, Any]:
        """What differs as plain JSON values."""
        made = self.comparison
        return {
            "a": self.a.id,
            "b": self.b.id,
            "same": made.same,
            "facts": [{"name": name, "a": a, "b": b} for name, a, b in made.facts],
            "inputs": [f"{line.sign} {line.text}" for line in made.inputs],
            "result": [f"{line.sign} {line.text}" for line in made.output],
            "error": [f"{line.sign} {line.text}" for line in made.error],
            "nodes": [
                {
                    "name": pair.node.name,
                    "kind": pair.node.kind,
                    "change": pair.change,
                    "what": list(pair.what),
                    "nodeA": pair.a.node_id if pair.a else None,
                    "nodeB": pair.b.node_id if pair.b else None,
                    "durationA": pair.a.duration_s if pair.a else None,
                    "durationB": pair.b.duration_s if pair.b else None,
                    "arguments": [f"{line.sign} {line.text}" for line in pair.args],
                    "result": [f"{line.sign} {line.text}" for line in pair.result],
                }
                for pair in made.pairs
            ],
        }

    def __repr__(self) -> str:
        return compare_page.summary(self.comparison)

    def __str__(self) -> str:
        return self.text()

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        times = _times(self._runtime)
        names = (_name(self.a), _name(self.b)) if times else ("", "")
        return {
            "text/plain": self.text(times=times),
            "text/html": compare_page.static_html(self.comparison, times=times, names=names),
        }


def of_node(found: RunDiff, name: str) -> RunDiff:
    """The comparison of the calls of one name only.

    Raises:
        LoomError: there is none.
    """
    from dataclasses import replace

    pairs = [p for p in found.comparison.pairs if name in (p.node.name, p.id)]
    if not pairs:
        names = list(dict.fromkeys(p.node.name for p in found.comparison.pairs))
        raise LoomError(f"neither run has a node named {name!r}; there are {', '.join(names) or 'none'}")
    only = replace(found.comparison, pairs=pairs, inputs=(), output=(), error=())
    return RunDiff(found._runtime, found.a, found.b, only)


async def diff(runtime: Runtime, a: Run[Any], b: Run[Any]) -> RunDiff:
    """See :meth:`Run.diff`. On the loop thread."""
    await a._load()
    await b._load()
    texts = await _texts(runtime, a.view, b.view)
    return RunDiff(runtime, a, b, comparing.compare(a.view, b.view, texts=texts))


async def _texts(runtime: Runtime, a: RunView, b: RunView) -> dict[bytes, bytes]:
    """Contents of values that are kept elsewhere and differ: large texts, and small tables as lines."""
    wanted: dict[bytes, None] = {}
    for first, second in ((a.inputs, b.inputs), (a.result, b.result)):
        if bytes(first) != bytes(second):
            wanted.update({bytes(first): None, bytes(second): None})
    for pair in comparing.compare(a, b).pairs:
        if pair.a is not None and pair.b is not None and "result" in pair.what:
            wanted.update({bytes(pair.a.result): None, bytes(pair.b.result): None})
    found: dict[bytes, bytes] = {}
    for raw in wanted:
        if b'"$loom"' in raw and len(found) < TEXTS:
            text = await _text(runtime, raw)
            if text is not None:
                found[raw] = text
    return found


async def _text(runtime: Runtime, raw: bytes) -> bytes | None:
    try:
        value = await runtime.decode(raw)
    except Exception:  # a class that is not there any more: its reference is compared
        return None
    for write in ("to_csv", "write_csv"):
        if hasattr(value, write) and hasattr(value, "shape") and value.shape[0] <= TABLE_ROWS:
            lines = value.to_csv(index=False) if write == "to_csv" else value.write_csv()
            return msgspec.json.encode(lines)
    return msgspec.json.encode(value) if isinstance(value, str) else None


def _name(run: Run[Any]) -> str:
    from loom_kernel.runtime.look import clock as short

    return f"run of {short(run.view.created_at)}"


def _times(runtime: Runtime) -> bool:
    """Whether times are shown: headless and in tests, two executions are to give the same."""
    return not (runtime.host.place().headless or runtime.settings.get("test"))
