"""When a run is set aside because it is the death of its workers, told from its history."""

from __future__ import annotations

import itertools

import pytest

from loom_kernel import events as ev
from loom_kernel.engine.claiming import crashes, version_of
from loom_kernel.journal.abc import JournalEntry

_epochs = itertools.count(1)


def lease(after: str = "") -> tuple[ev.Event, str | None]:
    return ev.LeaseTaken(epoch=next(_epochs), holder="w", after=after), None


def step(name: str = "boom") -> tuple[ev.Event, str | None]:
    return ev.NodeStarted(name=name, kind="step"), f"step:{name}:#1"


SLEEP = (ev.NodeStarted(name="nap", kind="sleep"), "sleep:nap:#1")
ASKS = (ev.PromptOpened(prompt="go", kind="confirm", message="Go?"), "prompt:go:#1")
DONE = (ev.NodeCompleted(), "step:boom:#1")
DEAD = [lease("expired"), step()]


def entries(*written: tuple[ev.Event, str | None]) -> list[JournalEntry]:
    return [
        JournalEntry(n, "run", n, None, event.type, node, ev.encode(event), 0)
        for n, (event, node) in enumerate(written, 1)
    ]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ([lease(), step()], (0, "")),
        ([lease(), step(), lease("expired")], (1, "boom")),
        ([lease(), step(), *DEAD, *DEAD, lease("expired")], (3, "boom")),
        ([lease(), lease("expired"), lease("expired")], (2, "")),  # the body itself, before its first step
        ([lease(), step(), lease(), step(), lease("taken")], (0, "")),  # given back, and taken by a person
        ([lease(), step(), *DEAD, DONE, lease("expired")], (1, "")),  # something was finished in between
        ([lease(), SLEEP, lease("expired"), lease("expired")], (0, "")),  # it only waited
        ([lease(), ASKS, lease("expired"), step("after"), lease("expired")], (1, "after")),
        ([lease(), step(), *DEAD, (ev.RunPaused(reason="crashes"), None), lease("expired")], (1, "boom")),
    ],
)
def test_only_deaths_at_work_in_a_row_count(
    written: list[tuple[ev.Event, str | None]], expected: tuple[int, str]
) -> None:
    """A worker that died while the run waited, or that gave it back, has nothing to do with it."""
    assert crashes(entries(*written)) == expected


def test_the_version_is_that_of_the_last_execution() -> None:
    """A person may have gone on with other code."""
    created = (ev.RunCreated(workflow="w", definition_version="1"), None)
    started = (ev.RunStarted(worker="a", definition_version="2"), None)
    assert version_of(entries(created)) == "1"
    assert version_of(entries(created, started)) == "2"
