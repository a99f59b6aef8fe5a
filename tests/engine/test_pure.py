"""What is decided without doing anything: keys, graph, frontier, retries, replay."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from loom_kernel import events as ev
from loom_kernel.engine.frontier import Branch, Frontier, GraphFrontierTracker
from loom_kernel.engine.graph import Graph
from loom_kernel.engine.keys import Occurrences, child_run_id, identify, occurrence
from loom_kernel.engine.output import read_bar
from loom_kernel.engine.replay import (
    Facts,
    Held,
    HeldCall,
    History,
    Hit,
    Live,
    Lookup,
    Pause,
    Release,
    Wait,
    decide,
)
from loom_kernel.engine.retries import GiveUp, backoff
from loom_kernel.engine.retries import Wait as RetryWait
from loom_kernel.engine.retries import decide as decide_retry
from loom_kernel.errors import CycleError, FatalError, RetryableError, StepTimeout, UnhashableArgumentError
from loom_kernel.policies import Retry

pytestmark = pytest.mark.timeout(60)

# ---------------------------------------------------------------- keys


def test_keys_count_equal_calls() -> None:
    """The same kind, name and identity get the next occurrence; others their own first."""
    keys = Occurrences()
    assert [keys.key("step", "a", "x"), keys.key("step", "a", "y"), keys.key("step", "a", "x"), keys.key("tool", "a", "x")] == [
        "step:a:x#1", "step:a:y#1", "step:a:x#2", "tool:a:x#1",
    ]  # fmt: skip
    assert occurrence("step:a:x#12") == 12


def test_identity_is_of_the_content() -> None:
    """Equal content is equal, whatever the object; names, types and ignored parameters count as they should."""
    one = identify("s", {"a": [1, {"b": 2}], "c": None})
    assert one.text == identify("s", {"a": [1, {"b": 2}], "c": None}).text
    assert len(one.text) == 16
    assert one.text != identify("s", {"a": [1, {"b": 3}], "c": None}).text
    assert one.text != identify("s", {"b": [1, {"b": 2}], "c": None}).text
    assert identify("s", {"a": 1}).text != identify("s", {"a": True}).text
    assert identify("s", {"a": 1, "conn": object()}, ignore=("conn",)).text == identify("s", {"a": 1}).text
    with pytest.raises(UnhashableArgumentError, match="'conn'"):
        identify("s", {"conn": iter([])})


def test_a_changed_argument_is_found() -> None:
    """The identity remembers what could be changed in place, and what changed."""
    items = [1]
    identity = identify("s", {"n": 1, "items": items, "other": {}})
    assert identity.changed() is None
    items.append(2)
    assert identity.changed() == "items"


def test_a_value_from_a_step_counts_as_it_was_recorded() -> None:
    """An alias stands for the content that came back from the journal in another form."""
    recorded = identify("s", {"a": [1]})
    [(_, _, content)] = recorded.mutable
    [(_, _, other)] = identify("s", {"a": [1, 2]}).mutable
    assert identify("s", {"a": [1, 2]}, aliases={other: content}).text == recorded.text


def test_child_ids_are_derived() -> None:
    """The same node gives the same child, the next try another, in the alphabet of run ids."""
    one = child_run_id("parent", "workflow:w:x#1")
    assert one == child_run_id("parent", "workflow:w:x#1") and len(one) == 12
    assert one != child_run_id("parent", "workflow:w:x#1", 1) != child_run_id("parent", "workflow:w:x#2")


# ---------------------------------------------------------------- graph


def test_a_graph_refuses_circles() -> None:
    """A self-edge, an edge to an ancestor, an unknown parent and a second node of the same id are refused."""
    graph = Graph()
    graph.add("a")
    graph.add("b", ["a"])
    graph.add("c", ["b"])
    with pytest.raises(CycleError):
        graph.add_edge("c", "a")
    with pytest.raises(CycleError):
        graph.add_edge("a", "a")
    with pytest.raises(CycleError):
        graph.add("d", ["d"])
    with pytest.raises(KeyError):
        graph.add("d", ["nobody"])
    with pytest.raises(ValueError, match="already"):
        graph.add("a")
    graph.add_edge("a", "c")
    assert set(graph.parents("c")) == {"a", "b"} and graph.order() == ["a", "b", "c"]
    assert graph.reaches("a", "c") and not graph.reaches("c", "a")


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=40))
def test_whatever_is_added_the_graph_stays_without_circles(edges: list[tuple[int, int]]) -> None:
    """Edges that were taken always leave an order of all nodes."""
    graph = Graph()
    for n in range(10):
        graph.add(str(n))
    for parent, child in edges:
        try:
            graph.add_edge(str(parent), str(child))
        except CycleError:
            continue
    order = graph.order()
    at = {node: i for i, node in enumerate(order)}
    assert all(at[p] < at[n] for n in order for p in graph.parents(n))


# ---------------------------------------------------------------- frontier


def test_a_line_is_a_line() -> None:
    """One call after the other: each comes after the one before it."""
    tracker = GraphFrontierTracker()
    for name in "abc":
        tracker.on_spawn(name)
        tracker.on_settle(name)
    assert [list(tracker.get_parents(n)) for n in "abc"] == [[], ["a"], ["b"]]
    assert tracker.current_parents() == ("c",) and tracker.get_nodes() == ["a", "b", "c"]


def test_calls_side_by_side_share_their_parents_and_are_joined() -> None:
    """A fan-out hangs below one frontier, however its calls settle; what follows comes after all of them."""
    tracker = GraphFrontierTracker()
    tracker.on_spawn("root")
    tracker.on_settle("root")
    for name in "abc":
        tracker.on_spawn(name)
    for name in "cab":
        tracker.on_settle(name)
    tracker.on_spawn("join")
    assert all(list(tracker.get_parents(n)) == ["root"] for n in "abc")
    assert sorted(tracker.get_parents("join")) == ["a", "b", "c"]


def test_branches_are_drawn_as_lines_and_not_as_a_mesh() -> None:
    """Two pipelines side by side do not hang on each other, whatever the timing; their ends are joined."""
    tracker = GraphFrontierTracker()
    tracker.on_spawn("root")
    tracker.on_settle("root")
    one, two = Branch(tracker.root), Branch(tracker.root)
    tracker.on_spawn("a1", one)
    tracker.on_settle("a1")
    tracker.on_spawn("b1", two)
    tracker.on_spawn("a2", one)
    tracker.on_settle("b1")
    tracker.on_spawn("b2", two)
    tracker.on_settle("b2")
    tracker.on_settle("a2")
    tracker.on_spawn("join")
    got = {n: sorted(tracker.get_parents(n)) for n in tracker.get_nodes()}
    assert got == {"root": [], "a1": ["root"], "b1": ["root"], "a2": ["a1"], "b2": ["b1"], "join": ["a2", "b2"]}


def test_branches_within_branches_reach_the_outermost() -> None:
    """What a grandchild settled is known to the root's next call, once."""
    tracker = GraphFrontierTracker()
    child = Branch(tracker.root)
    grandchild = Branch(child)
    tracker.on_spawn("deep", grandchild)
    tracker.on_settle("deep")
    tracker.on_spawn("deeper", grandchild)
    tracker.on_settle("deeper")
    assert tracker.current_parents() == ("deeper",)
    tracker.on_spawn("mid", child)
    tracker.on_settle("mid")
    assert tracker.current_parents() == ("mid",)


def test_a_fan_out_after_a_fan_out_is_not_quadratic() -> None:
    """A thousand nodes below a thousand share one frontier, and their events name it instead of listing it."""
    tracker = GraphFrontierTracker()
    for n in range(1000):
        tracker.on_spawn(f"a{n}")
    for n in range(1000):
        tracker.on_settle(f"a{n}")
    frontiers = [tracker.on_spawn(f"b{n}") for n in range(1000)]
    assert len({id(f) for f in frontiers}) == 1
    lists = [f.recorded(f"b{n}") for n, f in enumerate(frontiers)]
    assert len(lists[0]) == 1000 and all(item == ["=b0"] for item in lists[1:])
    branches = [Branch(tracker.root) for _ in range(1000)]
    assert len({id(b.frontier()) for b in branches}) == 1


def test_small_frontiers_are_always_listed() -> None:
    """Only wide ones are referred to."""
    frontier = Frontier(("a", "b"))
    assert frontier.recorded("x") == frontier.recorded("y") == ["a", "b"]


def test_parents_can_be_replaced_before_a_node_settles() -> None:
    """A record's parents take the place of what was inferred, never in a circle."""
    tracker = GraphFrontierTracker()
    for name in "ab":
        tracker.on_spawn(name)
        tracker.on_settle(name)
    tracker.on_spawn("c")
    tracker.replace_parents("c", ["a"])
    assert list(tracker.get_parents("c")) == ["a"]
    with pytest.raises(CycleError):
        tracker.replace_parents("c", ["c"])
    tracker.reset()
    assert tracker.get_nodes() == []


@given(st.integers(0, 10_000))
def test_any_tree_of_branches_gives_a_graph_without_circles(seed: int) -> None:
    """Random calls, settlings and branches: parents were there before, and a node never hangs on its own descendants."""
    rng = random.Random(seed)
    tracker = GraphFrontierTracker()
    branches = [tracker.root]
    open_: list[Any] = []
    for n in range(60):
        match rng.randrange(4):
            case 0:
                branches.append(Branch(rng.choice(branches)))
            case 1 if open_:
                tracker.on_settle(open_.pop(rng.randrange(len(open_))), rng.choice([None, *branches]))
            case _:
                name = f"n{n}"
                tracker.on_spawn(name, rng.choice(branches))
                open_.append(name)
    order = tracker.graph.order()
    assert sorted(order) == sorted(tracker.get_nodes())


# ---------------------------------------------------------------- retries


def test_retries_are_decided_from_the_wish_the_try_and_the_error() -> None:
    """The table of what is tried again."""
    policy = Retry(max_attempts=3, interval_s=1, jitter=False, on=(OSError,), never=(PermissionError,))
    assert decide_retry(policy, 1, OSError()) == RetryWait(1)
    assert decide_retry(policy, 2, OSError()) == RetryWait(2)
    assert isinstance(decide_retry(policy, 3, OSError()), GiveUp)
    assert isinstance(decide_retry(policy, 1, PermissionError()), GiveUp)
    assert isinstance(decide_retry(policy, 1, ValueError()), GiveUp)
    assert isinstance(decide_retry(Retry(max_attempts=9), 1, FatalError("x")), GiveUp)
    assert decide_retry(policy, 1, RetryableError("x", retry_after_s=7)) == RetryWait(7)
    assert decide_retry(Retry(max_attempts=2, jitter=False), 1, StepTimeout("s", 1)) == RetryWait(1)
    assert isinstance(decide_retry(Retry(max_attempts=2), 1, UnhashableArgumentError("s", "p", "k")), GiveUp)


@given(st.integers(1, 5000), st.text(max_size=8))
def test_waits_grow_to_their_limit_and_are_spread_over_their_upper_half(attempt: int, seed: str) -> None:
    """Never negative, never above the limit, the same for the same seed."""
    policy = Retry(max_attempts=10, interval_s=0.5, backoff=2, max_interval_s=30)
    full = min(0.5 * 2 ** min(attempt - 1, 100), 30)
    wait = backoff(policy, attempt, seed)
    assert full / 2 <= wait <= full and wait == backoff(policy, attempt, seed)


# ---------------------------------------------------------------- replay


class _Entry:
    def __init__(self, seq: int, event: ev.Event, node_id: str | None) -> None:
        self.seq, self.type, self.node_id, self.event, self.created_at = seq, event.type, node_id, event, seq


def history(*events: tuple[str | None, ev.Event]) -> History:
    return History.of(_Entry(i, event, node) for i, (node, event) in enumerate(events, start=1))


_ERROR = ev.ErrorRecord(type="builtins:ValueError", message="no")
A, B = "step:a:x#1", "step:a:y#1"


def started(name: str = "a", kind: str = "step", **more: Any) -> ev.NodeStarted:
    return ev.NodeStarted(name=name, kind=kind, **more)


def test_completed_calls_are_hits_and_open_ones_live() -> None:
    """The exact key answers; a call that was interrupted runs again under its record."""
    lookup = Lookup(history((A, started()), (A, ev.NodeCompleted(result=Raw(b"1"))), (B, started())))
    assert isinstance(lookup.ask(A, "step", "a"), Hit)
    found = lookup.ask(B, "step", "a")
    assert isinstance(found, Live) and found.record is not None
    assert isinstance(lookup.ask("step:b:x#1", "step", "b"), Live)
    assert lookup.drift() == [] and lookup.exhausted


def test_a_miss_with_an_unasked_record_is_held() -> None:
    """The same kind and name with other arguments is a mismatch until the record was asked for."""
    lookup = Lookup(history((A, started()), (A, ev.NodeCompleted())))
    assert isinstance(lookup.ask(B, "step", "a"), Held)
    facts = Facts(held=(HeldCall(B, "step", "a"),), replaying=0, running=0, moved=False)
    decision = decide(facts, lookup)
    assert isinstance(decision, Pause) and decision.recorded[0].node_id == A
    for busy in ({"replaying": 1}, {"running": 1}, {"moved": True}):
        assert (
            decide(Facts(**{"held": facts.held, "replaying": 0, "running": 0, "moved": False, **busy}), lookup)
            == Wait()
        )
    lookup.ask(A, "step", "a")
    assert decide(facts, lookup) == Release((B,))


def test_accepting_runs_a_mismatch_live() -> None:
    """With accept the call says which records it gives up; once written, they do not hold anybody again."""
    events = [(A, started()), (A, ev.NodeCompleted())]
    found = Lookup(history(*events), accept=True).ask(B, "step", "a")
    assert found == Live(None, (A,))
    later = Lookup(history(*events, (None, ev.MismatchAccepted(recorded=[A], called=B))))
    assert isinstance(later.ask("step:a:z#1", "step", "a"), Live)


def test_failures_replay_only_when_the_body_passed_them() -> None:
    """An unpassed failure is tried again and holds nobody; a passed one replays; a thrown tool failure never does."""
    failed = [(A, started()), (A, ev.NodeFailed(error=_ERROR))]
    lookup = Lookup(history(*failed))
    assert isinstance(lookup.ask(B, "step", "a"), Live) and isinstance(lookup.ask(A, "step", "a"), Live)
    assert isinstance(Lookup(history(*failed, (A, ev.NodeFailurePassed()))).ask(A, "step", "a"), Hit)
    tool = "tool:a:x#1"
    thrown = history((tool, started(kind="tool")), (tool, ev.NodeFailed(error=_ERROR)), (tool, ev.NodeFailurePassed()))
    assert isinstance(Lookup(thrown).ask(tool, "tool", "a"), Live)
    kept = history((tool, started(kind="tool")), (tool, ev.NodeFailed(error=_ERROR, retained=True)))
    assert isinstance(Lookup(kept).ask(tool, "tool", "a"), Hit)


def test_the_failure_that_ended_the_run_is_tried_again_although_a_call_followed() -> None:
    """run.ended names it, which counts more than the clean-up step that came after it."""
    past = history(
        (A, started()), (A, ev.NodeFailed(error=_ERROR)), (A, ev.NodeFailurePassed()),
        (None, ev.RunEnded(status="failed", failed_node_id=A, resumable=True)),
    )  # fmt: skip
    assert isinstance(Lookup(past).ask(A, "step", "a"), Live)


def test_a_later_completion_counts_more_than_an_earlier_failure() -> None:
    """The newest event of a node is what it is."""
    past = history((A, started()), (A, ev.NodeFailed(error=_ERROR)), (A, started()), (A, ev.NodeCompleted()))
    assert past.records[A].status == "completed"


def test_tries_are_counted_over_restarts() -> None:
    """Failed tries of an interrupted call stay counted; a call that failed for good begins anew."""
    retrying = ev.NodeRetrying(attempt=2, error=_ERROR, delay_s=1)
    assert history((A, started()), (A, retrying)).records[A].failures == 2
    again = history((A, started()), (A, retrying), (A, ev.NodeFailed(error=_ERROR)), (A, started()))
    assert again.records[A].failures == 0


def test_a_request_to_cancel_counts_until_somebody_executes() -> None:
    """A cancel is pending until the next start; a new start clears it."""
    assert history((None, ev.RunStarted(worker="w")), (None, ev.CancelRequested(by="ann"))).cancel is not None
    assert history((None, ev.CancelRequested()), (None, ev.RunStarted(worker="w"))).cancel is None


def test_progress_bars_are_read() -> None:
    """tqdm's line says how far it is, with or without a total."""
    assert read_bar(" 40%|████      | 2/5 [00:01<00:01,  1.9it/s]") == (2, 5)
    assert read_bar("load:  10%|█ | 1.5k/15k [00:01<00:01]") == (1500, 15000)
    assert read_bar("load: 120it [00:01, 99it/s]") == (120, None)
    assert read_bar("just a line") is None


def test_the_deciding_half_is_pure() -> None:
    """graph, frontier, retries and replay import no asyncio, no clock and no journal."""
    code = (
        "import sys, ast, pathlib\n"
        "for name in ('graph', 'frontier', 'retries', 'replay'):\n"
        "    tree = ast.parse(pathlib.Path(f'loom_kernel/engine/{name}.py').read_text())\n"
        "    for node in ast.walk(tree):\n"
        "        names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ''] if isinstance(node, ast.ImportFrom) else []\n"
        "        for n in names:\n"
        "            assert not n.startswith(('asyncio', 'loom_kernel.journal', 'loom_kernel.clock')), (name, n)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
