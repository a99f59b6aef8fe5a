"""Where boxes stand."""

from __future__ import annotations

import random
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_kernel.views.layout import GAP_Y, Layout, _layout, layout

pytestmark = pytest.mark.timeout(60)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[float], list[tuple[int, int]]]:
    """Any acyclic graph of up to thirty boxes, with widths."""
    n = draw(st.integers(1, 30))
    widths = draw(st.lists(st.integers(80, 240).map(float), min_size=n, max_size=n))
    pairs = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda p: p[0] < p[1])
    edges = draw(st.lists(pairs, max_size=60, unique=True)) if n > 1 else []
    return widths, edges


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_boxes_do_not_overlap_and_edges_run_to_the_right(graph) -> None:  # type: ignore[no-untyped-def]
    """Whatever the graph, boxes keep their distance, lie inside the picture, and each edge leads rightwards."""
    widths, edges = graph
    made = layout(widths, edges)
    places = made.places
    for i, p in enumerate(places):
        assert p.w >= widths[i]
        assert p.x >= 0 and p.y >= 0 and p.x + p.w <= made.width and p.y + p.h <= made.height
        for q in places[i + 1 :]:
            apart = (
                p.x + p.w < q.x or q.x + q.w < p.x or p.y + p.h + GAP_Y <= q.y + 0.2 or q.y + q.h + GAP_Y <= p.y + 0.2
            )
            assert apart
    for a, b in edges:
        assert places[a].x + places[a].w < places[b].x


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_paths_begin_and_end_at_their_boxes(graph) -> None:  # type: ignore[no-untyped-def]
    """A path leaves the middle of the right side and arrives at the left side of its boxes, without odd numbers."""
    widths, edges = graph
    made = layout(widths, edges)
    for (a, b), path in zip(edges, made.paths, strict=True):
        assert re.fullmatch(r"[MCH\d. -]+", path), path
        pa, pb = made.places[a], made.places[b]
        assert path.startswith(f"M{pa.x + pa.w:g} ")
        assert path.endswith(f"H{pb.x:g}") or re.search(rf" {pb.x:g} {pb.y + pb.h / 2:g}$", path), (path, pb)


@settings(max_examples=30, deadline=None)
@given(graphs())
def test_the_same_structure_gives_the_same_layout(graph) -> None:  # type: ignore[no-untyped-def]
    """Nothing but the structure counts; a second time it comes from the cache."""
    widths, edges = graph
    first = layout(widths, edges)
    assert layout(widths, edges) is first
    _layout.cache_clear()
    assert layout(widths, edges) == first


def x_of(made: Layout) -> list[float]:
    return [p.x for p in made.places]


@settings(max_examples=30, deadline=None)
@given(graphs(), st.data())
def test_a_box_never_changes_its_column_while_the_graph_grows(graph, data) -> None:  # type: ignore[no-untyped-def]
    """New boxes hang on old ones, so what is drawn already keeps its column."""
    widths, edges = graph
    n = data.draw(st.integers(1, len(widths)))
    before = layout(widths[:n], [e for e in edges if e[1] < n])
    after = layout(widths, edges)
    assert [p.column for p in before.places] == [p.column for p in after.places[:n]]


def test_growing_at_the_end_moves_nothing() -> None:
    """A chain, and a fan that is joined again, keep every place when the next step comes."""
    edges = [(0, 1), (1, 2), (1, 3), (1, 4), (2, 5), (3, 5), (4, 5)]
    made = [layout([128.0] * n, [e for e in edges if e[1] < n]) for n in range(5, 7)]
    assert made[0].places == made[1].places[:5]
    chain = [layout([128.0] * n, [(i - 1, i) for i in range(1, n)]) for n in (3, 9)]
    assert chain[0].places == chain[1].places[:3]


def test_a_chain_runs_straight_and_branches_are_centred() -> None:
    """One row for a chain; a join stands in the middle of its own branches."""
    assert len({p.y for p in layout([128.0] * 5, [(i, i + 1) for i in range(4)]).places}) == 1
    made = layout([128.0] * 5, [(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4)])
    y = [p.y for p in made.places]
    assert y[0] == y[2] == y[4] and y[1] < y[2] < y[3]


def test_an_empty_graph_has_a_size() -> None:
    """Nothing to draw is no error."""
    assert layout([], []).places == ()


def test_a_thousand_nodes_are_laid_out_in_time() -> None:
    """A layered graph of 1,000 boxes and about 1,400 edges takes less than 300 ms of a processor (best of three)."""
    rng = random.Random(1)
    edges = set()
    for i in range(10, 1_000):
        layer = i // 10
        for _ in range(1 + (rng.random() < 0.35)):
            edges.add(((layer - 1) * 10 + rng.randrange(10), i))
        if layer > 3 and rng.random() < 0.05:
            edges.add((rng.randrange((layer - 2) * 10), i))
    best = 9.0
    for _ in range(3):
        _layout.cache_clear()
        begun = time.process_time()
        layout([128.0] * 1_000, sorted(edges))
        best = min(best, time.process_time() - begun)
    assert best < 0.3
