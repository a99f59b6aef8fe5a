"""Tab offers what can stand at the cursor, and nothing of Python's."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from loom_kernel.authoring import registry as registry_module
from loom_kernel.authoring.registry import Registry
from loom_kernel.authoring.workflow import define
from loom_kernel.notebook.completion import Completion
from loom_kernel.notebook.verbs.base import Session
from tests.notebook.kernel import Kernel


async def digest(ctx: Any, url: str, limit: int = 10) -> int:
    return limit


@pytest.fixture
def completion(monkeypatch: pytest.MonkeyPatch) -> Completion:
    known = Registry()
    known.register(define(digest))
    known.register(define(digest, name="weekly digest"))
    monkeypatch.setattr(registry_module, "registry", known)

    def no_runtime() -> Any:
        raise AssertionError("Tab loads no runtime")

    monkeypatch.delitem(sys.modules, "loom_kernel.runtime", raising=False)  # another test may have loaded it
    frame = pd.DataFrame({"station": ["a"], "wind": [1.0]})
    return Completion(None, Session({"frame": frame, "url": "x", "_hidden": frame}, None, no_runtime))


def offered(completion: Completion, text: str) -> list[str] | None:
    """What is offered at the end of ``text``."""
    lines = text.split("\n")
    found = completion.offers(text, len(lines) - 1, len(lines[-1]))
    return None if found is None else [name for name, _ in found[1]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%loom re", ["resume"]),
        ("r = %loom ru", ["run", "runs"]),
        ("    %loom wor", ["workflows"]),
        ("%loom run d", ["digest"]),
        ("%loom run w", []),
        ("%loom fo", ["fork"]),
        ("%loom fork x --an", ["--answer"]),
        ("%loom diff x --s", ["--sql"]),
        ("%loom run ", ["digest", '"weekly digest"']),
        ("%loom run digest ", ["url=", "limit="]),
        ("%loom run digest url=a l", ["limit="]),
        ("%loom run digest url=$", ["$frame", "$url"]),
        ("%loom run digest --w", ["--wait"]),
        ("%loom run digest --wait --w", []),
        ("%loom run digest --tag a --t", ["--tag"]),
        ("%%loom run digest\n", ["url: ", "limit: "]),
        ("%%loom run digest\nurl: a\nl", ["limit: "]),
        ("%%workflow x --inp", ["--input"]),
        ("%%workflow x --input limit:i", ["int"]),
        ("%loomsql select * from r", ["runs", "records"]),
        ("%loomsql select * from arti", ["artifacts"]),
        ("%%loomsql\nselect revi from artifacts where me", ["media_type", "messages"]),
        ("%loomsql select * from runs where workflow = {u", ["url"]),
        ("%loomsql from artifact('c", []),
        ("%loomsql select * from f", ["frame"]),
        ("%%loomsql\nselect wi", []),
        ("%%loomsql\nselect * from frame where st", ["station"]),
        ("%%loomsql\nselect n.na from nodes n\nwhere n.dur", ["duration_s"]),
        ("%%loomsql slow << --li", ["--limit"]),
        ("%%loomsql slow << --limit 5 --p", ["--plot"]),
    ],
)
def test_what_is_offered(completion: Completion, text: str, expected: list[str]) -> None:
    """Verbs, options, workflows, inputs, variables, tables and columns, each where it can stand."""
    assert offered(completion, text) == expected


@pytest.mark.parametrize(
    "text", ["print(", "x = 1", "%%workflow digest\nawait ct", "%time lo", "%loomx r", "# %loom r"]
)
def test_other_places_are_left_to_python(completion: Completion, text: str) -> None:
    """Python's completion stays as it is, in a workflow's body too."""
    assert offered(completion, text) is None


def test_columns_of_the_tables_that_are_named(completion: Completion) -> None:
    """Before anything else is known all columns are offered; once a table is named, its own and the frame's."""
    everything = offered(completion, "%loomsql select ")
    assert everything is not None and {"workflow", "duration_s", "answered_by", "frame"} <= set(everything)
    some = offered(completion, "%%loomsql\nselect * from prompts join frame using (x) where ")
    assert some is not None and "answered_by" in some and "wind" in some and "workflow" not in some


@pytest.mark.timeout(120)
def test_a_kernel_keeps_pythons_names_out(project: Path) -> None:
    """In a real kernel ``--r`` is not ``--range`` and ``--repr``."""
    with Kernel(project) as kernel:
        kernel.ok("%load_ext loom_kernel")
        assert kernel.complete("%loom r") == ["run", "runs", "resume", "rm"]
        assert kernel.complete("%loom run x --k") == ["--key"]
        assert "print" in kernel.complete("prin")


@pytest.mark.timeout(120)
def test_nodes_of_a_run_are_offered(project: Path) -> None:
    """After ``--from`` and to ``why`` its nodes, those of one name by number; to ``fork`` its inputs and questions."""
    with Kernel(project, interactive=False) as kernel:
        kernel.ok("%load_ext loom_kernel")
        kernel.ok(
            "from loom_kernel import *\n@step\ndef fetch(n: int) -> int:\n    return n\n"
            "@workflow\nasync def digest(ctx: Context, url: str = 'a') -> None:\n"
            "    await fetch(1)\n    await fetch(2)\n    await ctx.ui.confirm('Go?', name='go', default=True, timeout_s=0.01)\n"
            "r = digest.start()\nr.wait();"
        )
        assert kernel.complete("%loom fork r --from ") == ["fetch#1", "fetch#2", "go"]
        assert kernel.complete("%loom why r f") == ["fetch#1", "fetch#2"]
        assert kernel.complete("%loom fork r --answer ") == ["go="]
        assert kernel.complete("%loom fork r u") == ["url="]
        assert "r" in kernel.complete("%loom diff r ")
