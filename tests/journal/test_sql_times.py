"""Where the time went, asked in SQL: the same as the live view says."""

from __future__ import annotations

import pytest

from loom_kernel import events as ev
from loom_kernel.views.times import times
from tests.journal.test_sql_views import ask
from tests.views import histories
from tests.views.histories import History

pytestmark = pytest.mark.timeout(60)


def crashed() -> History:
    """A worker dies in a step, somebody answers meanwhile, and another worker goes on a minute later."""
    h = History()
    h.started()
    read = h.step("read", took_s=2.0)
    go = h.ask("go", "Go?", [read])
    slow = h.start("slow", [read], after_s=1.0)
    h.add(ev.PromptAnswered(generation=1, value=histories.raw(True), by="ana"), go, after_s=30.0)
    h.add(ev.LeaseTaken(epoch=2, holder="b"), after_s=30.0)
    h.started(resumed=True)
    h.add(ev.NodeCompleted(result=histories.raw(True), answered_by="ana"), go)
    h.add(ev.NodeStarted(name="slow", kind="step", parents=[read]), slow)
    h.add(ev.NodeCompleted(duration_s=4.0), slow, after_s=4.0)
    h.ended()
    return h


@pytest.mark.parametrize("name", ["timed", "crashed", "failing", "completed"])
def test_sql_and_the_view_agree(name: str) -> None:
    """Seconds by kind, and the critical path with its own seconds, for runs with and without a crash between."""
    h = crashed() if name == "crashed" else getattr(histories, name)()
    found = times(h.view(), h.now)
    asked = dict(ask(h.entries, "select kind, seconds from times"))
    assert asked == {k: pytest.approx(s, abs=1e-4) for k, s in found.seconds.items() if s > 1e-6}
    path = ask(
        h.entries, "select node_id, running_s, retried_s, waited_s, queued_s from critical_path order by position"
    )
    for (node_id, running, retried, waited, queued), leg in zip(path, found.path, strict=True):
        assert node_id == leg.node.node_id
        assert (running, retried, waited, queued) == pytest.approx(
            (leg.seconds("running"), leg.seconds("retrying"), leg.seconds("waiting"), leg.seconds("queued")), abs=2e-3
        )


def test_a_dead_worker_is_no_time_at_work() -> None:
    """From a worker's last word until the next one begins, the run is at rest, whoever posted something meanwhile."""
    h = crashed()
    assert dict(ask(h.entries, "select kind, seconds from times"))["rest"] == pytest.approx(60.0)
    assert h.view().active_s == pytest.approx(7.0)


def test_a_wide_run_is_asked_in_time() -> None:
    """Five thousand calls after five thousand others: no pair of them is looked at."""
    h = histories.ten_thousand()
    assert ask(h.entries, "select count(*), max(position) from critical_path") == [(3, 3)]
    assert len(ask(h.entries, "select kind from times")) >= 1
