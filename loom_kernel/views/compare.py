"""Two runs beside each other: which calls are the same, which differ and in what, which only one of them made.

Pure, like all views. Calls are paired by their id (the same arguments), what is left by name in the order of calling.
Times are told, and never count as a difference.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from loom_kernel.views import words
from loom_kernel.views.node import NodeView
from loom_kernel.views.readable import readable
from loom_kernel.views.run import RunView

Change = Literal["same", "changed", "only_a", "only_b"]

VALUE_CHARS = 20_000
"""Of a value's text that are compared; its hash tells whether the rest is the same."""

VALUE_LINES = 400
CONTEXT = 2


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a text diff. ``sign``: ``" "`` in both, ``"-"`` only in the first, ``"+"`` only in the second,
    ``"…"`` for lines left out."""

    sign: str
    text: str


@dataclass(slots=True)
class Pair:
    """A call of either run, or of both.

    Attributes:
        id: names it in the picture: the first run's node id, or the second's.
        what: what differs: arguments, result, answer, status, error, tries.
        args, result: the difference as text, where there is one.
    """

    id: str
    a: NodeView | None
    b: NodeView | None
    change: Change = "same"
    what: tuple[str, ...] = ()
    args: tuple[Line, ...] = ()
    result: tuple[Line, ...] = ()

    @property
    def node(self) -> NodeView:
        """The one that is there, the first run's of two."""
        node = self.a or self.b
        assert node is not None
        return node


@dataclass(slots=True)
class Comparison:
    """Two runs beside each other.

    Attributes:
        facts: rows of ``(name, first, second)`` about the runs as a whole; times among them.
        inputs, output, error: the differences as text; empty where there is none.
        pairs: calls, in the first run's order, those of the second alone after them.
    """

    a: RunView
    b: RunView
    facts: list[tuple[str, str, str]] = field(default_factory=list)
    inputs: tuple[Line, ...] = ()
    output: tuple[Line, ...] = ()
    error: tuple[Line, ...] = ()
    pairs: list[Pair] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        """How many pairs there are of each change."""
        found = {"same": 0, "changed": 0, "only_a": 0, "only_b": 0}
        for pair in self.pairs:
            found[pair.change] += 1
        return found

    @property
    def same(self) -> bool:
        """Whether nothing differs but times."""
        return not (self.inputs or self.output or self.error) and self.counts["same"] == len(self.pairs)

    def union(self) -> RunView:
        """Both graphs in one, to be drawn; a pair is one node, under its ``id``."""
        view = RunView()
        view.workflow = self.a.workflow
        home = {pair.a.node_id: pair.id for pair in self.pairs if pair.a} | {}
        home_b = {pair.b.node_id: pair.id for pair in self.pairs if pair.b}
        for pair in self.pairs:
            parents: dict[str, None] = {}
            if pair.a is not None:
                parents.update(dict.fromkeys(home[p] for p in pair.a.parents if p in home))
            if pair.b is not None:
                parents.update(dict.fromkeys(home_b[p] for p in pair.b.parents if p in home_b))
            parents.pop(pair.id, None)
            view.nodes[pair.id] = replace(pair.b or pair.node, node_id=pair.id, parents=tuple(parents))
            view.order.append(pair.id)
        return view


def compare(a: RunView, b: RunView, *, texts: Mapping[bytes, bytes] | None = None) -> Comparison:
    """Compare two runs, of one workflow or of two.

    Args:
        texts: for encoded values that are kept elsewhere, the JSON of their contents.
    """
    texts = texts or {}
    made = Comparison(a, b, _facts(a, b))
    made.inputs = value_lines(bytes(a.inputs), bytes(b.inputs), texts)
    if {a.status, b.status} <= {"completed", "skipped"}:
        made.output = value_lines(bytes(a.result), bytes(b.result), texts)
    made.error = text_lines(_error(a), _error(b))
    made.pairs = _pairs(a, b)
    for pair in made.pairs:
        _judge(pair, texts)
    return made


def _pairs(a: RunView, b: RunView) -> list[Pair]:
    mine = {n: a.nodes[n] for n in list(a.order) if n in a.nodes}
    theirs = {n: b.nodes[n] for n in list(b.order) if n in b.nodes}
    left: dict[tuple[str, str], list[NodeView]] = defaultdict(list)
    for node_id, node in theirs.items():
        if node_id not in mine:
            left[node.kind, node.name].append(node)
    for nodes in left.values():
        nodes.reverse()
    pairs: list[Pair] = []
    taken: set[str] = set()
    for node_id, node in mine.items():
        other = theirs.get(node_id)
        if other is None and (same := left.get((node.kind, node.name))):
            other = same.pop()
        if other is not None:
            taken.add(other.node_id)
        pairs.append(Pair(node_id, node, other))
    ids = {pair.id for pair in pairs}
    for node_id, node in theirs.items():
        if node_id not in taken:
            pairs.append(Pair(node_id if node_id not in ids else f"{node_id} (second)", None, node))
    return pairs


def _judge(pair: Pair, texts: Mapping[bytes, bytes]) -> None:
    a, b = pair.a, pair.b
    if a is None or b is None:
        pair.change = "only_b" if a is None else "only_a"
        return
    what = []
    if a.node_id != b.node_id or (bytes(a.args) != bytes(b.args) and a.kind not in ("prompt",)):
        pair.args = value_lines(bytes(a.args), bytes(b.args), texts)
        if a.node_id != b.node_id or pair.args:
            what.append("arguments")
    if a.status != b.status:
        what.append("status")
    if a.status == b.status and _outcome(a) != _outcome(b):
        pair.result = value_lines(_outcome(a), _outcome(b), texts)
        if pair.result:
            what.append("answer" if a.kind == "prompt" else "result")
    if (a.error is None) != (b.error is None) or (a.error and b.error and a.error.message != b.error.message):
        what.append("error")
        pair.result = pair.result or text_lines(_message(a), _message(b))
    if a.attempts != b.attempts and a.kind != "prompt" and not (a.copied or b.copied):
        what.append("tries")
    pair.what = tuple(what)
    pair.change = "changed" if what else "same"


def _outcome(node: NodeView) -> bytes:
    raw = bytes(node.result)
    if node.kind == "workflow" and node.status == "completed":
        kept = words.loads(raw)
        if isinstance(kept, dict):
            kept.pop("run_id", None)  # which run it was says nothing about what it came to
            return msgspec.json.encode(kept)
    return raw


def _message(node: NodeView) -> str:
    return f"{words.class_name(node.error)}: {node.error.message}" if node.error is not None else ""


def _error(view: RunView) -> str:
    return f"{words.class_name(view.error)}: {view.error.message}" if view.error is not None else ""


# ---------------------------------------------------------------- facts


def _facts(a: RunView, b: RunView) -> list[tuple[str, str, str]]:
    rows = []
    if a.workflow != b.workflow:
        rows.append(("workflow", a.workflow, b.workflow))
    rows.append(("status", words.status_words(a), words.status_words(b)))
    rows.append(("steps", words.steps_words(a), words.steps_words(b)))
    for name, value in (("time", _took), ("waited", _waited), ("tokens", _tokens), ("cost", _cost)):
        first, second = value(a), value(b)
        if first or second:
            rows.append((name, first or "–", second or "–"))
    if a.definition_version != b.definition_version:
        rows.append(("code", a.definition_version[:8] or "–", b.definition_version[:8] or "–"))
    return rows


TIMES = frozenset({"time", "waited"})
"""Facts that differ from run to run."""


def _took(view: RunView) -> str:
    return words.duration(view.active_s) if view.active_s else ""


def _waited(view: RunView) -> str:
    waited = sum(n.waited_s for n in list(view.nodes.values()))
    return words.duration(waited) if waited >= 0.005 else ""


def _tokens(view: RunView) -> str:
    tokens: Any = getattr(view, "tokens", 0)
    return f"{tokens:,}" if tokens else ""


def _cost(view: RunView) -> str:
    cost: Any = getattr(view, "cost_usd", 0.0)
    return f"${cost:.4f}" if cost else ""


# ---------------------------------------------------------------- texts


def value_lines(a: bytes, b: bytes, texts: Mapping[bytes, bytes] | None = None) -> tuple[Line, ...]:
    """The difference of two encoded values as text; empty where they are the same."""
    if a == b:
        return ()
    texts = texts or {}
    first, second = (readable(texts.get(raw, raw), limit=VALUE_CHARS) for raw in (a, b))
    if first == second:
        if words.loads(a) == words.loads(b):
            return ()
        note = "other contents" if first.startswith("‹") else "the difference is further on, or in what is not shown"
        return (Line(" ", words.short(first, 200)), Line("…", note))
    return text_lines(first, second)


def text_lines(a: str, b: str) -> tuple[Line, ...]:
    """The difference of two texts, with two lines around each change."""
    if a == b:
        return ()
    first, second = (_cut(text.splitlines()) for text in (a, b))
    out: list[Line] = []
    matcher = difflib.SequenceMatcher(None, first, second, autojunk=False)
    end = 0
    for group in matcher.get_grouped_opcodes(CONTEXT):
        if group[0][1] > end:
            out.append(Line("…", f"{words.plural(group[0][1] - end, 'line')} alike"))
        for tag, i, j, k, n in group:
            if tag == "equal":
                out += [Line(" ", line) for line in first[i:j]]
            else:
                out += [Line("-", line) for line in first[i:j]]
                out += [Line("+", line) for line in second[k:n]]
        end = group[-1][2]
    if len(first) > end:
        out.append(Line("…", f"{words.plural(len(first) - end, 'line')} alike"))
    return tuple(out)


def _cut(lines: list[str]) -> list[str]:
    return lines if len(lines) <= VALUE_LINES else [*lines[:VALUE_LINES], f"… {len(lines) - VALUE_LINES:,} more lines"]


# ---------------------------------------------------------------- SQL


def sql(a: str, b: str) -> str:
    """The query that tells the same: one row a call, paired as here. Run ids stand in it as literals."""
    return QUERY.replace("$a", _literal(a)).replace("$b", _literal(b))


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


QUERY = """
with calls as (
    select n.*, coalesce(e.payload->'$.result', 'null'::json) as result,
        case when n.kind = 'workflow' then e.payload->>'$.result.result'
             else coalesce(nullif(e.payload->>'result_hash', ''), e.payload->>'result') end as content
    from nodes n left join events e
        on e.run_id = n.run_id and e.node_id = n.node_id and e.type = 'node.completed' and e.run_id in ($a, $b)
    where n.run_id in ($a, $b)
    qualify row_number() over (partition by n.run_id, n.node_id order by e.seq desc) = 1
), numbered as (
    select c.*, row_number() over (partition by run_id, kind, name, other order by started_at, node_id) as nth
    from (select c.*, count(*) over (partition by node_id) as other from calls c) c
), a as (from numbered where run_id = $a), b as (from numbered where run_id = $b)
select coalesce(a.name, b.name) as name, coalesce(a.kind, b.kind) as kind,
    case when b.node_id is null then 'only_a' when a.node_id is null then 'only_b'
         when a.node_id <> b.node_id or a.status <> b.status or a.content is distinct from b.content then 'changed'
         else 'same' end as change,
    a.node_id as node_id_a, b.node_id as node_id_b, a.status as status_a, b.status as status_b,
    a.duration_s as duration_s_a, b.duration_s as duration_s_b, b.duration_s - a.duration_s as slower_s,
    a.result as result_a, b.result as result_b, a.error as error_a, b.error as error_b
from a full join b on a.kind = b.kind and a.name = b.name and (a.node_id = b.node_id or (a.other = 1 and b.other = 1 and a.nth = b.nth))
order by coalesce(a.started_at, b.started_at), name
""".strip()
"""Compares the runs ``$a`` and ``$b``."""
