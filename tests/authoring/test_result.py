"""What a run came to, as a value."""

from __future__ import annotations

from loom_kernel.authoring.result import RunResult


def test_a_result_prints_without_ids() -> None:
    """Two runs of one job print the same."""
    one = RunResult(run_id="abc", status="completed", result={"n": 1})
    assert repr(one) == "RunResult(completed, result={'n': 1})"
    assert repr(RunResult(run_id="abc", status="failed", error=ValueError("no"))) == (
        "RunResult(failed, error=ValueError('no'))"
    )
    left = RunResult(run_id="abc", status="skipped", exited=True, exit_reason="declined")
    assert repr(left) == "RunResult(skipped, reason='declined')"


def test_ok_says_whether_it_ended_as_the_body_wanted() -> None:
    """An exit is the body's own choice."""
    assert RunResult(run_id="a", status="completed").ok
    assert RunResult(run_id="a", status="cancelled", exited=True).ok
    assert not RunResult(run_id="a", status="cancelled").ok
    assert not RunResult(run_id="a", status="failed", exited=True).ok
