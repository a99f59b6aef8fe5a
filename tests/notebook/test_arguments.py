"""Magics read strictly and answer wrong input with a sentence."""

from __future__ import annotations

import pytest

from loom_kernel.errors import CommandError
from loom_kernel.notebook.arguments import Arguments, HelpShown, pairs, split, variable, without_markers, yaml_value


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
    with pytest.raises(CommandError, match=r"unknown option --(wai|ke)\. Did you mean --(wait|key)\?"):
        parser().read(["digest", *typed.split()])


def test_missing_and_superfluous_words_are_sentences() -> None:
    """A missing positional and a missing option value say what the usage is."""
    with pytest.raises(CommandError, match=r"required: NAME.*Usage: %loom run"):
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


def test_variables_of_the_notebook_are_named_with_a_dollar() -> None:
    """``$name`` is the variable, whatever it holds; a doubled dollar is a text; an unknown name is a sentence."""
    frame = object()
    assert variable("%loom run", "a", "$frame", {"frame": frame}) == (frame, True)
    assert variable("%loom run", "a", "$$frame", {"frame": frame}) == ("$frame", False)
    assert variable("%loom run", "a", "$5 and more", {}) == ("$5 and more", False)
    with pytest.raises(CommandError, match=r"a=\$nope: the notebook has no variable 'nope'"):
        variable("%loom run", "a", "$nope", {})


def test_yaml_is_read_and_its_errors_have_the_line() -> None:
    """A cell of inputs is YAML 1.2; what is wrong is said with its line."""
    assert yaml_value("%%loom run", "url: a.csv\nlimit: 3\nok: true\n", "the cell") == {
        "url": "a.csv",
        "limit": 3,
        "ok": True,
    }
    with pytest.raises(CommandError, match="the cell, line 2 is not YAML"):
        yaml_value("%%loom run", "a: 1\n  b: 2\n", "the cell")
