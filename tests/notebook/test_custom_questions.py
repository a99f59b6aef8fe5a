"""Questions with a widget of the author's own, in real kernels: shown while open, clicked, durable, and nowhere else."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.notebook.kernel import Cell, Kernel

pytestmark = pytest.mark.timeout(120)

VIEW = "application/vnd.jupyter.widget-view+json"

WORKFLOW = """%%workflow paint
first = await ctx.ui.custom(pick, label="Which colour?", name="colour")
second = await ctx.ui.custom(pick, label="And then?", name="then")
return [first, second]
"""

PICK = """import ipywidgets, threading
from loom_kernel import step
made = []
def pick(done):
    text = ipywidgets.Text("red")
    button = ipywidgets.Button(description="Take it")
    button.on_click(lambda _: done({"colour": text.value, "n": len(made)}))
    made.append(ipywidgets.VBox([text, button]))
    return made[-1]
"""

CELLS = [("a", "%load_ext loom_kernel"), ("b", PICK), ("c", WORKFLOW), ("d", "r = paint.start()")]


def models(kernel: Kernel, name: str) -> list[str]:
    """Comm ids of widgets of a kind, in the order in which they were made."""
    return [
        m["content"]["comm_id"]
        for m in kernel.messages()
        if m["msg_type"] == "comm_open" and m["content"]["data"]["state"].get("_model_name") == name
    ]


def shown(cell: Cell) -> list[str]:
    """Model ids of the widgets that a cell's outputs show."""
    return [o["data"][VIEW]["model_id"] for o in cell.outputs if VIEW in o.get("data", {})]


def asked(kernel: Kernel, cell: Cell, n: int) -> None:
    """Wait until the n-th widget is below the run's view."""
    kernel.until(
        lambda: len(models(kernel, "VBoxModel")) >= n and models(kernel, "VBoxModel")[n - 1] in shown(cell),
        10,
        lambda: f"it is not shown: {cell.outputs}",
    )


def press(kernel: Kernel, n: int = -1) -> None:
    """Click the n-th button."""
    kernel.click({"event": "click"}, models(kernel, "ButtonModel")[n])


def write(kernel: Kernel, text: str, n: int = -1) -> str:
    """Change a text field as a browser does; the message's id."""
    data: dict[str, Any] = {"method": "update", "state": {"value": text}, "buffer_paths": []}
    content = {"comm_id": models(kernel, "TextModel")[n], "data": data}
    message = kernel.client.session.msg("comm_msg", content)
    kernel.client.shell_channel.send(message)
    return str(message["header"]["msg_id"])


def test_a_widget_asks_while_idle_and_while_a_cell_awaits(kernel: Kernel) -> None:
    """It stands below the run's view while its question is open; what is typed arrives before the click, in both."""
    for _, code in CELLS[1:3]:
        kernel.ok(code)
    cell = kernel.ok("r = paint.start()")
    asked(kernel, cell, 1)
    assert kernel.question()["kind"] == "custom" and kernel.question()["hint"] == ""
    write(kernel, "blue")
    press(kernel)
    asked(kernel, cell, 2)
    assert models(kernel, "VBoxModel")[0] not in shown(cell)
    waiting = kernel.send("print((await r).result)")
    time.sleep(0.5)
    began = time.monotonic()
    msg_id = write(kernel, "green")
    press(kernel)
    assert waiting.wait(10).text.splitlines()[0] == "[{'colour': 'blue', 'n': 1}, {'colour': 'green', 'n': 2}]"
    assert time.monotonic() - began < 1.0
    kernel.until(lambda: shown(cell) == [], 5, lambda: f"still shown: {shown(cell)}")
    statuses = [m["content"]["execution_state"] for m in kernel.messages() if m["msg_type"] == "status" and m["parent_header"].get("msg_id") == msg_id]  # fmt: skip
    assert statuses[-1:] == ["idle"], "the browser would hold back what is typed next"


def test_only_the_widget_answers(kernel: Kernel) -> None:
    """An answer from elsewhere, beforehand too, is none; a value that is no JSON is refused and the question stays."""
    kernel.ok(PICK)
    kernel.ok("kept = []\ndef pick(done):\n    kept.append(done)\n    return ipywidgets.VBox()")
    kernel.ok(WORKFLOW)
    cell = kernel.ok("r = paint.start()")
    asked(kernel, cell, 1)
    sentence = "AnswerError: the question 'colour' is answered by its own widget"
    assert (kernel.run("r.answer({}, prompt='colour')").error or "").startswith(sentence)
    assert (kernel.run("%loom answer colour red").error or "").startswith(sentence)
    assert (kernel.run("kept[0]({1, 2})").error or "").startswith("AnswerError: the answer to 'colour' must be JSON")
    assert (kernel.run("kept[0](float('nan'))").error or "").startswith("AnswerError: the answer to 'colour' must be")
    kernel.ok("r.answer('early', prompt='then')")
    kernel.ok("kept[0](None); kept[0](1)")
    asked(kernel, cell, 2)
    kernel.ok("kept[1]([1, 'a', {'b': None}])")
    assert "[None, [1, 'a', {'b': None}]]" in kernel.ok("print((await r).result)").text


def test_an_answer_outlives_the_kernel(project: Path) -> None:
    """After a kill the answered question is not asked again, and the open one is, by a new widget."""
    with Kernel(project) as kernel:
        for cell_id, code in CELLS:
            cell = kernel.ok(code, cell_id=cell_id)
        asked(kernel, cell, 1)
        press(kernel)
        asked(kernel, cell, 2)
        kernel.kill()
    with Kernel(project) as kernel:
        for cell_id, code in CELLS:
            cell = kernel.ok(code, cell_id=cell_id)
        assert "resumed the run of" in cell.text
        asked(kernel, cell, 1)
        assert kernel.question()["prompt"] == "then" and len(models(kernel, "VBoxModel")) == 1
        write(kernel, "black")
        press(kernel)
        result = "[{'colour': 'red', 'n': 1}, {'colour': 'black', 'n': 1}]"
        assert result in kernel.ok("print((await r).result)").text


def test_without_a_live_view_it_has_an_output_of_its_own(kernel: Kernel) -> None:
    """A run that is not shown still asks; a factory that makes no widget is a sentence."""
    kernel.ok(PICK)
    kernel.ok("%%workflow one\nreturn await ctx.ui.custom(pick)")
    kernel.ok("%%workflow none\nreturn await ctx.ui.custom(lambda done: 5)")
    cell = kernel.ok("r = one.options(show=False).start()")
    asked(kernel, cell, 1)
    press(kernel)
    assert "{'colour': 'red', 'n': 1}" in kernel.ok("print((await r).result)").text
    assert shown(cell) == []
    assert "must return an ipywidget, not int" in (kernel.run("await none.start()").error or "")


def test_headless_it_fails_at_the_call(headless: Kernel) -> None:
    """Nobody would see the widget: one sentence, at once, and the body may go another way."""
    headless.ok(PICK)
    headless.ok("%%workflow one\nreturn await ctx.ui.custom(pick, label='Which?')")
    error = headless.run("await one.start()").error or ""
    assert "ctx.ui.custom('Which?') needs an interactive notebook to show its widget" in error, error
