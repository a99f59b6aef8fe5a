"""Where boxes stand: a layered drawing from left to right, in plain Python.

A column is a rank (the longest way from a source), so a box never moves to another column while a run grows: new
boxes only ever hang on old ones. Within a column boxes keep the order they come in, unless moving them takes away
crossings. The result depends on nothing but the structure, so the live view and the saved picture agree.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

HEIGHT = 44.0
GAP_X = 36.0
GAP_Y = 12.0
MARGIN = 14.0
_SWEEPS = 8
_SPREAD = 8
_STRAIGHTEN = 2
_MOST_BENDS = 4_000  # in all; beyond that, lines over more than two columns run straight behind what is between
_BEND = 6.0  # what a line that only passes through a column takes of its height


@dataclass(frozen=True, slots=True)
class Place:
    """A box's corner and size, pixels."""

    x: float
    y: float
    w: float
    h: float
    column: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Places in the order of the boxes, one SVG path an edge in the order of the edges, and the size of it all."""

    places: tuple[Place, ...]
    paths: tuple[str, ...]
    width: float
    height: float


def layout(widths: Sequence[float], edges: Sequence[tuple[int, int]]) -> Layout:
    """Lay out boxes of these widths (pixels). Cached by structure.

    Args:
        widths: one entry a box; a column is as wide as its widest box, and so are the others in it.
        edges: pairs of indices, the first one being the parent and lower; a ring is not allowed.
    """
    return _layout(tuple(widths), tuple(edges))


@lru_cache(maxsize=64)
def _layout(widths: tuple[float, ...], edges: tuple[tuple[int, int], ...]) -> Layout:
    n = len(widths)
    if n == 0:
        return Layout((), (), 2 * MARGIN, 2 * MARGIN)
    ranks, bends = _ranks(n, edges)
    up, down, rank_of = _with_bends(n, edges, ranks, bends)
    columns = _order(up, down, rank_of)
    middles = _middles(columns, up, down, n)
    left, width = [0.0] * len(columns), [0.0] * len(columns)
    x = MARGIN
    for c, column in enumerate(columns):
        left[c], width[c] = x, max((widths[u] for u in column if u < n), default=0.0)
        x += width[c] + GAP_X
    top = min(middles[u] - (HEIGHT / 2 if u < n else _BEND / 2) for u in range(len(rank_of)))
    bottom = max(middles[u] + (HEIGHT / 2 if u < n else _BEND / 2) for u in range(len(rank_of)))
    middles = [round(m - top + MARGIN, 1) for m in middles]
    places = tuple(Place(left[ranks[i]], middles[i] - HEIGHT / 2, width[ranks[i]], HEIGHT, ranks[i]) for i in range(n))
    paths = tuple(_path(a, b, bends[e], middles, left, width, ranks) for e, (a, b) in enumerate(edges))
    return Layout(places, paths, x - GAP_X + MARGIN, round(bottom - top + 2 * MARGIN, 1))


def _ranks(n: int, edges: tuple[tuple[int, int], ...]) -> tuple[list[int], list[list[int]]]:
    rank = [0] * n
    for a, b in sorted(edges, key=lambda e: e[1]):  # parents have lower indices, so one pass is enough
        rank[b] = max(rank[b], rank[a] + 1)
    bends, free = [], n
    crowded = sum(rank[b] - rank[a] - 1 for a, b in edges) > _MOST_BENDS
    for a, b in edges:
        count = rank[b] - rank[a] - 1
        if crowded and count > 1:
            count = 0
        bends.append(list(range(free, free + count)))
        free += count
    return rank, bends


def _with_bends(
    n: int, edges: tuple[tuple[int, int], ...], ranks: list[int], bends: list[list[int]]
) -> tuple[list[list[int]], list[list[int]], list[int]]:
    """Neighbours left and right of every box and bend, bends being the columns that a long edge passes through."""
    rank_of = ranks + [0] * sum(map(len, bends))
    up: list[list[int]] = [[] for _ in rank_of]
    down: list[list[int]] = [[] for _ in rank_of]
    for (a, b), through in zip(edges, bends, strict=True):
        if ranks[b] - ranks[a] != len(through) + 1:
            continue  # a line without bends says nothing about the order of neighbours
        way = [a, *through, b]
        for k, (p, q) in enumerate(pairwise(way)):
            down[p].append(q)
            up[q].append(p)
            if q != b:
                rank_of[q] = ranks[a] + k + 1
    return up, down, rank_of


def _order(up: list[list[int]], down: list[list[int]], rank_of: list[int]) -> list[list[int]]:
    columns: list[list[int]] = [[] for _ in range(max(rank_of) + 1)]
    seen = [False] * len(rank_of)
    for source in range(len(rank_of)):
        if up[source]:
            continue
        todo = [source]
        while todo:
            u = todo.pop()
            if not seen[u]:
                seen[u] = True
                columns[rank_of[u]].append(u)
                todo.extend(reversed(down[u]))
    at = [0] * len(rank_of)

    def number(column: list[int]) -> None:
        for i, u in enumerate(column):
            at[u] = i

    for column in columns:
        number(column)
    best, fewest = [list(c) for c in columns], _crossings(columns, down, at)
    for sweep in range(_SWEEPS):
        if fewest == 0:
            break
        rightwards = sweep % 2 == 0
        beside = up if rightwards else down
        for column in columns[1:] if rightwards else columns[-2::-1]:
            key = {u: _median([at[v] for v in beside[u]], at[u]) for u in column}
            column.sort(key=key.__getitem__)
            number(column)
        crossings = _crossings(columns, down, at)
        if crossings < fewest:
            best, fewest = [list(c) for c in columns], crossings
    return best


def _median(places: list[int], own: int) -> float:
    if not places:
        return own
    places.sort()
    half = len(places) // 2
    middle = places[half] if len(places) % 2 else (places[half - 1] + places[half]) / 2
    return middle + sum(places) / len(places) * 1e-3


def _crossings(columns: list[list[int]], down: list[list[int]], at: list[int]) -> int:
    total = 0
    for column in columns[:-1]:
        ends: list[int] = []
        for u in column:
            for end in sorted(at[v] for v in down[u]):
                # `ends` is kept sorted: what lies to the right of the insertion was begun above and ends below.
                i = bisect_right(ends, end)
                total += len(ends) - i
                ends.insert(i, end)
    return total


def _middles(columns: list[list[int]], up: list[list[int]], down: list[list[int]], n: int) -> list[float]:
    """Heights of the middles: each column is pulled towards its neighbours as far as the gaps allow."""
    y = [0.0] * len(up)
    size = [HEIGHT] * n + [_BEND] * (len(up) - n)
    for column in columns:
        used = sum(size[u] + GAP_Y for u in column) - GAP_Y
        at = -used / 2
        for u in column:
            y[u] = at + size[u] / 2
            at += size[u] + GAP_Y

    # A neighbour that hangs on this box alone pulls fully, one of many neighbours by its share: so a box stands in
    # the middle of its own branches, not of everybody's.
    pulls = [[(v, 1 / len(down[v])) for v in up[u]] + [(v, 1 / len(up[v])) for v in down[u]] for u in range(len(up))]
    weights = [sum(w for _, w in pull) or 1.0 for pull in pulls]
    for sweep in range(_SPREAD):
        for column in columns if sweep % 2 == 0 else reversed(columns):
            want = [sum(y[v] * w for v, w in pulls[u]) / weights[u] if pulls[u] else y[u] for u in column]
            _spread(column, want, size, y, weights)
    for _ in range(_STRAIGHTEN):
        _straighten(columns, up, down, pulls, size, y)
    return y


def _straighten(
    columns: list[list[int]],
    up: list[list[int]],
    down: list[list[int]],
    pulls: list[list[tuple[int, float]]],
    size: list[float],
    y: list[float],
) -> None:
    """Put chains on one line: where two have only each other, both want what all of their chain want together."""
    head = list(range(len(up)))
    for column in columns[1:]:
        for u in column:
            if len(up[u]) == 1 and len(down[up[u][0]]) == 1:
                head[u] = head[up[u][0]]
    wishes, weights = [0.0] * len(up), [0.0] * len(up)
    for u, pull in enumerate(pulls):
        for v, weight in pull:
            if head[v] != head[u]:
                wishes[head[u]] += y[v] * weight
                weights[head[u]] += weight
    wish = [wishes[h] / weights[h] if weights[h] else y[h] for h in head]
    strength = [weights[h] or 1.0 for h in head]
    for column in columns:
        _spread(column, [wish[u] for u in column], size, y, strength)


def _spread(column: list[int], want: list[float], size: list[float], y: list[float], weights: list[float]) -> None:
    """Put a column as near to ``want`` as its gaps allow (least squares; neighbours that touch move as one block)."""
    offsets, offset = [0.0], 0.0
    for above, below in pairwise(column):
        offset += (size[above] + size[below]) / 2 + GAP_Y
        offsets.append(offset)
    blocks: list[list[float]] = []  # sum of weighted wishes, weight, members
    for u, wish, off in zip(column, want, offsets, strict=True):
        weight = weights[u]
        blocks.append([(wish - off) * weight, weight, 1])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            total, weight, members = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += weight
            blocks[-1][2] += members
    i = 0
    for total, weight, members in blocks:
        for _ in range(int(members)):
            y[column[i]] = total / weight + offsets[i]
            i += 1


def _path(
    a: int, b: int, through: list[int], y: list[float], left: list[float], width: list[float], ranks: list[int]
) -> str:
    column = ranks[a]
    x, at = left[column] + width[column], y[a]
    parts = [f"M{x:g} {at:g}"]
    for bend in [*through, b]:
        column = column + 1 if bend != b else ranks[b]
        to, end = left[column], y[bend]
        if abs(end - at) < 0.5:
            parts.append(f"H{to:g}")
        else:
            half = (x + to) / 2
            parts.append(f"C{half:g} {at:g} {half:g} {end:g} {to:g} {end:g}")
        if bend != b:
            to += width[column]
            parts.append(f"H{to:g}")
        x, at = to, end
    return "".join(parts)
