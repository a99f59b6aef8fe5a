"""The widget on a page of its own: the real bundle, a model that the test plays, snapshots from the real views."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from tests.e2e.lab import CHROMIUM_FLAGS

BUNDLE = Path(__file__).parents[2] / "loom_kernel" / "notebook" / "static" / "run_widget.js"

_LAB = """
body {margin: 0; padding: 16px; font-family: system-ui, 'DejaVu Sans', sans-serif; background: var(--jp-layout-color0);
  --jp-ui-font-color1: rgba(0,0,0,.87); --jp-ui-font-color2: rgba(0,0,0,.54); --jp-layout-color0: #fff;
  --jp-layout-color1: #fff; --jp-border-color2: #e0e0e0; --jp-brand-color1: #1976d2}
body[data-jp-theme-light="false"] {--jp-ui-font-color1: #fff; --jp-ui-font-color2: rgba(255,255,255,.7);
  --jp-layout-color0: #111; --jp-layout-color1: #212121; --jp-border-color2: #424242}
"""

_MODEL = """
window.sent = [];
window.model = {
  data: {}, handlers: {},
  get(name) { return this.data[name]; },
  on(event, fn) { (this.handlers[event] ??= []).push(fn); },
  off(event, fn) { this.handlers[event] = (this.handlers[event] ?? []).filter(f => f !== fn); },
  send(content) { window.sent.push(JSON.parse(JSON.stringify(content))); },
  fire(event, ...args) { for (const fn of this.handlers[event] ?? []) fn(...args); },
  push(snapshot) { this.data.snapshot = snapshot; this.fire('change:snapshot'); },
  say(content) { this.fire('msg:custom', content); },
};
"""


class WidgetPage:
    """The page, with what the person and the kernel do on it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.problems: list[str] = []
        page.on("pageerror", lambda e: self.problems.append(str(e)))
        page.on("console", lambda m: self.problems.append(m.text) if m.type == "error" else None)

    def load(self, snapshot: dict[str, Any], *, dark: bool = False, lab: bool = True, beside: str = "") -> None:
        """Show a snapshot. ``now`` in it is moved to the browser's now, with everything else that is a moment."""
        attribute = "" if not lab else f' data-jp-theme-light="{"false" if dark else "true"}"'
        self.page.set_content(
            f"<!doctype html><meta charset=utf-8><style>{_LAB if lab else ''}</style>"
            f"<body{attribute}><div id=at></div>{beside}<script>{_MODEL}</script></body>"
        )
        self.page.evaluate("s => { model.data.snapshot = s }", now(self.page, snapshot))
        self.page.evaluate(
            """async code => {
              const url = URL.createObjectURL(new Blob([code], {type: 'text/javascript'}));
              const widget = (await import(url)).default;
              window.dispose = widget.render({model: window.model, el: document.getElementById('at')});
            }""",
            BUNDLE.read_text(),
        )

    def push(self, snapshot: dict[str, Any]) -> None:
        """A newer snapshot arrives."""
        self.page.evaluate("s => model.push(s)", now(self.page, snapshot))

    def say(self, message: dict[str, Any]) -> None:
        """Python sends a message."""
        self.page.evaluate("m => model.say(m)", message)

    def sent(self, kind: str) -> list[dict[str, Any]]:
        """What the widget sent of one type."""
        messages = json.loads(self.page.evaluate("() => JSON.stringify(window.sent)"))
        return [m for m in messages if m["type"] == kind]


def now(page: Page, snapshot: dict[str, Any]) -> dict[str, Any]:
    """The snapshot as if it had been taken this moment."""
    shift = page.evaluate("() => Date.now() / 1000") - snapshot["now"]
    moved = json.loads(json.dumps(snapshot))
    for place in (moved, *moved["graph"]["boxes"], *moved["questions"]):
        for name in ("now", "activeSince", "startedAt", "since", "until", "deadline"):
            if place.get(name) is not None:
                place[name] += shift
    return moved


@contextmanager
def widget_page(chromium: str, *, width: int = 1000, height: int = 900, dark: bool = False) -> Iterator[WidgetPage]:
    """A browser with one empty page."""
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=CHROMIUM_FLAGS)
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        try:
            yield WidgetPage(context.new_page())
        finally:
            browser.close()
