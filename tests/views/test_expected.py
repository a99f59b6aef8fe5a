"""Boxes for what may come: drawn until the real ones are there, and nodes in no other way."""

from __future__ import annotations

import pytest

from loom_kernel import events as ev
from loom_kernel.views.detail import detail
from loom_kernel.views.export import to_networkx
from loom_kernel.views.finding import find
from loom_kernel.views.graph import graph
from loom_kernel.views.live import LiveShots
from loom_kernel.views.run import RunView
from loom_kernel.views.snapshot import snapshot
from loom_kernel.views.svg import svg
from loom_kernel.views.text import plain
from tests.views.histories import History


def labels(view: RunView) -> list[str]:
    return [box.label for box in graph(view).boxes]


@pytest.fixture
def announced() -> tuple[History, str]:
    """A plan, and two names of what may come after it."""
    h = History()
    h.started()
    plan = h.step("plan")
    h.add(ev.BranchesAnnounced(index=1, names=["draft", "review-*"], parents=[plan]))
    return h, plan


def test_what_may_come_is_drawn_pale_below_what_it_comes_after(announced: tuple[History, str]) -> None:
    """In the picture, the live view and the text; no counts, no search, no graph of nodes knows of it."""
    h, _ = announced
    view = h.view()
    assert labels(view) == ["plan", "draft", "review-*"] and graph(view).edges == [(0, 1), (0, 2)]
    assert svg(view).count('opacity="0.55"') == 2
    shot = snapshot(view, h.now)
    assert [(b["kind"], b["status"], b["note"]) for b in shot["graph"]["boxes"][1:]] == [
        ("expected", "pending", "may come")
    ] * 2
    assert (shot["counts"]["total"], shot["nodes"], list(view.nodes)) == (1, 1, view.order)
    assert plain(view).splitlines()[-1].endswith("review-*: may come")
    assert find(view, "review")["boxes"] == [] and to_networkx(view).number_of_nodes() == 1
    opened = detail(view, shot["graph"]["boxes"][1]["id"])
    assert (opened["label"], opened["facts"], opened["output"]) == ("draft", ["may come"], "")


def test_a_node_of_the_name_takes_its_place(announced: tuple[History, str]) -> None:
    """Also one deeper in a branch; a glob is done with its first node. A live view is told what goes and what comes."""
    h, plan = announced
    view = h.view()
    live = LiveShots(view)
    before = [box["id"] for box in live.whole(h.now)["graph"]["boxes"]]
    draft = h.step("draft", [plan])
    for entry in h.entries:
        view.apply(entry)
    delta = live.delta(h.now)
    assert delta is not None and delta["gone"] == [before[1]] and [n["box"]["label"] for n in delta["new"]] == ["draft"]
    assert labels(view) == ["plan", "draft", "review-*"]
    h.step("review-1", [draft])
    h.step("review-2", [draft])
    assert labels(h.view()) == ["plan", "draft", "review-1", "review-2"]


@pytest.mark.parametrize("end", ["settled", "ended", "resumed"])
def test_nothing_is_expected_any_more(announced: tuple[History, str], end: str) -> None:
    """When the branches have settled, when the run has ended, and when it goes on, which announces anew."""
    h, _ = announced
    if end == "settled":
        h.add(ev.BranchesSettled(index=1))
    elif end == "ended":
        h.ended()
    else:
        h.paused()
        assert len(labels(h.view())) == 3
        h.started(resumed=True)
    view = h.view()
    assert labels(view) == ["plan"] and view.expected == []


def test_in_a_loop_names_of_an_earlier_turn_do_not_count(announced: tuple[History, str]) -> None:
    """What comes before the branches is not one of them; what an earlier execution did of them is."""
    h, plan = announced
    draft, review = h.step("draft", [plan]), h.step("review-1", [plan])
    h.add(ev.BranchesSettled(index=1))
    h.add(ev.BranchesAnnounced(index=2, names=["draft", "review-*"], parents=[draft, review]))
    assert labels(h.view()).count("draft") == 2 and labels(h.view())[-1] == "review-*"
    second = h.step("draft", [draft, review])
    assert labels(h.view())[-1] == "review-*" and len(labels(h.view())) == 5
    h.paused()
    h.started(resumed=True)
    h.add(ev.BranchesAnnounced(index=2, names=["draft", "review-*"], parents=[draft, review]))
    view = h.view()
    assert second in view.nodes and len(view.nodes) == 4 and [node.name for node in view.expected] == ["review-*"]
