"""What is drawn: order, folding, labels."""

from __future__ import annotations

import random

import pytest

from loom_kernel.views.graph import graph
from loom_kernel.views.run import RunView
from tests.views import histories
from tests.views.histories import History

pytestmark = pytest.mark.timeout(30)


def labels(view: RunView) -> list[str]:
    return [box.label for box in graph(view).boxes]


def test_many_alike_become_one_stack() -> None:
    """More than twelve siblings of one name fold; the counts name what failed and what runs."""
    g = graph(histories.fan_out(800, failures=3).view())
    assert [b.label for b in g.boxes] == ["plan", "fetch × 800"]
    assert g.boxes[1].count_words() == "597 done, 3 failed, 200 running"
    assert g.boxes[1].status == "running"
    assert g.edges == [(0, 1)]
    assert len(graph(histories.fan_out(12).view()).boxes) == 13
    assert len(graph(histories.fan_out(13).view()).boxes) == 2


def test_a_second_stage_of_a_fan_out_folds_too() -> None:
    """Branches of two steps give two stacks, joined by one edge."""
    h = History()
    h.started()
    plan = h.step("plan")
    for i in range(20):
        fetch = h.step("fetch", [plan], args={"n": i})
        h.step("parse", [fetch], args={"n": i})
    g = graph(h.view())
    assert [b.label for b in g.boxes] == ["plan", "fetch × 20", "parse × 20"]
    assert g.edges == [(0, 1), (1, 2)]


def test_a_long_chain_of_one_name_folds() -> None:
    """Five hundred steps in a row are one stack between what comes before and after."""
    h = History()
    h.started()
    at = h.step("open")
    for i in range(500):
        at = h.step("page", [at], args={"n": i})
    h.step("close", [at])
    g = graph(h.view())
    assert [b.label for b in g.boxes] == ["open", "page × 500", "close"]
    assert g.edges == [(0, 1), (1, 2)]


def test_questions_never_hide_in_a_stack() -> None:
    """However many questions are open at once, each has its box."""
    h = History()
    h.started()
    for i in range(20):
        h.ask("go", "Go?", node_id=f"prompt:go:#{i + 1}")
    assert len(graph(h.view()).boxes) == 20


def test_alike_nodes_are_told_apart_by_their_arguments() -> None:
    """The argument that differs stands beside the name, without what all of them share; else a number."""
    assert labels(histories.running().view())[2:4] == ["outliers · temp_max", "outliers · temp_min"]
    assert labels(histories.fan_out(2).view())[1:] == ["fetch · 0", "fetch · 1"]
    h = History()
    h.started()
    for _ in range(3):
        h.step("tick")
    assert labels(h.view()) == ["tick", "tick · 2", "tick · 3"]
    h = History()
    h.started()
    for folder in ("a/x", "a/y", "a/y"):
        h.step("read", args={"path": folder, "limit": 3})
    assert labels(h.view()) == ["read · x", "read · y", "read · y 2"]


def test_the_order_does_not_depend_on_which_branch_is_faster() -> None:
    """Two branches of two steps come out alike, whichever second step starts first."""

    def run(first: int) -> list[str]:
        h = History()
        h.started()
        plan = h.step("plan")
        branches = [h.step(name, [plan]) for name in ("a", "b")]
        for i in (first, 1 - first):
            h.step(f"{'ab'[i]}2", [branches[i]])
        return labels(h.view())

    assert run(0) == run(1) == ["plan", "a", "b", "a2", "b2"]


def test_parents_stand_before_children() -> None:
    """Edges point forward in the order of boxes, unknown parents are left out and a ring is broken."""
    h = History()
    h.started()
    rng = random.Random(1)
    ids: list[str] = []
    for i in range(60):
        parents = rng.sample(ids, min(len(ids), rng.randint(0, 3)))
        ids.append(h.step(f"n{i}", [*parents, "step:unknown:#1"]))
    g = graph(h.view())
    assert len(g.boxes) == 60 and all(a < b for a, b in g.edges)
    view = h.view()
    view.nodes[ids[0]].parents = (ids[-1],)
    view.nodes[ids[-1]].parents = (ids[0],)
    assert len(graph(view).boxes) == 60
