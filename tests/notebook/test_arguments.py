"""Magics read strictly and answer wrong input with a sentence."""

from __future__ import annotations

import pytest

from loom_kernel.errors import CommandError
from loom_kernel.notebook.arguments import Arguments, HelpShown, pairs, split, value_of, without_markers


def parser() -> Arguments:
    made = Arguments("%loom run", "Start a run.")
    made.add_argument("name", metavar="NAME")
    made.add_argument("inputs", nargs="*", metavar="key=value")
    made.add_argument("--wait", action="store_true", help="wait for it")
    made.add_argument("--key", metavar="K", help="its key")
    return made


def test_options_may_stand_anywhere() -> None:
    """Options between positionals are read like any others."""
    found = parser().read(split("%loom run", 'digest url="a b.csv" --wait limit=3 --key=k'))
    assert (found.name, found.inputs, found.wait, found.key) == ("digest", ["url=a b.csv", "limit=3"], True, "k")


@pytest.mark.parametrize("typed", ["--wai", "--ke k"])
def test_abbreviations_are_refused_with_the_full_name(typed: str) -> None:
    """An abbreviation is an unknown option, and the error names the one that was meant."""
    with pytest.raises(CommandError, match="unknown option --(wai|ke). Did you mean --(wait|key)?"):
        parser().read(["digest", *typed.split()])


def test_missing_and_superfluous_words_are_sentences() -> None:
    """A missing positional and a missing option value say what the usage is."""
    with pytest.raises(CommandError, match="required: NAME.*Usage: %loom run"):
        parser().read([])
    with pytest.raises(CommandError, match="--key: expected one argument"):
        parser().read(["digest", "--key"])
    with pytest.raises(CommandError, match="never closed"):
        split("%loom run", 'digest url="a')


def test_help_is_printed_and_ends_the_magic(capsys: pytest.CaptureFixture[str]) -> None:
    """``--help`` prints what the magic takes, even where required words are missing."""
    with pytest.raises(HelpShown):
        parser().read(["--help"])
    assert "Start a run." in capsys.readouterr().out


def test_marker_comments_leave_an_empty_line() -> None:
    """nbval's markers are not handed to the magic, and the lines below keep their numbers."""
    assert without_markers("# NBVAL_IGNORE_OUTPUT\nselect 1\n#PYTEST_VALIDATE_IGNORE_OUTPUT\n") == "\nselect 1\n\n"
    assert without_markers("x = '# NBVAL_SKIP'") == "x = '# NBVAL_SKIP'"


def test_inputs_are_key_value_words() -> None:
    """A word without ``=`` and a key given twice are refused."""
    assert pairs("%loom run", ["a=1", "b=x=y"]) == {"a": "1", "b": "x=y"}
    with pytest.raises(CommandError, match="'oops' is not an input"):
        pairs("%loom run", ["oops"])
    with pytest.raises(CommandError, match="'a' is given twice"):
        pairs("%loom run", ["a=1", "a=2"])


@pytest.mark.parametrize(
    ("text", "schema", "expected"),
    [
        ("007", {"type": "string"}, "007"),
        ("7", {"type": "integer"}, 7),
        ("{a: 1}", {"type": "object"}, {"a": 1}),
        ("[1, x]", {"type": "array"}, [1, "x"]),
        ("true", {"type": "boolean"}, True),
        ("null", {"anyOf": [{"type": "string"}, {"type": "null"}]}, None),
        ("$frame", {"type": "object"}, "the frame"),
        ("$$frame", {"type": "string"}, "$frame"),
        ("7", {"anyOf": [{"type": "string"}, {"type": "integer"}]}, 7),
    ],
)
def test_typed_texts_become_values(text: str, schema: dict[str, object], expected: object) -> None:
    """Text stays text for text inputs; anything else is YAML; ``$name`` is the notebook's variable."""
    assert value_of("%loom run", "a", text, schema, {"frame": "the frame"}) == expected


def test_values_that_mean_nothing_are_sentences() -> None:
    """An unknown variable and broken YAML are errors that name the input."""
    with pytest.raises(CommandError, match=r"a=\$nope: the notebook has no variable 'nope'"):
        value_of("%loom run", "a", "$nope", {}, {})
    with pytest.raises(CommandError, match=r"a=\[1, is not YAML"):
        value_of("%loom run", "a", "[1,", {}, {})
