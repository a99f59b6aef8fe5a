"""The widget in a real browser, on a page of its own: what it shows, what it sends, what it costs."""

from __future__ import annotations

import base64
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loom_kernel import codec
from loom_kernel import events as ev
from loom_kernel.views.detail import detail
from loom_kernel.views.finding import find
from loom_kernel.views.live import LiveShots
from loom_kernel.views.run import RunView
from loom_kernel.views.snapshot import snapshot
from loom_kernel.views.text import static_html
from loom_kernel.views.times import timeline
from tests.e2e.widget_page import BUNDLE, WidgetPage, widget_page
from tests.views import histories
from tests.views.histories import History

pytestmark = pytest.mark.timeout(120)

HOSTILE = '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>'


def shot_of(h: History) -> dict[str, Any]:
    return snapshot(h.view(), h.now)


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[WidgetPage]:
    """One browser for all tests here; each loads its own page."""
    if not BUNDLE.exists():
        if os.environ.get("LOOM_REQUIRE_BROWSER"):
            pytest.fail("the widget is not built: python hatch_build.py")
        pytest.skip("the widget is not built: python hatch_build.py")
    with widget_page(chromium) as page:
        yield page


@pytest.fixture
def widget(browser: WidgetPage) -> Iterator[WidgetPage]:
    """A page without problems: an error in the browser's console fails the test."""
    browser.problems.clear()
    browser.page.set_viewport_size({"width": 900, "height": 700})
    yield browser
    assert browser.problems == []


def test_the_bundle_is_small_and_stays_home() -> None:
    """At most 40 kB, since each view carries it, and nothing is fetched from anywhere."""
    if not BUNDLE.exists():
        pytest.skip("the widget is not built: python hatch_build.py")
    code = BUNDLE.read_text()
    assert len(code.encode()) <= 40_000
    addresses = set(re.findall(r"https?://[^\"'`\s]*", code))
    assert addresses <= {"http://www.w3.org/2000/svg"}, "the name of SVG's elements is no address to load from"
    assert not re.search(r"\bimport\s*\(|@import|\burl\(|\bfetch\(|innerHTML|eval\(", code)


def test_a_yes_is_one_click(widget: WidgetPage) -> None:
    """Yes sends the question's node and generation with a true value; the form then waits for its outcome."""
    widget.load(shot_of(histories.waiting()))
    assert widget.page.locator(".wf-message").inner_text() == "Drop these 37 of 1,461 rows?"
    assert widget.page.locator(".wf-rows tbody tr").count() == 3
    assert "%loom answer drop yes" in widget.page.locator(".wf-hint").inner_text()
    widget.page.click("[data-answer=yes]")
    (message,) = widget.sent("answer")
    assert (message["prompt"], message["generation"], message["value"]) == ("prompt:drop:#1", 1, True)
    assert message["request"]
    assert widget.page.locator("[data-answer=yes]").is_disabled()
    widget.say({"type": "ack", "request": message["request"], "ok": False, "text": "ben was first"})
    assert widget.page.locator(".wf-ask .wf-problem").inner_text() == "ben was first"
    assert widget.page.locator("[data-answer=no]").is_enabled()
    widget.push(shot_of(histories.completed()))
    assert widget.page.locator(".wf-ask").count() == 0


def test_words_of_others_stay_text(widget: WidgetPage) -> None:
    """Markup in names, messages, tables, errors, logs and results is shown as written and runs nothing."""
    h = History(HOSTILE)
    h.started()
    node = h.start(HOSTILE, args={"x": HOSTILE})
    h.add(ev.NodeLogged(attempt=1, lines=[HOSTILE]), node)
    h.failed(node, histories.error(f"m:{HOSTILE}", HOSTILE, ev.Frame(HOSTILE, 1, HOSTILE, HOSTILE), notes=[HOSTILE]))
    h.add(ev.OutputReported(value=histories.raw(HOSTILE)))
    table = ev.Shown(kind="table", columns=[HOSTILE], rows=[[HOSTILE]], total=1)
    h.ask("go", HOSTILE, kind="select", options=[HOSTILE, "b"],
          shown=[table, ev.Shown(kind="markdown", text=HOSTILE), ev.Shown(kind="image", text="https://example.org/x.png")])  # fmt: skip
    view = h.view()
    widget.load(shot_of(h))
    widget.page.locator(".wf-node").first.click()
    widget.say({"type": "detail", **detail(view, node)})
    widget.page.click("[data-tab=log]")
    widget.say({"type": "detail", **detail(view, "")})
    widget.page.wait_for_timeout(100)
    assert widget.page.evaluate("() => window.pwned") is None
    assert widget.page.locator("#at img, #at script").count() == 0
    assert HOSTILE in widget.page.locator(".wf-message").inner_text()


def test_typing_survives_updates(widget: WidgetPage) -> None:
    """A snapshot that arrives while a person types leaves the field, its text and the focus as they are."""
    h, found = histories.weather()
    h.ask("who", "Who gets it?", found, kind="input")
    widget.load(shot_of(h))
    widget.page.locator(".wf-input").click()
    widget.page.keyboard.type("ana@exa")
    h.step("beside", found[:1])
    widget.push(shot_of(h))
    widget.page.keyboard.type("mple.org")
    widget.page.keyboard.press("Enter")
    assert widget.sent("answer")[0]["value"] == "ana@example.org"


def test_a_form_checks_before_it_sends(widget: WidgetPage) -> None:
    """Problems stand under their fields, also those of the last refusal; a good form is sent as an object."""
    widget.load(shot_of(histories.form()))
    page = widget.page
    row = page.locator(".wf-field", has_text="Threshold")
    assert row.locator(".wf-problem").inner_text() == "must be above 1 for z-score"
    row.locator("input").fill("twelve")
    page.click("button[type=submit]")
    assert row.locator(".wf-problem").inner_text() == "not a number"
    assert page.locator(".wf-field", has_text="Method").locator(".wf-problem").inner_text() == "choose one"
    assert widget.sent("answer") == []
    row.locator("input").fill("2.5")
    page.get_by_label("iqr").check()
    page.locator("textarea").fill("a\nb\n")
    page.click("button[type=submit]")
    (message,) = widget.sent("answer")
    assert message["generation"] == 2
    assert message["value"] == {
        "title": "Seattle", "threshold": 2.5, "days": 30, "method": "iqr", "columns": ["wind"], "tags": ["a", "b"],
        "notify": True,
    }  # fmt: skip


def test_an_editor_and_a_list_send_what_was_chosen(widget: WidgetPage) -> None:
    """The editor's text on its button, an option's label from a long list."""
    h = History()
    h.started()
    h.ask("text", "Check it", kind="editor", initial=histories.raw("draft"))
    h.ask("where", "Which station?", kind="select", options=[f"Station number {i} of the city" for i in range(6)])
    widget.load(shot_of(h))
    widget.page.locator(".wf-editor").fill("final")
    widget.page.get_by_role("button", name="Save").click()
    widget.page.get_by_label("Station number 4").check()
    widget.page.get_by_role("button", name="Send").click()
    assert [m["value"] for m in widget.sent("answer")] == ["final", "Station number 4 of the city"]


def test_buttons_send_their_action_once(widget: WidgetPage) -> None:
    """Stop is sent once and stays disabled until the run has moved on."""
    widget.load(shot_of(histories.running()))
    widget.page.click("[data-action=stop]")
    assert len(widget.sent("stop")) == 1
    assert widget.page.locator("[data-action=stop]").is_disabled()
    widget.load(shot_of(histories.failing()))
    widget.page.get_by_role("button", name="Resume from write").click()
    assert len(widget.sent("resume")) == 1


def test_a_node_opens_by_click_and_by_key(widget: WidgetPage) -> None:
    """Click and Enter open the panel, arrows walk along the lines, Escape closes and gives the focus back."""
    h = histories.failing()
    view = h.view()
    widget.load(shot_of(h))
    page = widget.page
    page.locator(".wf-node").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    profile = view.order[1]
    assert widget.sent("detail")[0]["node"] == profile
    widget.say({"type": "detail", **detail(view, profile)})
    assert page.locator(".wf-detail b").inner_text() == "profile"
    page.locator(".wf-detail button").focus()
    page.keyboard.press("Escape")
    assert page.locator(".wf-detail").is_hidden()
    assert page.evaluate("() => document.activeElement.dataset.id") == profile


def test_a_panel_shows_what_the_step_made(widget: WidgetPage, artifacts: Path) -> None:
    """A figure and the first rows of a table stand in the panel; a picture from elsewhere is not fetched."""
    figures = pytest.importorskip("matplotlib.figure")
    figure = figures.Figure(figsize=(5, 3))
    figure.subplots().plot([1, 4, 2, 8])
    png = base64.b64encode(codec.picture(figure).data).decode()
    h = histories.completed()
    node = h.view().order[1]
    table = ev.Shown(kind="table", columns=["station", "wind"], rows=[["Hel", "3.5"], ["Lys", "–"]], total=1_461)
    preview = [ev.Shown(kind="image", text=f"data:image/png;base64,{png}"), table]
    h.add(ev.ArtifactKept(name="plot", revision=1, kind="figure", source="result", preview=preview), node)
    away = ev.Shown(kind="image", text="https://example.org/x.png")
    h.add(ev.ArtifactKept(name="plot", revision=2, kind="figure", source="shown", preview=[away]), node)
    view = h.view()
    widget.load(shot_of(h))
    page = widget.page
    page.locator(f'.wf-node[data-id="{node}"]').click()
    widget.say({"type": "detail", **detail(view, node)})
    made = page.locator(".wf-detail .wf-made")
    assert made.locator("img").count() == 1 and made.locator("tbody tr").count() == 2
    assert page.evaluate("() => document.querySelector('.wf-made img').naturalWidth") > 300
    assert "and 1,459 more rows" in made.inner_text()
    page.screenshot(path=artifacts / "widget-panel-made.png", full_page=True)


def test_the_table_is_there_for_those_who_do_not_see_the_graph(widget: WidgetPage) -> None:
    """A screen reader finds the summary, the table, and hears only of questions and ends."""
    h = histories.running()
    widget.load(shot_of(h))
    page = widget.page
    assert page.locator(".wf-graph svg").first.get_attribute("aria-label") == "clean-weather: 3 of 6 steps done"
    assert page.get_by_role("table").locator("tbody tr").count() == 6
    live = page.locator("[aria-live=polite][role=status]")
    h.step("another")
    widget.push(shot_of(h))
    assert live.inner_text() == ""
    h.ask("go", "Go on?")
    widget.push(shot_of(h))
    assert live.inner_text() == "clean-weather asks: Go on?"
    page.click("[data-tab=table]")
    assert page.locator(".wf-graph").is_hidden()
    assert page.get_by_role("table").get_by_role("button", name="read").is_visible()


def test_status_changes_move_nothing(widget: WidgetPage) -> None:
    """Boxes keep their places and their elements while statuses change."""
    h = histories.running()
    widget.load(shot_of(h))
    where = "() => [...document.querySelectorAll('.wf-node')].map(g => [g.dataset.id, g.style.transform, g.mark ??= 1])"
    before = widget.page.evaluate(where)
    widget.page.evaluate("() => document.querySelectorAll('.wf-node').forEach(g => { g.kept = true })")
    h.done(h.view().order[-1])
    widget.push(shot_of(h))
    assert widget.page.evaluate(where) == before
    assert widget.page.evaluate("() => [...document.querySelectorAll('.wf-node')].every(g => g.kept)")


def test_a_delta_changes_only_what_it_names(widget: WidgetPage) -> None:
    """After the whole, differences are enough; one that does not follow makes the view ask for the whole, once."""
    h = histories.running()
    view = h.view()
    shots = LiveShots(view)
    widget.load(shots.whole(h.now))
    page = widget.page
    page.evaluate("() => document.querySelectorAll('.wf-node').forEach(g => { g.kept = true })")
    outliers = view.order[-1]
    h.done(outliers, 1.0)
    after = h.start("write", [outliers])
    widget.say({"type": "delta", **follow(h, view, shots)})
    assert page.locator(f'.wf-node[data-id="{outliers}"]').get_attribute("data-status") == "completed"
    assert page.locator(f'.wf-node[data-id="{after}"]').count() == 1
    assert page.locator(".wf-node").count() == 7 and page.locator(".wf-edge").count() == 6
    assert page.evaluate("() => [...document.querySelectorAll('.wf-node')].filter(g => g.kept).length") == 6
    hellos = len(widget.sent("hello"))
    h.done(after)
    follow(h, view, shots)  # this one is lost
    for name in ("a", "b"):
        h.step(name)
        widget.say({"type": "delta", **follow(h, view, shots)})
    assert len(widget.sent("hello")) == hellos + 1
    assert page.locator(".wf-node").count() == 7
    widget.push(shots.whole(h.now))
    assert page.locator(".wf-node").count() == 9


def follow(h: History, view: RunView, shots: LiveShots) -> dict[str, Any]:
    """Take in what was written since, as a delta."""
    for entry in h.entries[view.revision :]:
        view.apply(entry)
    delta = shots.delta(h.now)
    assert delta is not None
    return delta


DRAWN = """async message => {
  model.say(message);
  await new Promise(done => requestAnimationFrame(() => { const c = new MessageChannel(); c.port1.onmessage = done; c.port2.postMessage(0); }));
}"""
"""Hands a message to the widget and waits until its frame was made."""


def test_a_thousand_nodes_are_updated_in_time(widget: WidgetPage) -> None:
    """With 1,000 visible nodes a status update takes the page less than 100 ms of a processor until it is drawn, one that
    adds a node less than 250 (best of five)."""
    h = histories.thousand()
    late = [h.start(f"late_{i}", h.view().order[-3:]) for i in range(6)]
    view = h.view()
    shots = LiveShots(view)
    widget.load(shots.whole(h.now))
    page = widget.page
    assert page.locator(".wf-node").count() == 1_006
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def draw() -> float:
        """Milliseconds of the page's main thread for what was written since."""
        delta = {"type": "delta", **follow(h, view, shots)}
        page.wait_for_timeout(300)  # what glides has arrived
        spent = []
        for step in (lambda: None, lambda: page.evaluate(DRAWN, delta)):
            step()
            metrics = session.send("Performance.getMetrics")["metrics"]
            spent.append(next(m["value"] for m in metrics if m["name"] == "ThreadTime"))
        return round(1_000 * (spent[1] - spent[0]), 1)

    took: dict[str, list[float]] = {"status": [], "growth": []}
    for i, node in enumerate(late[:5]):
        h.done(node, 0.1)
        took["status"].append(draw())
        h.start(f"next_{i}", [node])
        took["growth"].append(draw())
    assert page.locator(".wf-node").count() == 1_011
    print(took)
    assert min(took["status"]) < 100 and min(took["growth"]) < 250, took


def test_ten_thousand_nodes_open_in_time(widget: WidgetPage, artifacts: Path) -> None:
    """A run of 10,000 nodes, from its events to its picture in the browser, is there within two seconds."""
    h = histories.ten_thousand()
    widget.load(shot_of(histories.completed()))  # the page and the browser are warm, the run is not
    begun = time.perf_counter()
    view = h.view()
    widget.load(LiveShots(view).whole(h.now))
    widget.page.locator(".wf-node").nth(2).wait_for()
    took = time.perf_counter() - begun
    print(f"{took:.2f} s")
    assert widget.page.locator(".wf-node > text:not(.wf-note)").all_text_contents() == [
        "plan", "fetch × 5,000", "parse × 5,000",
    ]  # fmt: skip
    widget.page.screenshot(path=artifacts / "widget-ten-thousand.png")
    assert took < 2.0


def test_failures_float_up(widget: WidgetPage, artifacts: Path) -> None:
    """A stack with failures shows them in red; the count on top leads to the failed ones, and one click into each."""
    h = histories.fan_out(800, failures=3)
    view = h.view()
    widget.load(shot_of(h))
    page = widget.page
    stack = page.locator(".wf-node[data-kind=step]").nth(1)
    assert (
        stack.get_attribute("data-failed") == "" and float(stack.locator(".wf-lost").get_attribute("width") or 0) >= 3
    )
    page.get_by_role("button", name="3 failed", exact=True).click()
    assert widget.sent("find")[-1]["text"] == "failed"
    widget.say({"type": "found", **find(view, "failed")})
    found = page.get_by_role("region", name="found")
    assert found.locator("tbody tr").count() == 3 and "3 steps with “failed”" in found.inner_text()
    page.screenshot(path=artifacts / "widget-found.png", full_page=True)
    found.get_by_role("button").first.click()
    assert widget.sent("detail")[-1]["node"] == view.order[1]


def test_a_search_dims_what_it_does_not_find(widget: WidgetPage) -> None:
    """What is typed is looked for in Python; hits stand out, an older answer is passed over, emptied it is over."""
    h = histories.mixed()
    view = h.view()
    widget.load(shot_of(h))
    page = widget.page
    page.get_by_role("searchbox", name="find steps").fill("island")
    page.wait_for_timeout(250)
    assert [m["text"] for m in widget.sent("find")] == ["island"]
    widget.say({"type": "found", **find(view, "isl")})
    assert page.locator(".wf-hit").count() == 0
    widget.say({"type": "found", **find(view, "island")})
    assert page.locator(".wf-hit").count() == 7
    assert page.locator(".wf-node:not(.wf-hit)").first.evaluate("g => getComputedStyle(g).opacity") == "0.25"
    h.step("clean_more_islands")
    widget.push(shot_of(h))
    page.wait_for_timeout(600)
    assert [m["text"] for m in widget.sent("find")] == ["island", "island"]  # asked again: there is more now
    page.get_by_role("searchbox", name="find steps").fill("")
    page.wait_for_timeout(250)
    assert page.locator(".wf-hit").count() == 0 and page.get_by_role("region", name="found").count() == 0


def test_the_timeline_says_where_the_time_went(widget: WidgetPage, artifacts: Path) -> None:
    """Parts with their seconds, a lane a step, and the critical path in words; looked at in both themes and widths."""
    h = histories.timed()
    view = h.view()
    for width in (600, 1_400):
        for dark in (False, True):
            widget.page.set_viewport_size({"width": width, "height": 400})
            widget.load(shot_of(h), dark=dark)
            page = widget.page
            page.click("[data-tab=time]")
            assert len(widget.sent("times")) == 1
            widget.say({"type": "times", **timeline(view, h.now)})
            region = page.get_by_role("region", name="timeline")
            assert "waiting for a person 10 s" in region.inner_text() and "trying again 3.0 s" in region.inner_text()
            assert "read → slow → flaky → drop? → pooled" in region.inner_text()
            assert region.locator(".wf-lanes").count() == 6
            assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
            theme = "dark" if dark else "light"
            page.screenshot(path=artifacts / f"widget-timeline-{width}-{theme}.png", full_page=True)
    region.get_by_role("button", name="flaky").click()
    assert widget.sent("detail")[-1]["node"] == view.order[3]


def test_what_a_person_looks_at_stays_while_the_graph_grows(widget: WidgetPage) -> None:
    """Once they scrolled by themselves, the box at which they are keeps its place on the screen."""
    h = histories.mixed()
    view = h.view()
    shots = LiveShots(view)
    widget.page.set_viewport_size({"width": 600, "height": 500})
    widget.load(shots.whole(h.now))
    page = widget.page
    middle = view.order[len(view.order) // 2]
    page.locator(".wf-node").first.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    at = "() => { const r = document.activeElement.getBoundingClientRect(); return [r.x, r.y] }"
    before = page.evaluate(at)
    for i in range(8):
        h.start(f"more_{i}", [view.order[0]])
    widget.say({"type": "delta", **follow(h, view, shots)})
    page.wait_for_timeout(300)
    after = page.evaluate(at)
    assert middle and abs(after[0] - before[0]) < 2 and abs(after[1] - before[1]) < 2


def test_failures_are_heard(widget: WidgetPage) -> None:
    """A screen reader hears of a step that failed while the run goes on; Home and End lead to the ends of the graph."""
    h = histories.running()
    view = h.view()
    widget.load(shot_of(h))
    h.failed(view.order[-1])
    widget.push(shot_of(h))
    page = widget.page
    assert page.locator("[aria-live=polite][role=status]").inner_text() == "clean-weather: 1 step failed"
    page.locator(".wf-node").first.focus()
    page.keyboard.press("End")
    assert page.evaluate("() => document.activeElement.dataset.id") == view.order[-1]
    page.keyboard.press("Home")
    assert page.evaluate("() => document.activeElement.dataset.id") == view.order[0]


def test_a_dead_kernel_is_noticed(widget: WidgetPage) -> None:
    """Without a pong within three seconds the view is greyed and says so; a late pong takes that back."""
    widget.load(shot_of(histories.waiting()))
    widget.page.evaluate("() => model.fire('comm_live_update')")
    (ping,) = widget.sent("ping")
    widget.page.locator(".wf-gone").wait_for(timeout=5_000)
    assert widget.page.get_by_text("The kernel that ran this is gone").is_visible()
    assert widget.page.locator("[data-answer=yes]").is_disabled()
    widget.say({"type": "pong", "n": ping["n"]})
    assert widget.page.locator(".wf-gone").count() == 0
    assert widget.page.locator("[data-answer=yes]").is_enabled()


def test_the_saved_picture_hides_while_the_view_lives(widget: WidgetPage) -> None:
    """The static picture of this run is hidden by the live view and shows again when the view is gone."""
    h = histories.waiting()
    widget.load(shot_of(h), beside=static_html(h.view()))
    assert widget.page.locator(".wf-static").is_hidden()
    widget.page.evaluate("() => dispose()")
    assert widget.page.locator(".wf-static").is_visible()
    assert widget.page.locator(".wf-live").count() == 0
    assert widget.page.evaluate("() => Object.values(model.handlers).every(list => list.length === 0)")


def test_motion_is_reduced_where_asked(widget: WidgetPage) -> None:
    """Nothing is animated for those who asked their system for that."""
    widget.page.emulate_media(reduced_motion="reduce")
    widget.load(shot_of(histories.running()))
    moving = "() => document.getAnimations().filter(a => a.playState === 'running').length"
    assert widget.page.evaluate(moving) == 0
    widget.page.emulate_media(reduced_motion="no-preference")
    assert widget.page.evaluate(moving) > 0


STATES = ["waiting", "running", "failing", "completed", "fan_out", "mixed", "form"]


@pytest.mark.parametrize("name", STATES)
def test_every_state_fits_its_page(widget: WidgetPage, name: str, artifacts: Path) -> None:
    """At 600 and at 1,400 pixels, light and dark, nothing sticks out and every text lies in its box. Pictures are kept."""
    h = getattr(histories, name)()
    for width in (600, 1_400):
        for dark in (False, True):
            widget.page.set_viewport_size({"width": width, "height": 400})
            widget.load(shot_of(h), dark=dark)
            widget.page.wait_for_timeout(300)
            assert widget.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
            outside = widget.page.evaluate(
                """() => [...document.querySelectorAll('.wf-node')].flatMap(g => {
                  const box = [...g.querySelectorAll('.wf-rect')].pop().getBBox();
                  return [...g.querySelectorAll('text')]
                    .filter(t => t.getBBox().x + t.getBBox().width > box.x + box.width).map(t => t.textContent);
                })"""
            )
            assert outside == []
            theme = "dark" if dark else "light"
            widget.page.screenshot(path=artifacts / f"widget-{name}-{width}-{theme}.png", full_page=True)


def test_without_jupyterlab_the_systems_theme_is_followed(widget: WidgetPage) -> None:
    """On a page without Lab's variables the view is light or dark as the system is, and readable."""
    seen = []
    for scheme in ("light", "dark"):
        widget.page.emulate_media(color_scheme=scheme)
        widget.load(shot_of(histories.waiting()), lab=False)
        style = "getComputedStyle(document.querySelector('.wf-live'))"
        seen.append(widget.page.evaluate(f"() => [{style}.backgroundColor, {style}.color]"))
    widget.page.emulate_media(color_scheme="light")
    assert seen == [["rgb(255, 255, 255)", "rgb(28, 28, 28)"], ["rgb(22, 22, 22)", "rgb(232, 232, 232)"]]
