"""``loom fork``, ``diff``, ``why`` and ``show --at`` on a real journal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from loom_kernel.cli.main import main
from tests.cli.test_main import FLOWS

Loom = Callable[..., tuple[int, str, str]]


@pytest.fixture
def loom(capsys: pytest.CaptureFixture[str]) -> Loom:
    """Runs a command in this process: its status, stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(arguments)
        out, err = capsys.readouterr()
        return status, out, err

    return run


@pytest.fixture
def first(project: Path, loom: Loom) -> str:
    """The id of a finished run of ``total``."""
    (project / "flows.py").write_text(FLOWS)
    loom("run", "flows.py:total", "x=1")
    _, out, _ = loom("runs", "--json")
    run_id: str = json.loads(out)[0]["runId"]
    return run_id


def test_forking_comparing_and_asking_why(loom: Loom, first: str) -> None:
    """A fork with another input, its difference as text, JSON and SQL, and why its step ran."""
    status, out, err = loom("fork", first, "flows.py", "x=40")
    assert status == 0
    assert err.startswith("forked from the run of ")
    assert out.splitlines()[-1] == "{'sum': 42, 'name': ''}"
    _, out, _ = loom("runs", "--json")
    forked = json.loads(out)[0]["runId"]
    status, out, _ = loom("diff", forked)
    assert status == 0
    assert out.splitlines()[0] == "total: A and B differ in 1 call, the inputs and the result"
    assert "≠ add: other arguments and result" in out
    status, out, _ = loom("diff", first, forked, "--json")
    assert json.loads(out)["nodes"][0]["what"] == ["arguments", "result"]
    _, query, _ = loom("diff", first, forked, "--sql")
    status, out, _ = loom("sql", query, "--json")
    assert [(row["name"], row["change"]) for row in json.loads(out)] == [("add", "changed")]
    _, out, _ = loom("diff", first, forked, "--node", "add")
    assert "the inputs" not in out.splitlines()[0]
    status, out, _ = loom("why", forked, "add")
    assert status == 0 and "its arguments are others" in out
    _, out, _ = loom("why", forked, "--json")
    assert json.loads(out)["about"] == "total"
    status, out, _ = loom("show", first, "--at", "2099-01-01")
    assert (status, out.splitlines()[0]) == (0, "total: completed, 1 of 1 step")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fork", "ID", "nowhere.py"], "there is no file 'nowhere.py'"),
        (["fork", "ID", "flows.py", "--from", "ad"], "no node named 'ad'; there are add"),
        (["fork", "ID", "flows.py", "x"], "inputs are written key=value, not 'x'"),
        (["fork", "ID", "flows.py", "y=1"], "y"),
        (["fork", "ID", "flows.py", "--answer", "go"], "answers are written NAME=VALUE, not 'go'"),
        (["diff", "ID"], "is no fork; say with which run to compare it"),
        (["diff", "ID", "ID", "--node", "nix"], "neither run has a node named 'nix'; there are add"),
        (["why", "ID", "nix"], "no node named 'nix'; there are add"),
        (["show", "ID", "--at", "noon"], "'noon' is no moment; write '14:03'"),
        (["show", "ID", "--at", "1999-01-01"], "the run did not exist then"),
    ],
)
def test_wrong_arguments_are_sentences(loom: Loom, first: str, arguments: list[str], says: str) -> None:
    """One sentence on stderr and a status that is not zero."""
    status, _, err = loom(*[first if word == "ID" else word for word in arguments])
    assert status == 1
    assert err.startswith("loom: ") and says in err, err
