"""How magics read what was typed: strictly, with help that is printed, and with errors that CI tools see.

IPython's own ``UsageError`` writes to stderr and leaves the cell green in several CI tools, so nothing here raises it.
"""

from __future__ import annotations

import argparse
import difflib
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from loom_kernel.errors import CommandError
from loom_kernel.policies import Budget

_MARKER = re.compile(r"^[ \t]*#[ \t]*(?:NBVAL|PYTEST_VALIDATE)_[A-Z_]+[ \t]*$", re.MULTILINE)
_NAME = re.compile(r"[^\W\d]\w*\Z")


class HelpShown(Exception):
    """``--help`` was asked for: there is nothing more to do."""


class Arguments(argparse.ArgumentParser):
    """An argument parser that never guesses: no abbreviations, unknown options refused with the nearest known one.

    Args:
        command: how a person calls it, e.g. ``"%loom run"``; it begins every error.
        description: first line says what it does; shown by ``--help``.
    """

    def __init__(self, command: str, description: str, *, epilog: str | None = None) -> None:
        super().__init__(
            prog=command.lstrip("%"),  # argparse formats its usage a second time, which a percent sign breaks
            description=description,
            epilog=epilog,
            allow_abbrev=False,
            add_help=False,
            # a fixed width: help is cell output, the same text everywhere
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=88, max_help_position=30),
        )
        self.command = command
        if sys.version_info >= (3, 14):
            self.color = False
        self.add_argument("-h", "--help", action=_PrintHelp, help="print this and do nothing else")

    def read(self, tokens: Sequence[str]) -> argparse.Namespace:
        """The parsed tokens; options and positionals may stand in any order.

        Raises:
            CommandError: something is unknown, missing or of the wrong form.
            HelpShown: help was asked for and has been printed.
        """
        try:
            found, unknown = self.parse_known_intermixed_args(list(tokens))
        except (
            argparse.ArgumentError
        ) as error:  # pragma: no cover - older Pythons raise here instead of calling error()
            self.error(str(error))
        for token in unknown:
            if token.startswith("-") and len(token) > 1:
                raise CommandError(self.command, f"unknown option {_option_of(token)}", self._hint(_option_of(token)))
            raise CommandError(self.command, f"{token!r} is one argument too many", f"Usage: {self.usage_line()}")
        return found

    def usage_line(self) -> str:
        """The usage in one line, beginning with the command."""
        return re.sub(r"\s+", " ", self._with_command(self.format_usage()).removeprefix("usage: ")).strip()

    def help_text(self) -> str:
        """What ``--help`` prints."""
        return self._with_command(self.format_help()).rstrip()

    def options(self) -> list[str]:
        """The long options, in the order in which they were added."""
        return [o for action in self._actions for o in action.option_strings if o.startswith("--")]

    def option_help(self) -> dict[str, str]:
        """What each long option does."""
        return {o: action.help or "" for action in self._actions for o in action.option_strings if o.startswith("--")}

    def error(self, message: str) -> NoReturn:
        match = re.match(r"unrecognized arguments: (\S+)", message)
        if match:
            raise CommandError(self.command, f"unknown option {match[1]}", self._hint(match[1]))
        raise CommandError(self.command, message.rstrip("."), f"Usage: {self.usage_line()}")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise HelpShown

    def _with_command(self, text: str) -> str:
        return text.replace(f"usage: {self.prog}", f"usage: {self.command}", 1)

    def _hint(self, option: str) -> str:
        return did_you_mean(option, self.options()) or f"`{self.command} --help` lists its options."


class _PrintHelp(argparse.Action):
    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        assert isinstance(parser, Arguments)
        print(parser.help_text())
        raise HelpShown


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``"Did you mean --wait?"``, or nothing when no known word is near."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"Did you mean {near[0]}?" if near else ""


def split(command: str, line: str) -> list[str]:
    """The words of a magic's line, quoted as in a shell.

    Raises:
        CommandError: a quote is not closed.
    """
    try:
        return shlex.split(line)
    except ValueError:
        raise CommandError(command, f"a quotation mark is never closed in: {line.strip()}") from None


def without_markers(cell: str) -> str:
    """The cell without nbval's marker comments; an empty line stays for each, so that line numbers hold."""
    return _MARKER.sub("", cell)


def pairs(command: str, words: Iterable[str]) -> dict[str, str]:
    """``key=value`` words as a dict of texts.

    Raises:
        CommandError: a word has no ``=``, its key is no name, or a key is given twice.
    """
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not _NAME.match(key):
            raise CommandError(command, f"{word!r} is not an input; inputs are written key=value")
        if key in found:
            raise CommandError(command, f"input {key!r} is given twice")
        found[key] = value
    return found


def variable(command: str, key: str, text: str, namespace: Mapping[str, Any]) -> tuple[Any, bool]:
    """``$name`` as the notebook's variable of that name, whatever it holds; ``$$name`` is the text ``$name``.

    Returns:
        The value, and whether it was a variable; the text itself and False otherwise.

    Raises:
        CommandError: there is no such variable.
    """
    if text.startswith("$$"):
        return text[1:], False
    if text.startswith("$") and _NAME.match(text[1:]):
        if text[1:] not in namespace:
            raise CommandError(command, f"{key}={text}: the notebook has no variable {text[1:]!r}")
        return namespace[text[1:]], True
    return text, False


def yaml_value(command: str, text: str, where: str) -> Any:
    """What YAML 1.2 makes of a text.

    Raises:
        CommandError: it is not YAML; the message has the line.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark is not None and "\n" in text else ""
        raise CommandError(command, f"{where}{line} is not YAML: {error.problem or error.context}") from None
    except YAMLError as error:
        raise CommandError(command, f"{where} is not YAML: {error}") from None


def _option_of(token: str) -> str:
    return token.partition("=")[0]


def budget_arguments(parser: Arguments) -> None:
    """Add what a budget is written with."""
    parser.add_argument("--budget-cost", type=float, metavar="X", help="US dollars that a run may spend; 0: no limit")
    parser.add_argument("--budget-tokens", type=int, metavar="N", help="tokens that a run may use; 0: no limit")
    parser.add_argument("--budget-seconds", type=float, metavar="S", help="seconds that a run may take; 0: no limit")


def budget_of(command: str, asked: argparse.Namespace) -> Budget | None:
    """The budget that was written; None where nothing was.

    Raises:
        CommandError: a number that cannot be.
    """
    limits = {
        "max_cost": asked.budget_cost,
        "max_tokens": asked.budget_tokens,
        "max_duration_s": asked.budget_seconds,
    }
    given = {name: value for name, value in limits.items() if value is not None}
    try:
        return Budget(**given) if given else None
    except ValueError as error:
        raise CommandError(command, str(error)) from None
