"""Where a run's time went, and what decided its end."""

from __future__ import annotations

import json

import jsonschema
import pytest

from loom_kernel.views.schema import json_schema
from loom_kernel.views.times import KINDS, timeline, times
from tests.views import histories
from tests.views.histories import History

pytestmark = pytest.mark.timeout(30)


def test_every_moment_is_under_one_word() -> None:
    """Running, waiting for a person, trying again, queued, between steps and at rest add up to the run's whole time."""
    h = histories.timed()
    found = times(h.view(), h.now + 99)
    assert {k: pytest.approx(found.seconds[k]) for k in KINDS} == {
        "running": 8.0, "waiting": 10.0, "retrying": 3.0, "sleeping": 0.0, "queued": 2.5, "between": 0.5, "rest": 60.0,
    }  # fmt: skip
    assert sum(found.seconds.values()) == pytest.approx(found.total_s) == pytest.approx(84.0)


def test_the_critical_path_leads_back_over_what_was_last() -> None:
    """Each call of the path waited for the one before; the quick branch is not on it."""
    path = times(histories.timed().view(), 0.0).path
    assert [leg.node.name for leg in path] == ["read", "slow", "flaky", "drop", "pooled"]
    assert path[1].gap_s == pytest.approx(1.0) and path[2].seconds("retrying") == pytest.approx(3.0)
    assert path[3].seconds("waiting") == pytest.approx(10.0) and path[4].seconds("queued") == pytest.approx(2.0)


def test_what_goes_on_counts_up_to_now() -> None:
    """An open question and a running step end now; an interrupted run ends with its last event."""
    h = histories.waiting()
    view = h.view()
    before = times(view, h.now).seconds["waiting"]
    assert times(view, h.now + 5).seconds["waiting"] == pytest.approx(before + 5)
    view.interrupted = True
    assert times(view, h.now + 500).total_s < 100
    assert times(History().view(), 5.0).path == ()


def test_the_timeline_fits_its_schema_and_its_screen() -> None:
    """Rows are bounded, critical ones stay, and spans of a stack are joined."""
    schema = {"$ref": "#/$defs/TimesShot", "$defs": json_schema()["$defs"]}
    for h in (histories.timed(), histories.thousand(), histories.ten_thousand(), histories.failing()):
        made = json.loads(json.dumps(timeline(h.view(), h.now)))
        assert [e.message for e in jsonschema.Draft202012Validator(schema).iter_errors(made)] == []
        assert len(made["rows"]) <= 60 and all(len(r["spans"]) <= 48 for r in made["rows"])
        assert sum(p["seconds"] for p in made["parts"]) == pytest.approx(made["totalS"], abs=0.01)
    assert made["critical"].endswith("drop? → write")
