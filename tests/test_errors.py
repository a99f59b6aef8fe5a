"""Which errors are worth another try from outside."""

from __future__ import annotations

import pickle

import pytest

from loom_kernel import WorkflowInfrastructureError, is_retryable_workflow_error
from loom_kernel.errors import ChildWorkflowError, JournalError, StaleLeaseError, StorageUnavailableError


@pytest.mark.parametrize(
    ("error", "code"),
    [(StorageUnavailableError("the disk is full"), "storage_unavailable"), (StaleLeaseError("r1"), "stale_work_lease")],
)
def test_faults_of_the_machinery_are_retryable(error: JournalError, code: str) -> None:
    """They say which fault it was, also after pickling, and are still errors of the journal."""
    assert isinstance(error, WorkflowInfrastructureError) and isinstance(error, JournalError)
    again = pickle.loads(pickle.dumps(error))
    assert (again.code, again.retryable, str(again)) == (code, True, str(error))
    assert is_retryable_workflow_error(error)


def test_the_chain_of_causes_counts() -> None:
    """Whatever was raised from such a fault, or while one was handled; circles end."""
    with pytest.raises(ValueError, match="outer") as caused:
        raise ValueError("outer") from StorageUnavailableError("gone")
    assert is_retryable_workflow_error(caused.value)
    during = KeyError("handled")
    during.__context__ = caused.value
    assert is_retryable_workflow_error(during)
    circle = ValueError()
    circle.__cause__, circle.__context__ = KeyError(), circle
    circle.__cause__.__cause__ = circle
    assert not is_retryable_workflow_error(circle)


def test_a_workflows_own_failure_is_not_retryable() -> None:
    """A child that failed by its own logic fails again."""
    assert not is_retryable_workflow_error(ChildWorkflowError("child", "failed", "its own"))
    assert not is_retryable_workflow_error(None)
