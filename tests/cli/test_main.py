"""The command line: help, errors, exit statuses, and each verb on a real journal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loom_kernel.cli.main import main, parser

FLOWS = '''
from loom_kernel import Context, step, workflow

@step
def add(a: int, b: int) -> int:
    return a + b

@workflow
async def total(ctx: Context, x: int = 1, name: str = "") -> dict:
    """Adds."""
    return {"sum": await add(x, 2), "name": name}

@workflow
async def asking(ctx: Context) -> str:
    return "went" if await ctx.ui.confirm("Go on?", name="go") else "stayed"

@workflow
async def failing(ctx: Context) -> None:
    await add("a", 1)
'''

VERBS = [
    "demo", "lab", "run", "runs", "show", "answer", "cancel", "stop", "resume", "sql", "hub", "doctor", "worker",
    "export", "gc", "rm", "fork", "diff", "why", "replay",
]  # fmt: skip


@pytest.fixture
def flows(project: Path) -> Path:
    """A file with workflows in a project of its own."""
    path = project / "flows.py"
    path.write_text(FLOWS)
    return path


@pytest.fixture
def loom(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command in this process: its status, stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(arguments)
        out, err = capsys.readouterr()
        return status, out, err

    return run


@pytest.fixture
def waiting(flows: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Another process that runs ``asking``, and its run's id."""
    process = subprocess.Popen(
        [sys.executable, "-m", "loom_kernel.cli.main", "run", f"{flows}:asking"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("asking  "), (line, process.stderr.read() if process.stderr and process.poll() else "")
    yield process, line.split()[1]
    process.kill()
    process.communicate()


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """``loom VERB --help`` says what it does."""
    with pytest.raises(SystemExit) as caught:
        parser().parse_args([verb, "--help"])
    assert caught.value.code == 0
    assert f"usage: loom {verb}" in capsys.readouterr().out


def test_options_are_not_abbreviated(capsys: pytest.CaptureFixture[str]) -> None:
    """A shortened option would mean another one some day."""
    with pytest.raises(SystemExit) as caught:
        parser().parse_args(["runs", "--lim", "3"])
    assert caught.value.code == 2


def test_run_prints_nodes_and_result(flows: Path, loom: Callable[..., tuple[int, str, str]]) -> None:
    """Inputs are read by their types; the result is on stdout."""
    status, out, err = loom("run", f"{flows}:total", "x=40", "name=3")
    assert (status, err) == (0, "")
    assert "✓ add" in out
    assert out.splitlines()[-1] == "{'sum': 42, 'name': '3'}"
    status, out, _ = loom("run", f"{flows}:total", "--json")
    assert (status, json.loads(out)["result"]) == (0, {"sum": 3, "name": ""})


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "nowhere.py:total"], "there is no file 'nowhere.py'"),
        (["run", "flows.py"], "defines asking, failing, total; say which"),
        (["run", "flows.py:totel"], "no workflow named 'totel' here. Known: asking, failing, total"),
        (["run", "flows.py:total", "x=three", "y=1"], "2 problems with the inputs"),
        (["run", "flows.py:total", "x"], "inputs are written key=value, not 'x'"),
        (["show", "zzzz"], "no run 'zzzz'"),
        (["sql", "drop table runs"], "only SELECT is allowed"),
        (["sql", "select * from rums"], "there is no table 'rums'. Did you mean runs?"),
    ],
)
def test_errors_are_sentences_on_stderr(
    flows: Path, loom: Callable[..., tuple[int, str, str]], arguments: list[str], says: str
) -> None:
    """A non-zero status and no traceback, unless ``--debug`` asks for it."""
    status, out, err = loom(*arguments)
    assert status == 1
    assert out == ""
    assert err.startswith("loom: ")
    assert says in err
    assert "Traceback" not in err
    status, _, err = loom(*arguments, "--debug")
    assert (status, "Traceback" in err) == (1, True)


def test_a_failed_run_is_a_failed_command(flows: Path, loom: Callable[..., tuple[int, str, str]]) -> None:
    """With the step, the error and the person's own line."""
    status, _, err = loom("run", f"{flows}:failing")
    assert status == 1
    assert "the run of 'failing' failed in step 'add': TypeError" in err
    assert "return a + b" in err


def test_a_broken_file_is_a_sentence(project: Path, loom: Callable[..., tuple[int, str, str]]) -> None:
    """It names the file and the error."""
    (project / "bad.py").write_text("1/0\n")
    status, _, err = loom("run", "bad.py:x")
    assert (status, "bad.py cannot be executed: ZeroDivisionError" in err) == (1, True)


def test_runs_show_and_sql_read_the_journal(flows: Path, loom: Callable[..., tuple[int, str, str]]) -> None:
    """As tables, and as JSON."""
    assert loom("runs")[1] == "no runs\n"
    loom("run", f"{flows}:total", "x=1", "--tag", "a")
    status, out, _ = loom("runs")
    assert status == 0
    header, row = out.splitlines()
    assert header.split() == ["run", "workflow", "status", "started", "inputs"]
    run_id, workflow, state, *_ = row.split()
    assert (workflow, state) == ("total", "completed")
    listed = json.loads(loom("runs", "--json", "--tag", "a")[1])
    assert (listed[0]["runId"], listed[0]["tags"]) == (run_id, ["a"])
    assert "✓  add" in loom("show", run_id[:6])[1]
    assert json.loads(loom("show", run_id, "--json")[1])["status"] == "completed"
    status, out, _ = loom("sql", "select workflow, status from runs")
    assert out.splitlines()[1].split() == ["total", "completed"]
    assert json.loads(loom("sql", "select count(*) as n from nodes", "--json")[1]) == [{"n": 1}]
    status, out, err = loom("sql", "select * from range(5) as t(i)", "--limit", "2")
    assert len(out.splitlines()) == 3
    assert "more than 2 rows" in err


def test_another_process_answers(
    waiting: tuple[subprocess.Popen[str], str], loom: Callable[..., tuple[int, str, str]]
) -> None:
    """The question of one terminal is answered in another."""
    process, run_id = waiting
    wait_for_question(loom, run_id)
    status, _, err = loom("answer", run_id, "perhaps")
    assert (status, "yes or no" in err) == (1, True)
    assert loom("answer", run_id, "go", "yes")[:2] == (0, "answered\n")
    out, err = process.communicate(timeout=20)
    assert process.returncode == 0, err
    assert out.splitlines()[-1] == "went"
    assert f"loom answer {run_id} go VALUE" in err


def test_another_process_stops_and_one_goes_on(
    flows: Path, waiting: tuple[subprocess.Popen[str], str], loom: Callable[..., tuple[int, str, str]]
) -> None:
    """``loom stop`` pauses, ``loom resume`` goes on from the journal."""
    process, run_id = waiting
    wait_for_question(loom, run_id)
    assert loom("stop", run_id)[0] == 0
    _, err = process.communicate(timeout=20)
    assert (process.returncode, "was stopped" in err or "paused" in err) == (3, True)
    answers = flows.parent / "answers.yaml"
    answers.write_text("- {prompt: go, answer: no}\n")
    status, out, _ = loom("resume", run_id, str(flows), "--answers", str(answers))
    assert (status, out.splitlines()[-1]) == (0, "stayed")


def test_another_process_cancels(
    waiting: tuple[subprocess.Popen[str], str], loom: Callable[..., tuple[int, str, str]]
) -> None:
    """The run ends for good, and its process says so."""
    process, run_id = waiting
    wait_for_question(loom, run_id)
    assert loom("cancel", run_id, "--reason", "enough")[0] == 0
    _, err = process.communicate(timeout=20)
    assert (process.returncode, "was cancelled: enough" in err) == (3, True)


def wait_for_question(loom: Callable[..., tuple[int, str, str]], run_id: str) -> None:
    """Until the run's question is open."""
    end = time.monotonic() + 20
    while json.loads(loom("runs", "--json")[1])[0]["openPrompts"] == 0:
        assert time.monotonic() < end
        time.sleep(0.1)


def test_the_hub_says_whether_it_runs_and_stops(flows: Path, loom: Callable[..., tuple[int, str, str]]) -> None:
    """Nothing is started only to be asked about."""
    assert "no hub is running" in loom("hub", "status")[1]
    loom("runs")
    assert json.loads(loom("hub", "status", "--json")[1])["running"] is True
    assert loom("hub", "stop")[1] == "stopped\n"
    assert loom("hub", "stop")[1] == "no hub is running here\n"


def test_the_doctor_lists_settings_with_their_sources(project: Path, loom: Callable[..., tuple[int, str, str]]) -> None:
    """What somebody who helps needs to know."""
    status, out, _ = loom("doctor")
    assert status == 0
    assert "environment" in out
    assert "duckdb" in out
    found = json.loads(loom("doctor", "--json")[1])
    assert {s["name"]: s["source"] for s in found["settings"]}["home"] == "environment"
    assert found["versions"]["loom-kernel"]


def test_answers_that_nobody_asked_for_fail(flows: Path, loom: Callable[..., tuple[int, str, str]]) -> None:
    """A script of answers is held to what was asked."""
    answers = flows.parent / "answers.yaml"
    answers.write_text("- {prompt: go, answer: yes}\n- {prompt: never, answer: 1}\n")
    status, out, err = loom("run", f"{flows}:asking", "--answers", str(answers))
    assert out.splitlines()[-1] == "went"
    assert status == 1
    assert "never" in err


def test_edited_code_goes_on_after_its_plan(flows: Path, loom: Callable[..., tuple[int, str, str]]) -> None:
    """``loom resume --edited`` prints the plan and runs nothing; with --accept it goes on, a finished run in a fork."""
    assert loom("run", f"{flows}:total", "x=3")[0] == 0
    run_id = json.loads(loom("runs", "--json")[1])[0]["runId"]
    flows.write_text(FLOWS.replace("return a + b", "return a * 10 + b"))
    status, out, err = loom("resume", run_id, str(flows), "--edited")
    assert status != 0 and "add(a=3, b=2)  runs again  its code was edited" in out, (out, err)
    status, out, err = loom("resume", run_id, str(flows), "--edited", "--accept")
    assert status == 0 and "'sum': 32" in out, (out, err)
    with pytest.raises(SystemExit):
        parser().parse_args(["resume", run_id, str(flows), "--edited", "--recorded"])
