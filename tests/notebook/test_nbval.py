"""Notebooks with our output pass nbval, outputs compared, as often as one likes; a failure makes it red."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest

from loom_kernel.testing import nbval_sanitize
from tests.notebook.kernel import ROOT

pytestmark = pytest.mark.timeout(300)

GOOD = [
    "%load_ext loom_kernel\nfrom loom_kernel import step",
    "@step\ndef square(n: int) -> int:\n    print('squaring', n)\n    return n * n",
    "%%workflow squares --input n:int\n"
    "found = [await square(i) for i in range(n)]\n"
    "await ctx.ui.confirm('Sum them?', name='go')\n"
    "return sum(found)",
    "r = %loom run squares n=3",
    "r",
    "await r",
    "%loom workflows",
    "%%loomsql\nselect name, status, attempts from nodes order by name, node_id",
    "%loom runs",
]
ANSWERS = "- {workflow: squares, prompt: go, answer: yes}\n"


def written(folder: Path, cells: list[str], *, expect_error: bool = False, **env: str) -> Path:
    """A notebook with the outputs of one headless execution."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    client = nbclient.NotebookClient(
        notebook,
        timeout=120,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        allow_errors=expect_error,
    )
    client.execute(env={**environment(folder), **env})
    path = folder / "made.ipynb"
    nbformat.write(notebook, path)
    return path


def environment(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "LOOM_ANSWERS": str(folder / "answers.yaml"),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }


def nbval(path: Path, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        f"--rootdir={path.parent}",
    ]
    command += ["--nbval", "--nbval-sanitize-with", nbval_sanitize(), "--nbval-current-env", *options, str(path)]
    return subprocess.run(
        command,
        cwd=path.parent,
        env={**environment(path.parent), **env},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.mark.parametrize("env", [{}, {"LOOM_TEST": "1"}], ids=["a real journal", "LOOM_TEST"])
def test_outputs_are_the_same_each_time(project: Path, monkeypatch: pytest.MonkeyPatch, env: dict[str, str]) -> None:
    """Executed once, then compared twice: every output of every cell is what it was."""
    if env:
        monkeypatch.delenv("LOOM_HOME")  # LOOM_TEST makes a journal of its own for each kernel
    (project / "answers.yaml").write_text(ANSWERS)
    # A journal that stays has more runs each time, which the last two cells would show.
    path = written(project, GOOD if env else GOOD[:-2], **env)
    saved = path.read_text()
    assert "widget-view" not in saved and '"widgets"' not in saved and str(project) not in saved
    assert len(saved) < 50_000 and "squares: completed, 3 of 3 steps" in saved
    for _ in range(2):
        done = nbval(path, **env)
        assert done.returncode == 0, done.stdout[-4000:]


def test_a_failing_workflow_is_red_even_in_lax_mode(project: Path) -> None:
    """A wrong option, a wrong query and a failed run are errors, not streams."""
    (project / "answers.yaml").write_text("[]\n")
    wrong = ["%load_ext loom_kernel", "%loom run nope", "%%loomsql\nselect * from nope", "%loom runs --bogus"]
    path = written(project, wrong, expect_error=True)
    outputs = [cell["outputs"] for cell in nbformat.read(path, as_version=4).cells[1:]]
    assert [o[0]["ename"] for o in outputs] == ["UnknownWorkflowError", "SqlError", "CommandError"]
    for cell in (notebook := nbformat.read(path, as_version=4)).cells:
        cell["outputs"] = []
    nbformat.write(notebook, path)
    done = nbval(path, "--nbval-lax")
    assert "3 failed" in done.stdout and done.returncode == 1, done.stdout[-3000:]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run k3v9t2m4x7qa of digest", "run RUN of digest"),
        ("completely finished", "completely finished"),
        ("2026-01-02 03:04:05.123+00:00", "TIMESTAMP"),
        ("attached to the run of 14:02, 3 of 5", "attached to the run of TIME, 3 of 5"),
        ("took 1.25 s and 3 ms", "took DURATION and DURATION"),
        ("<object at 0x7f12ab>", "<object at ADDRESS>"),
        ("File /tmp/ipykernel_8709/12.py:3", "File CELL:3"),
        ("/home/somebody/x/feed.csv", "PATH"),
    ],
)
def test_what_is_sanitized(text: str, expected: str) -> None:
    """Ids, times, durations, addresses and paths are replaced; words are not."""
    rules = re.findall(r"^regex: (.*)$\n^replace: (.*)$", Path(nbval_sanitize()).read_text(), re.MULTILINE)
    assert len(rules) == 10
    for pattern, replacement in rules:
        text = re.sub(pattern, replacement, text)
    assert text == expected
