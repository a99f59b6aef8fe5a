"""The fold: what each event does to the view of a run."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_kernel import events as ev
from loom_kernel.journal.abc import JournalEntry
from loom_kernel.views.node import split_node_id
from loom_kernel.views.run import RunView
from loom_kernel.views.snapshot import snapshot
from tests.views import histories
from tests.views.histories import START, History, error, raw

pytestmark = pytest.mark.timeout(30)


def test_a_run_goes_from_pending_to_completed() -> None:
    """The status follows the run's own events, and the times are the journal's."""
    h = History()
    view = RunView.of(h.entries, h.run_id)
    assert (view.status, view.started_at) == ("pending", None)
    h.started(after_s=1)
    read = h.step("read", took_s=0.5)
    h.ended(result=raw(3), after_s=0.5)
    view = h.view()
    assert view.status == "completed" and view.ended and view.at_rest
    assert bytes(view.result) == b"3"
    assert (view.started_at, view.ended_at) == (START + 1, START + 2)
    assert view.elapsed_s(now=START + 99) == 1.0
    assert view.nodes[read].status == "completed" and view.nodes[read].duration_s == 0.5
    assert repr(view) == "RunView(clean-weather, completed, 1 of 1 steps)"


def test_an_open_question_waits_for_a_person_until_it_is_answered() -> None:
    """While a question is open the run awaits input; the answer's post closes it, its completion records who."""
    h = histories.waiting()
    view = h.view()
    assert view.status == "awaiting_input"
    (prompt,) = view.open_prompts
    assert (prompt.prompt, prompt.kind, prompt.generation) == ("drop", "confirm", 1)
    assert view.find("drop") is not None and view.find(prompt.node_id) is not None and view.find("other") is None
    h.add(ev.PromptAnswered(generation=1, value=raw(True), by="ana"), prompt.node_id)
    view = h.view()
    assert view.status == "running" and view.open_prompts == []
    assert view.nodes[prompt.node_id].status == "running"
    h.add(ev.NodeCompleted(result=raw(True), answered_by="ana"), prompt.node_id)
    node = h.view().nodes[prompt.node_id]
    assert (node.status, node.answered_by, node.waited_s) == ("completed", "ana", 48.0)


def test_a_rejected_answer_opens_the_question_again() -> None:
    """A late answer to an older generation does not close the newer one."""
    h = History()
    h.started()
    node = h.ask("n", "How many?", kind="input")
    h.add(ev.PromptAnswered(generation=1, value=raw("x")), node)
    h.ask("n", "How many?", kind="input", generation=2, node_id=node, error="a number is needed")
    h.add(ev.PromptAnswered(generation=1, value=raw("y")), node)
    (prompt,) = h.view().open_prompts
    assert (prompt.generation, prompt.error) == (2, "a number is needed")


def test_what_finished_before_a_resume_comes_from_the_journal() -> None:
    """A resumed run shows finished nodes as read from the journal and open attempts as still to do."""
    h = History()
    h.started()
    read = h.step("read")
    open_ = h.start("fetch", [read])
    h.started(resumed=True, after_s=100)
    view = h.view()
    assert view.nodes[read].from_journal and view.nodes[open_].status == "pending"
    h.start("fetch", [read])
    view = h.view()
    assert view.executions == 2
    again = [n for n in view.nodes.values() if n.name == "fetch"]
    assert [n.status for n in again] == ["pending", "running"]
    assert view.elapsed_s(h.now) == pytest.approx(0.1), "the hundred seconds in which nobody ran it do not count"


def test_a_pause_stops_the_time() -> None:
    """Rests do not count as elapsed; running attempts are to do again, questions keep waiting but take no answer."""
    h = History()
    h.started()
    node = h.start("fetch", after_s=1)
    question = h.ask("go", "Go?")
    h.add(ev.StopRequested(), None)
    assert h.view().asked == "stop"
    h.paused(after_s=2)
    view = h.view()
    assert (view.status, view.reason, view.asked) == ("paused", "stopped", "")
    assert view.elapsed_s(h.now + 50) == 3.0
    assert view.nodes[node].status == "pending" and view.nodes[question].status == "waiting"
    assert view.open_prompts == []
    h.started(resumed=True, after_s=60)
    view = h.view()
    assert view.status == "awaiting_input" and view.reason is None
    assert [p.node_id for p in view.open_prompts] == [question]


def test_retries_failures_and_passed_failures() -> None:
    """Attempts count up; a failure that the body passed replays, one that ended the run is tried again."""
    h = History()
    h.started()
    node = h.start("fetch")
    h.add(ev.NodeRetrying(attempt=1, error=error(), delay_s=2.0), node)
    view = h.view()
    assert view.nodes[node].status == "retrying" and view.nodes[node].wake_at == h.now + 2
    h.add(ev.NodeStarted(name="fetch", kind="step", attempt=2), node, after_s=2)
    h.failed(node, attempts=2)
    h.add(ev.NodeFailurePassed(), node)
    last = h.start("write", [node])
    h.failed(last)
    h.ended("failed", error=error(), failed_node_id=last)
    view = h.view()
    assert (view.nodes[node].attempts, view.nodes[node].passed) == (2, True)
    assert view.counts.failed == 2
    h.started(resumed=True)
    view = h.view()
    assert view.error is None and view.nodes[node].from_journal
    assert view.nodes[last].status == "pending"


def test_the_end_leaves_nothing_running() -> None:
    """A node that the terminal event overtook was cancelled; drift is marked on the nodes that it names."""
    h = History()
    h.started()
    old = h.step("old")
    h.start("fetch")
    h.ask("go", "Go?")
    h.add(ev.CancelRequested(by="ana"), None)
    assert h.view().asked == "cancel"
    h.ended("cancelled", drift=[old])
    view = h.view()
    assert {n.status for n in view.nodes.values()} == {"completed", "cancelled"}
    assert view.nodes[old].drift and view.open_prompts == [] and view.asked == ""


def test_logs_progress_and_reports_are_kept() -> None:
    """Lines, progress and reports stand on the view; logs keep their last lines only."""
    h = histories.running()
    view = h.view()
    assert view.reports == [("", raw("Looking at four columns"))]
    moving = next(n for n in view.nodes.values() if n.progress)
    assert moving.progress == (3.0, 10.0)
    h.add(ev.NodeLogged(attempt=1, lines=[str(i) for i in range(3_000)]), moving.node_id)
    log = h.view().nodes[moving.node_id].log
    assert len(log) == 2_000 and log[-1] == "2999"


def test_a_completion_without_its_start_is_shown_all_the_same() -> None:
    """A start that never became durable leaves name and kind to be read from the node's id."""
    h = History()
    h.started()
    h.done("tool:lookup:3f2a9c01d4e5f6a7#2")
    (node,) = h.view().nodes.values()
    assert (node.name, node.kind, node.occurrence, node.status) == ("lookup", "tool", 2, "completed")


@pytest.mark.parametrize(
    ("node_id", "parts"),
    [
        ("step:fetch:3f2a9c01d4e5f6a7#1", ("step", "fetch", "3f2a9c01d4e5f6a7", 1)),
        ("inline:name:#12", ("inline", "name", "", 12)),
        ("step:a:b:c#1", ("step", "a:b", "c", 1)),
        ("odd", ("step", "odd", "", 1)),
    ],
)
def test_node_ids_are_taken_apart(node_id: str, parts: tuple[str, str, str, int]) -> None:
    """A node id is its key's parts; one of another form loses nothing."""
    assert split_node_id(node_id) == parts


def test_events_of_a_newer_version_are_passed_over() -> None:
    """A type that this version does not know changes nothing and breaks nothing."""
    h = History()
    h.started()
    h.entries.append(JournalEntry(9, h.run_id, 3, None, "run.teleported", None, b"{}", 0))
    h.add(ev.OutputReported(value=raw("x")))
    view = h.view()
    assert view.status == "running" and len(view.reports) == 1


def test_questions_of_a_child_are_asked_in_the_parent() -> None:
    """A child run that waits makes its parent's view wait, as long as the parent is not at rest."""
    child = History("child", run_id="c" * 12)
    child.started()
    child.ask("ok", "Fine?")
    parent = History()
    parent.started()
    node = parent.start("child", kind="workflow", child_run_id=child.run_id)
    view = parent.view()
    view.children[child.run_id] = child.view()
    shot = snapshot(view, parent.now)
    assert (shot["status"], shot["words"], shot["tone"]) == ("awaiting_input", "waiting for you", "wait")
    assert [q["prompt"] for q in shot["questions"]] == ["ok"]
    assert [b["status"] for b in shot["graph"]["boxes"] if b["id"] == node] == ["waiting"]


STORIES = [
    histories.waiting, histories.running, histories.failing, histories.completed, histories.fan_out, histories.form,
    histories.mixed,
]  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(story=st.sampled_from(STORIES), cuts=st.lists(st.floats(0, 1), max_size=5), repeat=st.booleans())
def test_folding_in_pieces_equals_folding_at_once(story, cuts, repeat) -> None:  # type: ignore[no-untyped-def]
    """Wherever the history is cut, and if pieces are given twice, the view is the same."""
    h = story()
    whole = snapshot(h.view(), h.now)
    view = RunView(h.run_id)
    places = sorted(int(c * len(h.entries)) for c in cuts)
    for start, end in zip([0, *places], [*places, len(h.entries)], strict=True):
        for entry in h.entries[start:end]:
            view.apply(entry)
        if repeat:
            for entry in h.entries[:end]:
                view.apply(entry)
    assert snapshot(view, h.now) == whole
    assert view.nodes == h.view().nodes


def test_copies_are_looked_at_while_an_edit_is_asked_about() -> None:
    """A fork shows what its body asked for; while it rests with a plan, what the plan is about."""
    h = History()
    read = h.step("read")
    clean = h.step("clean", [read])
    h.add(ev.RunForked(source="other", kept=2))
    assert list(h.view().nodes) == []
    h.paused("needs_decision", what="edited")
    assert list(h.view().nodes) == [read, clean]
    h.started(after_s=5)
    assert list(h.view().nodes) == []
    h.add(ev.NodeRecalled(), read)
    view = h.view()
    assert list(view.nodes) == [read] and view.nodes[read].from_journal
