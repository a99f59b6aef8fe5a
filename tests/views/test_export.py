"""The graph for other tools."""

from __future__ import annotations

import re

import pytest

from loom_kernel.views.export import to_dot, to_mermaid, to_networkx
from tests.views import histories
from tests.views.histories import History

pytestmark = pytest.mark.timeout(30)


def test_mermaid_and_dot_hold_the_picture() -> None:
    """Boxes, edges and states are there, many alike folded."""
    view = histories.fan_out(40).view()
    assert to_mermaid(view).splitlines()[:4] == ["flowchart LR", '  n0["plan"]', '  n1["fetch × 40"]', "  n0 --> n1"]
    assert "class n1 running" in to_mermaid(view)
    assert 'n1 [label="fetch × 40", color="#1976d2"];' in to_dot(view)


def test_odd_names_do_not_break_them() -> None:
    """Quotes, brackets and line ends in names stay inside their labels."""
    h = History('a"b\\')
    h.started()
    h.step('x"] --> n9 %% \n y\\')
    view = h.view()
    assert re.fullmatch(r'  n0\["[^"\[\]\n]*"\]', to_mermaid(view).splitlines()[1])
    assert to_dot(view).startswith('digraph "a\\"b\\\\" {')
    assert len(to_dot(view).splitlines()) == 5


def test_networkx_gets_every_node() -> None:
    """Unfolded, with node ids, attributes and edges."""
    pytest.importorskip("networkx")
    view = histories.fan_out(40).view()
    g = to_networkx(view)
    assert g.number_of_nodes() == 41 and g.number_of_edges() == 40
    assert g.nodes[view.order[0]]["name"] == "plan"
    assert g.nodes[view.order[1]]["args"] == {"url": "https://example.org/feed/0"}
