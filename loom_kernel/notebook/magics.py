"""``%load_ext loom_kernel``: the magics, Tab, and the kernel as the host of runs.

Loading registers names and nothing more. The runtime, the journal and everything heavy come with the first use.
"""

from __future__ import annotations

import contextlib
import re
import sys
from typing import TYPE_CHECKING, Any

from loom_kernel import cells
from loom_kernel.authoring import launcher
from loom_kernel.errors import LoomError
from loom_kernel.notebook import lint_lines
from loom_kernel.notebook.arguments import HelpShown, split, without_markers

if TYPE_CHECKING:
    from loom_kernel.notebook.completion import Completion
    from loom_kernel.notebook.display import KernelHost
    from loom_kernel.notebook.sql_magic import SqlMagic
    from loom_kernel.notebook.verbs.base import Session
    from loom_kernel.runtime.core import Runtime

CELL_MAGICS = ("workflow", "loom", "loomsql")
LINE_MAGICS = ("loom", "loomsql")

_OURS = re.compile(rf"%%(?:{'|'.join(CELL_MAGICS)})\b")

_loaded: Extension | None = None


class Extension:
    """What is registered in one shell; :meth:`close` takes it back."""

    def __init__(self, shell: Any) -> None:
        from loom_kernel.notebook.completion import Completion

        self.shell = shell
        self.host: KernelHost | None = None
        self._sql: SqlMagic | None = None
        if getattr(shell, "kernel", None) is not None:
            from loom_kernel.notebook.display import KernelHost

            self.host = KernelHost(shell, runtime)
            launcher.host_maker = lambda: self.host
            if "loom_kernel.runtime" in sys.modules:  # used before the extension was loaded
                runtime().host = self.host
        cells.name_cells(self._cell_name)
        self._format_as_before = lint_lines.install()
        for name, magic in (("loom", self._loom), ("loomsql", self._loomsql)):
            shell.register_magic_function(_quiet(magic, name), "line_cell", name)
        shell.register_magic_function(_quiet(self._workflow, "workflow"), "cell", "workflow")
        shell.input_transformers_cleanup.insert(0, _without_comments_above)
        self._completion: Completion = Completion(shell, self.session)
        shell.Completer.custom_matchers.append(self._completion.matcher)

    @property
    def session(self) -> Session:
        """Where magics are typed."""
        from loom_kernel.notebook.verbs.base import Session

        return Session(self.shell.user_ns, self.host, runtime)

    def close(self) -> None:
        """Live views become pictures, the runtime stops (its runs can be resumed), the names are gone."""
        if self.host is not None:
            self.host.close()
        launcher.host_maker = None
        cells.name_cells(None)
        self._format_as_before()
        if self._sql is not None:
            self._sql.close()
        for kind, names in (("line", LINE_MAGICS), ("cell", CELL_MAGICS)):
            for name in names:
                self.shell.magics_manager.magics[kind].pop(name, None)
        with contextlib.suppress(ValueError):
            self.shell.input_transformers_cleanup.remove(_without_comments_above)
        with contextlib.suppress(ValueError):
            self.shell.Completer.custom_matchers.remove(self._completion.matcher)
        if "loom_kernel.runtime" in sys.modules:
            sys.modules["loom_kernel.runtime"].close()

    # ------------------------------------------------------------ magics

    def _loom(self, line: str, cell: str | None = None) -> Any:
        """Work with runs: %loom VERB ... ; %loom alone lists the verbs, each takes --help."""
        from loom_kernel.notebook import verbs

        return verbs.run(self.session, line, cell)

    def _loomsql(self, line: str, cell: str | None = None) -> Any:
        """Ask the journal in SQL: %loomsql QUERY, or %%loomsql [NAME <<] [--limit N] [--plot] with the query in the cell."""
        if self._sql is None:
            from loom_kernel.notebook.sql_magic import SqlMagic

            self._sql = SqlMagic(
                lambda q, f, p: runtime().sql(q, f, parameters=p), self.shell.user_ns, self.shell.display_formatter
            )
        return self._sql.run("%loomsql" if cell is None else "%%loomsql", line, cell)

    def _workflow(self, line: str, cell: str) -> None:
        """Define and register a workflow whose body is this cell; %%workflow --help lists what it takes."""
        from loom_kernel.notebook import workflow_cell

        text = f"%%workflow {line}\n{cell}"
        raw = self.host.cell_text() if self.host is not None else ""
        # IPython takes off what stands above the magic; lines are counted in what the person sees.
        above = next((n for n, found in enumerate(raw.splitlines()) if found.startswith("%%")), 0)
        workflow_cell.define_from_cell(
            split(workflow_cell.COMMAND, line),
            without_markers(cell),
            workflow_cell.remember(raw if above else text, self.shell, above),
            self.shell.user_ns,
        )

    # ------------------------------------------------------------ inside

    def _cell_name(self, filename: str) -> str | None:
        number = getattr(self.shell.compile, "_filename_map", {}).get(filename)
        return f"cell {number}" if number is not None else None


def load(shell: Any) -> None:
    """Register everything in ``shell``; a second call changes nothing."""
    global _loaded
    if _loaded is not None and _loaded.shell is shell:
        return
    if _loaded is not None:
        _loaded.close()
    _loaded = Extension(shell)
    _report_interrupted(_loaded)


def unload(shell: Any) -> None:
    """Take everything back."""
    global _loaded
    if _loaded is not None and _loaded.shell is shell:
        _loaded.close()
        _loaded = None


def runtime() -> Runtime:
    """The runtime of this process, loaded now if need be."""
    from loom_kernel.runtime import get_runtime

    return get_runtime()


def _without_comments_above(lines: list[str]) -> list[str]:
    """A comment above one of our cell magics (a marker of nbval, a linter's) would keep IPython from seeing it."""
    for n, line in enumerate(lines):
        if _OURS.match(line):
            return lines[n:]
        if line.strip() and not line.lstrip().startswith("#"):
            break
    return lines


def _quiet(magic: Any, name: str) -> Any:
    """The magic as a plain function: help ends it without a value, and no ``$`` or ``{}`` of its text is expanded."""
    from IPython.core.magic import no_var_expand

    def called(line: str, cell: str | None = None) -> Any:
        try:
            return magic(line) if cell is None else magic(line, cell)
        except HelpShown:
            return None
        except LoomError as error:
            # The frames are the magic's own: without them every front end shows the sentence alone.
            raise error.with_traceback(None) from None

    called.__name__, called.__doc__ = name, magic.__doc__
    return no_var_expand(called)


def _report_interrupted(extension: Extension) -> None:
    """One line about runs that broke off; only where a hub is running anyway, since loading starts nothing."""
    host = extension.host
    if host is None or host.headless:
        return
    from loom_kernel.notebook.interrupted import report

    line = report()
    if line:
        print(line)
