"""Questions in kernels: without a person they are a sentence, with one they are answered from anywhere."""

from __future__ import annotations

import time

import pytest

from tests.notebook.kernel import Kernel

pytestmark = pytest.mark.timeout(120)

ASK = """%%workflow ask
ok = await ctx.ui.confirm("Go on?", name="go")
return "went" if ok else "stayed"
"""


def test_headless_an_unanswered_question_is_a_sentence(headless: Kernel) -> None:
    """The waiting cell raises at once and names the line to add; the run waits, and a later cell answers."""
    headless.ok(ASK)
    began = time.monotonic()
    cell = headless.run("r = ask.start()\nawait r")
    assert time.monotonic() - began < 10
    assert cell.error is not None and cell.error.startswith("NeedsAnswer: the run of 'ask' asks 'go': Go on?")
    assert "prompt: go" in cell.error and "LOOM_ANSWERS" in cell.error
    assert "go? waiting for an answer" in cell.text
    assert headless.ok("r.status").text == "'awaiting_input'"
    assert "go" in headless.ok("%loom answer").text
    headless.ok("%loom answer go yes")
    assert headless.ok("(await r).result").text.splitlines()[-1] == "'went'"


def test_headless_blocking_wait_raises_too(headless: Kernel) -> None:
    """``r.wait()`` is no different."""
    headless.ok(ASK)
    assert (headless.run("r = ask.start()\nr.wait()").error or "").startswith("NeedsAnswer: ")


@pytest.mark.parametrize(
    "line", ["%loom answer no", "%loom answer go no", "%loom answer r go no", "%loom answer ask no"]
)
def test_the_ways_to_answer(kernel: Kernel, line: str) -> None:
    """The only question, by its name, by run and name, by the workflow's name."""
    kernel.ok(ASK)
    kernel.ok("r = ask.start()")
    kernel.question()
    kernel.ok(line)
    assert kernel.ok("(await r).result").text.splitlines()[-1] == "'stayed'"


def test_an_answer_that_does_not_fit_is_refused(kernel: Kernel) -> None:
    """The sentence says what does."""
    kernel.ok(ASK)
    kernel.ok("r = ask.start()")
    kernel.question()
    cell = kernel.run("%loom answer go perhaps")
    assert (cell.error or "").startswith("AnswerError: the answer to 'go' must be yes or no")
    assert (kernel.run("%loom answer nope yes").error or "").startswith(
        "AnswerError: no question 'nope' is open. Open are: go"
    )


@pytest.mark.kernels
def test_clicks_answer_an_idle_kernel(kernel: Kernel) -> None:
    """A click is handled in half a second while no cell runs; the live view becomes a picture when the run ends."""
    kernel.ok(ASK)
    cell = kernel.ok("r = ask.start()")
    kernel.question()
    began = time.monotonic()
    kernel.answer(True)
    kernel.until(lambda: "completed" in cell.text, 5, lambda: cell.text)
    assert time.monotonic() - began < 0.5
    kernel.until(lambda: not kernel.widgets(), 5, lambda: "the widget was not closed")
    views = [o for o in cell.outputs if "application/vnd.jupyter.widget-view+json" in o["data"]]
    assert views == [] and "data-run" not in cell.html and "data:image/svg+xml" in cell.html


@pytest.mark.kernels
def test_clicks_answer_while_a_cell_awaits(kernel: Kernel) -> None:
    """The awaiting cell goes on as soon as the person has clicked."""
    kernel.ok(ASK)
    kernel.ok("r = ask.start()")
    kernel.question()
    cell = kernel.send("result = await r\nprint(result.result)")
    time.sleep(0.5)
    began = time.monotonic()
    kernel.answer(True)
    assert "went" in cell.wait(10).text and time.monotonic() - began < 0.6


@pytest.mark.kernels
@pytest.mark.parametrize(
    "busy",
    ["while time.time() < end: sum(range(50))", "while time.time() < end: time.sleep(0.01)"],
    ids=["computing", "blocking"],
)
def test_clicks_answer_while_a_cell_computes(kernel: Kernel, busy: str) -> None:
    """A cell that never yields does not keep a click from the run, where the kernel reads its channel on a thread."""
    kernel.ok(ASK)
    kernel.ok("r = ask.start()")
    if (
        "always"
        not in kernel.ok("from loom_kernel.runtime import get_runtime; print(get_runtime().host.tap.reach)").text
    ):
        pytest.skip("this ipykernel reads its channel on the main thread")
    kernel.question()
    cell = kernel.send(f"import time\nend = time.time() + 3\n{busy}\nprint(r.view.status)")
    time.sleep(0.5)
    began = time.monotonic()
    kernel.answer(True)
    kernel.until(lambda: not kernel.widgets(), 2.4, lambda: "the click was not heard")
    assert time.monotonic() - began < 1.0 and not cell.done
    assert cell.wait(10).text == "completed"


@pytest.mark.kernels
def test_a_kernel_that_hears_no_clicks_says_how_to_answer(kernel: Kernel) -> None:
    """A blocking wait on ipykernel 6 prints one sentence once a question is open."""
    kernel.ok(ASK)
    kernel.ok("r = ask.start()")
    if "always" in kernel.ok("from loom_kernel.runtime import get_runtime; print(get_runtime().host.tap.reach)").text:
        pytest.skip("this ipykernel hears clicks at any time")
    cell = kernel.send("r.wait()")
    kernel.until(lambda: "hears clicks only" in cell.text, 5, lambda: cell.text)
    kernel.interrupt()
    assert (cell.wait(5).error or "").startswith("KeyboardInterrupt")
    kernel.answer(True)
    assert "completed" in kernel.ok("await r").text
