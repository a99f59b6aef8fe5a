"""The cell is the body: compiled with the cell's own lines, errors pointing into it."""

from __future__ import annotations

import asyncio
import inspect
import sys
import traceback
import warnings
from typing import Any

import pytest

from loom_kernel.authoring.code import code_version
from loom_kernel.authoring.registry import registry
from loom_kernel.authoring.workflow import define
from loom_kernel.errors import CellSyntaxError, CommandError, OutputError
from loom_kernel.notebook import lint_lines
from loom_kernel.notebook.workflow_cell import (
    compile_body,
    define_from_cell,
    outputs_type,
    read_parameter,
    remember,
    variable_name,
)


def compiled(body: str, *inputs: str, namespace: dict[str, Any] | None = None) -> Any:
    names: dict[str, Any] = {} if namespace is None else namespace
    parameters = [read_parameter(i, "--input", names) for i in inputs]
    return compile_body("digest", body, parameters, remember(f"%%workflow digest\n{body}"), names)


def test_body_awaits_returns_and_sees_the_notebook() -> None:
    """The body may await and return, reads notebook globals when it runs, and keeps its own names."""
    names: dict[str, Any] = {"asyncio": asyncio}
    fn = compiled("await asyncio.sleep(0)\ntotal = limit + offset\nreturn total", "limit:int=10", namespace=names)
    names["offset"] = 5
    assert asyncio.run(fn(None)) == 15
    assert asyncio.run(fn(None, limit=1)) == 6
    assert "total" not in names and "digest" not in names


def test_strings_over_several_lines_are_untouched() -> None:
    """Nothing is indented, so a string that spans lines keeps its text."""
    assert asyncio.run(compiled('text = """a\n  b\nc"""\nreturn text')(None)) == "a\n  b\nc"


def test_signature_is_what_was_declared() -> None:
    """Inputs are keyword parameters with their types and defaults, in the order given."""
    fn = compiled("return 1", "limit:int=10", "rows:list[dict[str, int]]", "kind:Literal['a=b']='a=b'")
    signature = inspect.signature(fn)
    assert list(signature.parameters) == ["ctx", "limit", "rows", "kind"]
    assert signature.parameters["limit"].default == 10
    assert signature.parameters["rows"].annotation == list[dict[str, int]]
    assert signature.parameters["kind"].default == "a=b"


def test_text_defaults_need_no_quotes() -> None:
    """``url:str=feed.csv`` is the text feed.csv, and quotes are taken off where they are there."""
    assert read_parameter("url:str=feed.csv", "--input", {}).default == "feed.csv"
    assert read_parameter("url:str='a b'", "--input", {}).default == "a b"
    assert read_parameter("url:str=12", "--input", {}).default == "12"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("url", "write it as name:type, for instance --input url:str"),
        ("limit:imt", "there is no type 'imt' here. Did you mean int"),
        ("limit:int=ten", "the default 'ten' is not a Python expression"),
    ],
)
def test_wrong_declarations_are_sentences(text: str, sentence: str) -> None:
    """A declaration that means nothing says how it is written."""
    with pytest.raises(CommandError, match=sentence):
        read_parameter(text, "--input", {})


@pytest.mark.parametrize(
    ("body", "line", "text"),
    [
        ("x = 1\ny = = 2\n", 3, "y = = 2"),
        ("for i in range(3):\nprint(i)\n", 3, "print(i)"),
        ("x = 1\nif x:\n    yield x\n", 4, "    yield x"),
        ("x = 1\nbreak\n", 3, "break"),
    ],
)
def test_syntax_errors_point_into_the_cell(body: str, line: int, text: str) -> None:
    """The line is counted from the magic's own line, and its text is shown."""
    with pytest.raises(CellSyntaxError) as caught:
        compiled(body)
    assert (caught.value.line, caught.value.text) == (line, text)
    rendered = "\n".join(caught.value._render_traceback_())
    assert f"line {line}" in rendered and text.strip() in rendered and "SyntaxError:" in rendered


def test_tracebacks_show_the_cells_lines() -> None:
    """A failure in the body shows the line as it stands in the cell."""
    fn = compiled("x = 1\n\nx / 0")
    with pytest.raises(ZeroDivisionError) as caught:
        asyncio.run(fn(None))
    frame = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (frame.lineno, frame.line, frame.name) == (4, "x / 0", "digest")


def test_names_become_variables() -> None:
    """Any workflow name has a Python name."""
    assert [variable_name(n) for n in ("digest", "weekly digest", "a-b", "3d")] == [
        "digest",
        "weekly_digest",
        "a_b",
        "_3d",
    ]


def test_an_empty_cell_is_a_body() -> None:
    """A cell with nothing but comments returns None."""
    assert asyncio.run(compiled("# later\n")(None)) is None


def test_the_version_follows_the_code_only() -> None:
    """Comments and blank lines leave the version as it is; code, inputs and defaults change it."""
    versions = [
        code_version(compiled(body, declared))
        for body, declared in [
            ("x = n\nreturn x", "n:int=1"),
            ("# why\n\nx = n\nreturn x\n", "n:int=1"),
            ("x = n + 1\nreturn x", "n:int=1"),
            ("x = n\nreturn x", "n:int=2"),
        ]
    ]
    assert versions[0] == versions[1] and len(set(versions)) == 3
    assert code_version(compiled('return """a\n b"""')) != code_version(compiled('return """a\nb"""'))


def test_declared_outputs_are_the_keys_of_a_dict() -> None:
    """The returned dict has exactly the declared keys, of the declared types."""
    returns = outputs_type(
        "digest", [read_parameter("rows:list[int]", "--output", {}), read_parameter("n:int", "--output", {})]
    )
    source = remember("%%workflow digest\nreturn 1")
    definition = define(compile_body("digest", "return 1", [], source, {}, returns), name="digest")
    assert definition.check_output({"rows": [1], "n": 2}) == {"rows": [1], "n": 2}
    with pytest.raises(OutputError) as caught:
        definition.check_output({"rows": ["x"], "m": 2})
    assert len(caught.value.problems) == 3


def test_what_does_not_belong_is_one_line_under_the_cell(capsys: pytest.CaptureFixture[str]) -> None:
    """No stack and no source line; ``--no-lint`` is quiet, and so is what Python showed before once it is taken back."""
    text, names = "import time\nreturn time.time()", dict[str, Any]()
    before, remove = warnings.formatwarning, lint_lines.install()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            define_from_cell(["linted", "--no-lint"], text, remember(f"%%workflow linted --no-lint\n{text}"), names)
            assert capsys.readouterr().err == ""
            warnings.showwarning = lambda *a, **_: print(warnings.formatwarning(*a[:4]), end="", file=sys.stderr)
            define_from_cell(["linted"], text, remember(f"%%workflow linted\n{text}"), names)
    finally:
        remove()
        registry._definitions.pop("linted", None)
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1 and shown.startswith("WorkflowLintWarning: ")
    assert "line 3: `time.time()` gives another time when the run is resumed; use ctx.now()" in shown
    assert warnings.formatwarning is before
