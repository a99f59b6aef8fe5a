"""Looking for steps."""

from __future__ import annotations

import pytest

from loom_kernel.views.finding import find
from tests.views import histories

pytestmark = pytest.mark.timeout(30)


def test_words_are_found_in_names_arguments_states_and_errors() -> None:
    """Every word counts, whatever its case; failures come first; the stack that holds a hit is named."""
    view = histories.fan_out(800, failures=3).view()
    stack = next(b for b in find(view, "fetch")["boxes"])
    failed = find(view, "FAILED")
    assert [n["status"] for n in failed["nodes"]] == ["failed"] * 3 and failed["boxes"] == [stack]
    assert find(view, "feed/17 fetch")["nodes"][0]["label"].startswith("fetch · https://example.org/feed/17")
    assert len(find(view, "timeouterror")["nodes"]) == 3
    everything = find(view, "fetch")
    assert (
        len(everything["nodes"]) == 200
        and everything["leftOut"] == 600
        and everything["nodes"][0]["status"] == "failed"
    )
    assert find(view, "nothing like it")["boxes"] == [] and find(view, "  ")["nodes"] == []
