"""Tab in our magics: verbs, options, workflows, runs, questions, inputs; in SQL tables, columns and local frames.

A matcher of IPython's second API, which can keep the other matchers quiet: Python's names mean nothing in a magic's
line. Names that only the journal knows are offered when the journal is open already; Tab never starts a hub.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from loom_kernel.notebook.verbs import SUMMARIES, find

if TYPE_CHECKING:
    from loom_kernel.notebook.verbs.base import Session, Verb

_LINE = re.compile(r"^\s*(?:[^\W\d][\w.]*\s*=\s*)?%(loom|loomsql)\b\s?(.*)$", re.DOTALL)
_CELL = re.compile(r"^\s*%%(loom|loomsql|workflow)\b\s?(.*)$")
_TABLE_BEFORE = re.compile(r"\b(?:from|join|into)\s+(?:[\w.]+\s*,\s*)*[\w.]*$", re.IGNORECASE)
_TYPES = ("bool", "dict", "float", "int", "list", "str")
_PATIENCE_S = 0.5


class Completion:
    """Offers what can stand at the cursor.

    Args:
        shell: IPython's shell.
        session: the session of its magics.
    """

    def __init__(self, shell: Any, session: Session) -> None:
        from IPython.core.completer import context_matcher

        self._shell, self._session = shell, session

        @context_matcher(identifier="loom_kernel")  # marks a function, which a bound method would not let it do
        def matcher(context: Any) -> dict[str, Any]:
            return self._match(context)

        self.matcher: Callable[..., Any] = matcher

    def _match(self, context: Any) -> dict[str, Any]:
        from IPython.core.completer import SimpleCompletion

        try:
            found = self.offers(context.full_text, context.cursor_line, context.cursor_position)
        except Exception:  # Tab never fails
            found = None
        if found is None:
            return {"completions": []}
        fragment, offered = found
        return {
            "completions": [SimpleCompletion(text, type=kind) for text, kind in offered],
            "matched_fragment": fragment,
            "suppress": True,
            "ordered": True,
        }

    def offers(self, text: str, line: int, column: int) -> tuple[str, list[tuple[str, str]]] | None:
        """What to offer at a place of a cell, and the text that it replaces; None where the place is not ours."""
        lines = text.split("\n")
        before = lines[line][:column]
        head = _CELL.match(lines[0])
        if head is not None and line > 0:
            if head[1] != "loomsql":
                return self._cell_inputs(head[2], before) if head[1] == "loom" else None
            return self._sql("\n".join([head[2], *lines[1:line], before]))
        found = _CELL.match(before) if line == 0 else None
        found = found or _LINE.match(before)
        if found is None or (head is None and before.lstrip().startswith("%%")):
            return None
        match found[1]:
            case "loomsql":
                return self._sql(found[2])
            case "workflow":
                return self._workflow(found[2])
            case _:
                return self._verb(found[2])

    # ------------------------------------------------------------ %%workflow

    def _workflow(self, typed: str) -> tuple[str, list[tuple[str, str]]]:
        from loom_kernel.notebook.workflow_cell import arguments

        *earlier, word = re.split(r"\s+", typed)
        if word.startswith("-") or (earlier and not (earlier[-1].startswith("--") and "=" not in earlier[-1])):
            return _starting(word, arguments().options(), "option")
        if earlier and earlier[-1] in ("--input", "--output") and ":" in word:
            fragment = word.rpartition(":")[2]
            return _starting(fragment, _TYPES, "class")
        return word, []

    # ------------------------------------------------------------ %loom

    def _verb(self, typed: str) -> tuple[str, list[tuple[str, str]]]:
        *earlier, word = re.split(r"\s+", typed.lstrip())
        if not earlier:
            return _starting(word, SUMMARIES, "keyword")
        try:
            verb = find(earlier[0])
        except Exception:
            return word, []
        parser = verb.parser(f"%loom {verb.name}")
        if word.startswith("-"):
            used = {w.partition("=")[0] for w in earlier}
            repeatable = {o for a in parser._actions if type(a).__name__ == "_AppendAction" for o in a.option_strings}
            return _starting(word, [o for o in parser.options() if o not in used - repeatable], "option")
        taking = {o for a in parser._actions if a.nargs != 0 for o in a.option_strings}
        positionals = [w for before, w in pairwise(earlier) if not w.startswith("-") and before not in taking]
        if earlier[-1] in ("--from", "--node") and positionals:
            return _starting(word, self._nodes(positionals[0]), "node")
        if earlier[-1] == "--answer" and positionals and "=" not in word:
            return _starting(word, [f"{name}=" for name in self._nodes(positionals[0], "prompt")], "question")
        fragment, offered = self._word(verb, positionals, word)
        if not offered and not word:
            # IPython keeps the other matchers quiet only where there is something to offer.
            return _starting("", parser.options(), "option")
        return fragment, offered

    def _word(self, verb: Verb, positionals: list[str], word: str) -> tuple[str, list[tuple[str, str]]]:
        offered: list[tuple[str, str]] = []
        if "workflow" in verb.offers and not positionals:
            offered += [(name, "function") for name in self._workflows()]
        if "input" in verb.offers and positionals:
            return self._inputs(positionals[0], {p.partition("=")[0] for p in positionals[1:]}, word)
        if "prompt" in verb.offers and len(positionals) < 2:
            offered += [(p.prompt, "question") for _, p in self._questions()]
        if positionals:
            if "node" in verb.offers and len(positionals) == 1:
                offered += [(name, "node") for name in self._nodes(positionals[0])]
            if "run_input" in verb.offers:
                return self._inputs(
                    self._workflow_of(positionals[0]), {p.partition("=")[0] for p in positionals[1:]}, word
                )
        if "model" in verb.offers:
            return _starting(word, self._models(positionals), "model")
        if ("run" in verb.offers and not positionals) or ("other_run" in verb.offers and len(positionals) == 1):
            offered += [(name, "variable") for name in self._run_variables()]
            offered += [(run_id, workflow) for run_id, workflow in self._runs()]
        return word, [(text, kind) for text, kind in dict(offered).items() if text.startswith(word)]

    def _models(self, positionals: list[str]) -> list[str]:
        """What stands after ``%loom model``: a verb, then a model's name."""
        from loom_kernel.agents import choosing
        from loom_kernel.agents.local import catalogue
        from loom_kernel.notebook.verbs.models import WHAT

        if not positionals:
            return list(WHAT)
        if positionals[0] == "pull":
            return [one.name for one in catalogue.known()]
        return [str(row[0]) for row in choosing.rows(self._session.runtime.agents)] if len(positionals) == 1 else []

    def _cell_inputs(self, head: str, before: str) -> tuple[str, list[tuple[str, str]]] | None:
        """Keys of the YAML below ``%%loom run NAME``."""
        words = head.split()
        if len(words) < 2 or words[0] != "run" or re.search(r"[:\s]", before):
            return None
        word, offered = self._inputs(words[1], set(), before)
        return word, [(text.replace("=", ": "), kind) for text, kind in offered]

    def _inputs(self, workflow: str, given: set[str], word: str) -> tuple[str, list[tuple[str, str]]]:
        from loom_kernel.authoring.registry import registry

        _, equals, value = word.partition("=")
        if equals:
            if value.startswith("$"):
                names = [f"${name}" for name in self._session.namespace if not name.startswith("_")]
                return _starting(value, names, "variable")
            return value, []
        if not registry.has(workflow):
            return word, []
        fields = registry.get(workflow).fields
        return _starting(word, [f"{name}=" for name in fields if name not in given], "param")

    # ------------------------------------------------------------ SQL

    def _sql(self, typed: str) -> tuple[str, list[tuple[str, str]]]:
        from loom_kernel.journal.sql_views import COLUMNS
        from loom_kernel.notebook.sql_magic import arguments

        found = re.search(r"([\w.]*)$", typed)
        word = found[1] if found is not None else ""
        if re.fullmatch(r"\s*(?:\w+\s*<<\s*)?(?:--limit[ =]\d+\s+|--plot\s+)*(--?\w*)", typed):
            return _starting(typed.split()[-1], arguments("%%loomsql").options(), "option")
        kept = re.search(r"\bartifact\s*\(\s*'([^']*)$", typed, re.IGNORECASE)
        if kept is not None:
            return _starting(kept[1], self._kept_tables(), "class")
        value = re.search(r"\{\s*(\w*)$", typed)
        if value is not None:
            return _starting(value[1], (n for n in list(self._session.namespace) if not n.startswith("_")), "variable")
        frames = self._frames()
        table, dot, column = word.rpartition(".")
        aliases = {
            alias.lower(): name.lower()
            for name, alias in re.findall(r"\b(?:from|join|,)\s*(\w+)\s+(?:as\s+)?(\w+)", typed, re.IGNORECASE)
        }
        if dot:
            name = aliases.get(table.lower(), table.lower())
            columns = COLUMNS.get(name) or frames.get(name, ())
            return _starting(column, columns, "field")
        tables = [*COLUMNS, *frames]
        if _TABLE_BEFORE.search(typed):
            return _starting(word, tables, "class")
        named = [t for t in tables if re.search(rf"\b{re.escape(t)}\b", typed, re.IGNORECASE)] or list(COLUMNS)
        columns_ = sorted({c for t in named for c in (COLUMNS.get(t) or frames.get(t, ()))})
        return word, [
            *((c, "field") for c in columns_ if c.startswith(word.lower())),
            *((t, "class") for t in tables if t.startswith(word)),
        ]

    def _frames(self) -> dict[str, tuple[str, ...]]:
        """Local variables that SQL can read, with their columns; no library is imported for that."""
        found: dict[str, tuple[str, ...]] = {}
        for name, value in list(self._session.namespace.items()):
            module = type(value).__module__.partition(".")[0]
            if not name.startswith("_") and module in ("pandas", "polars", "pyarrow", "duckdb", "_duckdb"):
                columns = getattr(value, "column_names", None) or getattr(value, "columns", None)
                if columns is not None and not callable(columns):
                    found[name] = tuple(str(c) for c in columns)
        return found

    # ------------------------------------------------------------ what there is

    def _workflows(self) -> list[str]:
        from loom_kernel.authoring.registry import registry

        return [f'"{name}"' if " " in name else name for name in registry.names()]

    def _run_variables(self) -> list[str]:
        if "loom_kernel.runtime.run" not in sys.modules:
            return []
        from loom_kernel.runtime.run import Run

        return [n for n, v in list(self._session.namespace.items()) if isinstance(v, Run) and not n.startswith("_")]

    def _runs(self) -> list[tuple[str, str]]:
        found = self._ask(lambda runtime: runtime.runs_async(limit=20))
        return [(s.run_id, s.workflow) for s in found.summaries] if found is not None else []

    def _run(self, text: str) -> Any:
        """The run that a word means, where that is known without asking for long."""
        if "loom_kernel.runtime.run" not in sys.modules:
            return None
        from loom_kernel.runtime.run import Run

        held = self._session.namespace.get(text)
        return held if isinstance(held, Run) else self._ask(lambda runtime: runtime.get_run_async(text))

    def _nodes(self, text: str, kind: str | None = None) -> list[str]:
        run = self._run(text)
        if run is None:
            return []
        nodes = [n for n in list(run.view.nodes.values()) if kind in (None, n.kind)]
        names = [n.name for n in nodes]
        numbered = [f"{n.name}#{names[: i + 1].count(n.name)}" for i, n in enumerate(nodes[:200])]
        return list(
            dict.fromkeys(
                name if names.count(name) == 1 else number for name, number in zip(names, numbered, strict=False)
            )
        )

    def _workflow_of(self, text: str) -> str:
        run = self._run(text)
        return run.view.workflow if run is not None else ""

    def _kept_tables(self) -> list[str]:
        async def ask(runtime: Any) -> list[str]:
            found = await runtime.sql_async("select distinct name from artifacts where kind = 'table' order by name")
            return [name for (name,) in found.fetchall()]

        return self._ask(ask) or []

    def _questions(self) -> list[tuple[Any, Any]]:
        async def ask(runtime: Any) -> list[tuple[Any, Any]]:
            runs = await runtime.runs_async(status=("awaiting_input",), limit=10)
            return [(run, prompt) for run in runs for prompt in await run.prompts_async()]

        return self._ask(ask) or []

    def _ask(self, make: Callable[[Any], Any]) -> Any:
        """Ask the journal, where it is open, and not for long."""
        if "loom_kernel.runtime" not in sys.modules or not self._session.runtime.is_open:
            return None
        runtime = self._session.runtime
        try:
            return runtime.loop.call(lambda: make(runtime), "Tab", "Tab", timeout=_PATIENCE_S)
        except Exception:
            return None


def _starting(word: str, offered: Iterable[str], kind: str) -> tuple[str, list[tuple[str, str]]]:
    return word, [(text, kind) for text in offered if text.startswith(word)]
