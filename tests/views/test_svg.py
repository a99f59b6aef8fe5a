"""The picture that stays."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_kernel.views.svg import svg
from tests.views import histories
from tests.views.histories import History, error

pytestmark = pytest.mark.timeout(30)
NS = "{http://www.w3.org/2000/svg}"
HOSTILE = '</text><script>alert(1)</script><img src=x onerror="alert(2)">&amp;\x00\x0b\ud800"\''


def parse(text: str) -> ET.Element:
    return ET.fromstring(text.encode())


@pytest.mark.parametrize("name", ["waiting", "running", "failing", "completed", "fan_out", "form", "mixed"])
def test_every_state_draws_a_picture(name: str) -> None:
    """It is well formed, says in words what it shows, and has nothing that a page could trip on."""
    h = getattr(histories, name)()
    root = parse(svg(h.view()))
    assert root.get("role") == "img" and h.view().workflow in root.get("aria-label", "")
    tags = {el.tag.removeprefix(NS) for el in root.iter()}
    assert tags <= {"svg", "g", "path", "rect", "circle", "text", "title"}
    for el in root.iter():
        assert not {"style", "class", "href", "onclick", "onload"} & set(el.attrib)


def test_hostile_names_stay_text() -> None:
    """Markup in a name is drawn as it is written."""
    h = History(HOSTILE.encode(errors="replace").decode())
    h.started()
    h.failed(h.start("x" + HOSTILE.encode(errors="replace").decode()), error("m:<b>", "<i>"))
    root = parse(svg(h.view()))
    assert {el.tag.removeprefix(NS) for el in root.iter()} <= {"svg", "g", "path", "rect", "circle", "text", "title"}
    assert any("<script>" in (el.text or "") for el in root.iter())


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=60))
def test_any_name_gives_well_formed_xml(name: str) -> None:
    """Characters that XML does not have are left out."""
    h = History("w")
    h.started()
    view = h.view()
    node = h.start("step")
    view = h.view()
    view.workflow = name
    view.nodes[node].name = name
    parse(svg(view))


def test_the_same_job_gives_the_same_bytes() -> None:
    """Without durations two runs of one job differ in nothing."""
    slow, fast = histories.completed(), History(run_id="another12345")
    fast.entries = list(slow.entries)
    assert svg(slow.view(), times=False) == svg(fast.view(), times=False)
    texts = [el.text or "" for el in parse(svg(slow.view(), times=False)).iter(f"{NS}text")]
    assert not any(t.endswith(" s") for t in texts)


def test_the_id_names_the_structure() -> None:
    """Two states of one structure have one id, another structure has another."""
    h = histories.running()
    first = parse(svg(h.view())).get("id")
    h.done(h.view().order[-1])
    assert parse(svg(h.view())).get("id") == first
    h.step("more")
    assert parse(svg(h.view())).get("id") != first
