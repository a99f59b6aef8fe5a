"""What the widget is told, and the contract for other languages."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from loom_kernel.events import ArtifactKept, Frame, Shown, encode
from loom_kernel.journal.abc import JournalEntry
from loom_kernel.views.detail import detail
from loom_kernel.views.schema import json_schema, typescript
from loom_kernel.views.snapshot import snapshot
from tests.views import histories
from tests.views.histories import History, error, raw

pytestmark = pytest.mark.timeout(30)
STATES = ["waiting", "running", "failing", "completed", "fan_out", "form", "mixed"]


def validator(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": json_schema()["$defs"]})


@pytest.mark.parametrize("name", STATES)
def test_snapshots_fit_their_schema(name: str) -> None:
    """Every state is plain JSON that the published schema accepts; so is every node's detail."""
    h = getattr(histories, name)()
    view = h.view()
    shot = json.loads(json.dumps(snapshot(view, h.now)))
    assert [e.message for e in validator("Snapshot").iter_errors(shot)] == []
    boxes = [b["id"] for b in shot["graph"]["boxes"]]
    for node_id in ["", *view.order[:3], *boxes[-3:]]:
        assert [e.message for e in validator("DetailShot").iter_errors(detail(view, node_id))] == []


def test_the_generated_types_are_current() -> None:
    """``python -m loom_kernel.views.schema --typescript`` was run after the last change."""
    path = Path(__file__).parents[2] / "labextension" / "src" / "generated" / "views.ts"
    assert path.read_text() == typescript()


def test_a_large_fan_out_is_a_small_message() -> None:
    """Eight hundred branches are told in less than three kilobytes."""
    h = histories.fan_out(800)
    assert len(json.dumps(snapshot(h.view(), h.now))) < 3_000


def test_buttons_fit_the_status() -> None:
    """What can be done is offered, and nothing else."""

    def actions(h: History) -> list[str]:
        return [b["action"] for b in snapshot(h.view(), h.now)["buttons"]]

    assert actions(histories.running()) == ["stop", "cancel"]
    assert actions(histories.completed()) == []
    assert actions(histories.failing()) == ["resume"]
    h = histories.running()
    h.paused()
    assert actions(h) == ["resume", "cancel"]
    h = histories.running()
    h.paused("needs_decision", "Another call than recorded.")
    shot = snapshot(h.view(), h.now)
    assert actions(h) == ["accept", "resume", "cancel"]
    assert (shot["words"], shot["notice"]) == ("needs a decision", "Another call than recorded.")
    h.ended("cancelled")
    assert actions(h) == []
    view = histories.waiting().view()
    view.interrupted = True
    shot = snapshot(view, 0)
    assert [b["action"] for b in shot["buttons"]] == ["resume", "cancel"]
    assert shot["activeSince"] is None and shot["words"] == "interrupted" and "kernel is gone" in shot["notice"]


def test_a_failure_names_the_persons_line() -> None:
    """Class, sentence, own lines, and what happens on a resume."""
    shot = snapshot(histories.failing().view(), 0)["failure"]
    assert (shot["type"], shot["message"]) == ("PermissionError", "'out/clean.parquet' is not writable")
    assert shot["lines"] == [{"place": "cell 4, write()", "line": 12, "text": "table.to_parquet(target)"}]
    assert shot["hint"] == "6 finished steps are kept. Fix the cause, then resume: only write runs again."


def test_hints_say_how_to_answer_in_a_cell() -> None:
    """The hint is a line that works, as far as it can know the answer."""
    h = History()
    h.started()
    for i, (kind, more) in enumerate(
        [
            ("confirm", {}),
            ("select", {"options": ["one way", "b"]}),
            ("input", {}),
            ("form", {}),
            ("select", {"options": ["b"]}),
        ]
    ):
        h.ask(f"q{i}", "?", kind=kind, **more)
    hints = [q["hint"] for q in snapshot(h.view(), h.now)["questions"]]
    assert hints == [
        "%loom answer q0 yes",
        '%loom answer q1 "one way"',
        '%loom answer q2 "..."',
        "%loom answer q3 '{...}'",
        "%loom answer q4 b",
    ]


def test_shown_things_are_bounded() -> None:
    """A question that shows more than twenty rows says how many there are."""
    h = History()
    h.started()
    rows = [[str(i)] for i in range(300)]
    h.ask(
        "go",
        "Go?",
        shown=[Shown(kind="table", columns=["n"], rows=rows, total=300), Shown(kind="text", text="x" * 50_000)],
    )
    table, text = snapshot(h.view(), h.now)["questions"][0]["shown"]
    assert len(table["rows"]) == 20 and table["total"] == 300
    assert len(text["text"]) < 21_000


def test_what_ticks_is_told_as_a_moment() -> None:
    """Running nodes carry their begin, sleeping and retrying ones their end, finished ones neither."""
    h = History()
    h.started()
    done = h.step("done")
    going = h.start("going")
    sleeping = h.start("nap", kind="sleep", wake_at=h.now + 60)
    boxes = {b["id"]: b for b in snapshot(h.view(), h.now)["graph"]["boxes"]}
    assert (boxes[done]["since"], boxes[done]["until"]) == (None, None)
    assert boxes[going]["since"] == pytest.approx(h.now)
    assert boxes[sleeping]["until"] == pytest.approx(h.now + 60)
    assert snapshot(h.view(), h.now)["words"] == "running"
    h.done(going)
    assert snapshot(h.view(), h.now)["words"] == "sleeping"


def test_details_show_values_in_words() -> None:
    """Inputs and output are readable: tables by their size, secrets not at all, long logs by their end."""
    h, _ = histories.weather()
    view = h.view()
    shot = detail(view, view.order[0])
    assert shot["output"] == "‹pandas, 1,461 × 6›"
    assert json.loads(shot["inputs"]) == {"path": "weather.csv"}
    assert shot["log"] == ["1,461 rows, 6 columns"] and shot["where"] == "cell 4, line 7"
    assert shot["facts"] == ["0.31 s", "from the journal"]
    h = History()
    h.started()
    node = h.start("login", args={"token": {"$loom": "secret", "sha256": "ab"}})
    h.failed(node, error("m:Odd", "no", Frame("cell 1", 3, "<module>", "login()"), notes=["try later"]))
    shot = detail(h.view(), node)
    assert "••••••" in shot["inputs"] and shot["output"] == ""
    assert shot["failure"]["lines"][0]["place"] == "cell 1, <module>" and shot["failure"]["notes"] == ["try later"]
    assert detail(h.view(), "step:none:#1")["label"] == ""


def test_a_stack_lists_what_failed_first() -> None:
    """Members are bounded, and those that need attention come first."""
    h = histories.fan_out(800, failures=3)
    stack = snapshot(h.view(), h.now)["graph"]["boxes"][1]["id"]
    shot = detail(h.view(), stack)
    assert [m["status"] for m in shot["members"][:4]] == ["failed", "failed", "failed", "running"]
    assert len(shot["members"]) == 200 and shot["membersLeftOut"] == 600
    assert shot["members"][0]["note"] == "TimeoutError: feed 0 does not answer"


def test_the_runs_log_names_its_steps() -> None:
    """The log of the whole run is asked for with an empty node."""
    h, _ = histories.weather()
    h.add(histories.ev.OutputReported(value=raw("halfway")))
    assert detail(h.view(), "")["log"] == ["read: 1,461 rows, 6 columns", "halfway"]


def test_a_panel_shows_what_the_step_made() -> None:
    """Tables and figures of a step, at most six, stand in its panel; what the body put belongs to no node."""
    h = histories.completed()
    node_id = h.view().order[0]
    image = Shown(kind="image", text="data:image/png;base64,aGk=")
    table = Shown(kind="table", columns=["a"], rows=[["1"]], total=9)
    view = h.view()
    before = len(view.nodes)
    for n in range(8):
        event = ArtifactKept(name="plot", revision=n + 1, kind="figure", source="result", preview=[image, table])
        view.apply(JournalEntry(1000 + n, "r", view.revision + 1, None, event.type, node_id, encode(event), 0))
    event = ArtifactKept(name="x", revision=1, kind="json", source="put", preview=[Shown(kind="json", text="1")])
    view.apply(JournalEntry(2000, "r", view.revision + 1, None, event.type, "put:x:#1", encode(event), 0))
    shot = detail(view, node_id)
    assert [part["kind"] for part in shot["shown"]] == ["image", "table"] * 3 and len(view.nodes) == before
    assert [e.message for e in validator("DetailShot").iter_errors(shot)] == []
