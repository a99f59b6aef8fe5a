"""What a saved notebook keeps."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser

import pytest

from loom_kernel.views.text import bundle, plain, static_html, summary
from tests.views import histories
from tests.views.histories import History, error, raw

pytestmark = pytest.mark.timeout(30)
STATES = ["waiting", "running", "failing", "completed", "fan_out", "form", "mixed"]


def test_the_text_says_it_in_lines() -> None:
    """A line for the run, one a node, many alike in one."""
    assert plain(histories.completed().view()).splitlines() == [
        "clean-weather: completed, 8 of 8 steps",
        "  ✓ read",
        "  ✓ profile",
        "  ✓ outliers · temp_max",
        "  ✓ outliers · temp_min",
        "  ✓ outliers · precipitation",
        "  ✓ outliers · wind",
        "  ✓ drop? yes",
        "  ✓ write",
        "  ✓ check",
    ]
    assert plain(histories.fan_out(800).view()).splitlines()[-1] == "  ● fetch × 800: 598 done, 2 failed, 200 running"
    assert "Drop these 37 of 1,461 rows? (answer with %loom answer drop yes)" in plain(histories.waiting().view())
    assert plain(histories.failing().view()).endswith("PermissionError: 'out/clean.parquet' is not writable")
    assert summary(histories.failing().view()) == "clean-weather: failed at write, 6 of 7 steps"


@pytest.mark.parametrize("name", STATES)
def test_nothing_in_the_text_changes_from_run_to_run(name: str) -> None:
    """No ids, times, durations, tries or addresses."""
    h = getattr(histories, name)()
    text = plain(h.view())
    assert h.run_id not in text
    assert not re.search(r"\d\s?(s|ms|m \d\d s)\b|0x[0-9a-f]+|#\d|\b[0-9a-f]{12,}\b|20\d\d-\d\d-\d\d", text), text


def test_addresses_in_messages_are_dropped() -> None:
    """An error that prints an object does not make every run read differently."""
    h = History()
    h.started()
    h.ended("failed", error=error(message="bad <Thing object at 0x7f3a9c01d4e0>"))
    assert "<Thing object at 0x…>" in plain(h.view())
    assert "0x7f3a" not in static_html(h.view())


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.pictures: list[str] = []
        self.depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.depth += tag != "img"
        if tag == "img":
            self.pictures.append(dict(attrs)["src"] or "")

    def handle_endtag(self, tag: str) -> None:
        self.depth -= 1


@pytest.mark.parametrize("name", STATES)
def test_the_fragment_survives_a_sanitizer(name: str) -> None:
    """The graph is an image; there is no inline SVG, style block or script, and every element is closed."""
    page = _Tags()
    page.feed(static_html(getattr(histories, name)().view()))
    assert page.tags <= {"div", "b", "span", "img", "pre", "code", "table", "thead", "tbody", "tr", "th", "td"}
    assert page.depth == 0
    (picture,) = page.pictures
    assert base64.b64decode(picture.removeprefix("data:image/svg+xml;base64,")).startswith(b"<svg ")


def test_the_live_view_finds_its_picture() -> None:
    """The fragment names its run, for the live view's style to hide it."""
    h = histories.waiting()
    assert static_html(h.view()).startswith(f'<div class="wf-static" data-run="{h.run_id}"')


def test_words_of_people_are_escaped() -> None:
    """Messages, tables, errors and results are text in the fragment."""
    bad = "<script>alert(1)</script>"
    h = History(bad)
    h.started()
    shown = histories.OUTLIERS.__class__(kind="table", columns=[bad], rows=[[bad]], total=1)
    h.ask("go", bad, shown=[shown])
    page = _Tags()
    page.feed(static_html(h.view()))
    assert "script" not in page.tags
    h.ended("completed", result=raw({"x": bad}))
    page.feed(static_html(h.view()))
    assert "script" not in page.tags


def test_without_times_the_fragment_is_stable() -> None:
    """Headless, two executions of one job give the same fragment but for the run's id."""

    def job(step_s: float, run_id: str) -> str:
        h = History(run_id=run_id)
        h.started()
        h.step("write", [h.step("read", took_s=step_s)], took_s=step_s)
        h.ended()
        return static_html(h.view(), times=False).replace(run_id, "ID")

    assert job(0.1, "a" * 12) == job(7.5, "b" * 12)
    assert set(bundle(histories.completed().view())) == {"text/plain", "text/html"}
