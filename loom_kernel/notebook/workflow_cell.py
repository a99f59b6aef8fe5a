"""``%%workflow NAME``: a cell whose text is the body of a workflow.

The text is parsed as it stands (indenting it would change strings that span lines) and its statements become the body
of one async function. Line numbers are those of the cell, so that errors and tracebacks point to what is on the screen.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import re
import textwrap
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from loom_kernel.errors import CellSyntaxError, CommandError
from loom_kernel.notebook.arguments import Arguments, budget_arguments, budget_of, did_you_mean

COMMAND = "%%workflow"
MISSING = inspect.Parameter.empty


@dataclass(frozen=True)
class CellSource:
    """The cell's whole text and how tracebacks name it.

    Args:
        text: as it stands in the notebook.
        filename: what the compiled code calls its file; ``linecache`` knows its lines.
        label: what people call it, e.g. ``"Cell In[3]"``.
        above: lines above the magic's own.
    """

    text: str
    filename: str
    label: str
    above: int = 0


@dataclass(frozen=True)
class Parameter:
    """One declared input or output: ``name:type[=default]``."""

    name: str
    annotation: Any
    default: Any = MISSING
    kind: str = ""  # the annotation as it was written

    def __str__(self) -> str:
        return f"{self.name}: {self.kind}" + ("" if self.default is MISSING else f" = {self.default!r}")


def arguments() -> Arguments:
    """What ``%%workflow`` takes."""
    parser = Arguments(
        COMMAND,
        "Define and register a workflow whose body is this cell.\n"
        "`ctx` and the inputs are in scope; `await` and `return` work as in an async function.",
        epilog='Example: %%workflow digest --input url:str --input limit:int=10 --output "rows:list[int]"',
    )
    parser.add_argument("name", metavar="NAME", help="how the workflow is called; also the variable that holds it")
    parser.add_argument(
        "--input", action="append", default=[], metavar="NAME:TYPE[=DEFAULT]", help="an input; repeat it for more"
    )
    parser.add_argument("--output", action="append", default=[], metavar="NAME:TYPE", help="a key of the returned dict")
    parser.add_argument("--description", metavar="TEXT", help="one line for people")
    budget_arguments(parser)
    parser.add_argument("--no-lint", action="store_true", help="don't warn of what is not the same in a resumed run")
    return parser


def define_from_cell(words: list[str], body: str, source: CellSource, namespace: dict[str, Any]) -> None:
    """Define and register the workflow, and put it into the notebook under its name.

    Args:
        words: what stands behind ``%%workflow``.
        body: the cell's text below that line.
        source: how tracebacks show the cell.
        namespace: the notebook's variables.

    Raises:
        CommandError: what stands behind the magic means nothing.
        CellSyntaxError: the body is not Python.
        DefinitionError: it cannot be a workflow.
    """
    asked = arguments().read(words)
    inputs = [read_parameter(text, "--input", namespace) for text in asked.input]
    outputs = [read_parameter(text, "--output", namespace) for text in asked.output]
    for option, declared in (("--input", inputs), ("--output", outputs)):
        names = [p.name for p in declared]
        twice = next((n for n in names if names.count(n) > 1), None)
        if twice is not None:
            raise CommandError(COMMAND, f"{option} {twice} is given twice")
    if any(p.name == "ctx" for p in inputs):
        raise CommandError(COMMAND, "an input cannot be called ctx, which is the context")
    from loom_kernel.authoring.workflow import workflow

    fn = compile_body(asked.name, body, inputs, source, namespace, outputs_type(asked.name, outputs))
    define = workflow(
        asked.name,
        description=asked.description or "",
        budget=budget_of(COMMAND, asked),
        lint=not asked.no_lint,
    )
    definition = define(fn)
    namespace[variable_name(asked.name)] = definition


def variable_name(name: str) -> str:
    """The Python name that holds workflow ``name``: ``"weekly digest"`` is ``weekly_digest``."""
    found = re.sub(r"\W+", "_", name).strip("_") or "workflow"
    return f"_{found}" if found[0].isdigit() else found


def read_parameter(text: str, option: str, namespace: Mapping[str, Any]) -> Parameter:
    """``name:type[=default]`` with the type looked up in the notebook, ``typing`` and the builtins.

    A default for a text input may stand without quotes; any other is a Python expression.

    Raises:
        CommandError: it is not of that form, or the type or default means nothing here.
    """
    match = re.match(r"\s*([^\W\d]\w*)\s*:\s*(.+)\Z", text, re.DOTALL)
    if match is None:
        raise CommandError(COMMAND, f"{option} {text!r}: write it as name:type, for instance {option} {_example(text)}")
    name, rest = match[1], match[2]
    kind, equals, default = _split_default(rest)
    annotation = _evaluate_type(kind.strip(), f"{option} {name}", namespace)
    if not equals:
        return Parameter(name, annotation, kind=kind.strip())
    read = _read_default(default.strip(), annotation, f"{option} {name}", namespace)
    return Parameter(name, annotation, read, kind.strip())


def outputs_type(name: str, outputs: list[Parameter]) -> Any:
    """The type of a dict that has exactly these keys; :data:`MISSING` when none are declared.

    Raises:
        CommandError: an output has a default.
    """
    if not outputs:
        return MISSING
    for output in outputs:
        if output.default is not MISSING:
            raise CommandError(COMMAND, f"--output {output.name}: an output has no default")
    from typing_extensions import TypedDict  # pydantic asks for this one before Python 3.12

    make: Any = TypedDict  # made from values, which a type checker cannot follow
    made = make(f"{variable_name(name)}_outputs", {o.name: o.annotation for o in outputs})
    made.__pydantic_config__ = {"extra": "forbid"}
    return made


def compile_body(
    name: str,
    body: str,
    parameters: list[Parameter],
    source: CellSource,
    namespace: dict[str, Any],
    returns: Any = MISSING,
) -> Callable[..., Any]:
    """The async function ``name(ctx, *, inputs...)`` whose statements are the cell's.

    Args:
        body: the cell's text below the magic's line.
        namespace: the notebook's globals; the function reads them when it runs.
        returns: annotation of what it returns.

    Raises:
        CellSyntaxError: it is not Python; the place is the cell's own.
    """
    tree = _parse(body, source)
    for found in _own_nodes(tree.body):
        if isinstance(found, (ast.Yield, ast.YieldFrom)):
            problem = "a workflow's body cannot yield: return the result, and report progress with ctx.report(...)"
            raise _syntax_error(source, source.above + found.lineno + 1, found.col_offset + 1, problem)
    identifier = variable_name(name)
    head = source.above + 1
    tree = ast.increment_lineno(tree, head)
    place: dict[str, Any] = {"lineno": head, "col_offset": 0, "end_lineno": head, "end_col_offset": 0}
    statements: list[ast.stmt] = tree.body or [ast.Pass(**place)]
    later: dict[str, Any] = {"type_params": []} if "type_params" in ast.AsyncFunctionDef._fields else {}  # 3.12
    function = ast.AsyncFunctionDef(
        name=identifier,
        args=ast.arguments(
            posonlyargs=[],
            args=[ast.arg(arg="ctx", **place)],
            kwonlyargs=[ast.arg(arg=p.name, **place) for p in parameters],
            kw_defaults=[None for _ in parameters],
            defaults=[],
        ),
        body=statements,
        decorator_list=[],
        **later,
        **place,
    )
    module = ast.fix_missing_locations(ast.Module(body=[function], type_ignores=[]))
    try:
        code = compile(module, source.filename, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise _syntax_error(source, error.lineno or 1, error.offset or 0, error.msg) from None
    made: dict[str, Any] = {}
    exec(code, namespace, made)  # the person's own cell
    fn = made[identifier]
    assert isinstance(fn, types.FunctionType)
    fn.__kwdefaults__ = {p.name: p.default for p in parameters if p.default is not MISSING}
    fn.__annotations__ = {p.name: p.annotation for p in parameters}
    if returns is not MISSING:
        fn.__annotations__["return"] = returns
    fn.__module__ = str(namespace.get("__name__", "__main__"))
    fn.__qualname__ = identifier
    header = f"async def {identifier}({', '.join(['ctx', *(['*'] if parameters else []), *map(str, parameters)])}):"
    fn.__loom_source__ = _as_function(header, body, tree)  # type: ignore[attr-defined]
    fn.__loom_body__ = body  # type: ignore[attr-defined]
    return fn


def remember(text: str, shell: Any = None, above: int = 0) -> CellSource:
    """The running cell as a source whose lines tracebacks can show.

    Args:
        text: the whole cell.
        shell: IPython's shell, which names cells ``Cell In[n]``; without one ``linecache`` alone knows the lines.
        above: lines above the magic's own.
    """
    if shell is not None:
        number = shell.execution_count
        return CellSource(text, shell.compile.cache(text, number, raw_code=text), f"Cell In[{number}]", above)
    filename = f"<workflow cell {abs(hash(text)):x}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    return CellSource(text, filename, "cell", above)


def _as_function(header: str, body: str, tree: ast.Module) -> str:
    """The body as the text of a function, for hashes and for showing what changed; ``inspect`` cannot cut it out."""
    indented = f"{header}\n{textwrap.indent(body, '    ')}\n"
    try:
        function = ast.parse(indented).body[0]
        if isinstance(function, ast.AsyncFunctionDef) and [*map(ast.dump, function.body)] == [
            *map(ast.dump, tree.body)
        ]:
            return indented
    except SyntaxError:
        pass
    # A string over several lines, which indenting changes, or nothing but comments.
    return f"{header}\n{textwrap.indent(ast.unparse(tree) or 'pass', '    ')}\n"


def _parse(body: str, source: CellSource) -> ast.Module:
    try:
        return ast.parse(body, source.filename)
    except SyntaxError as error:
        raise _syntax_error(source, source.above + (error.lineno or 1) + 1, error.offset or 0, error.msg) from None


def _syntax_error(source: CellSource, line: int, column: int, message: str) -> CellSyntaxError:
    lines = source.text.splitlines()
    text = lines[line - 1] if 0 < line <= len(lines) else ""
    return CellSyntaxError(source.label, line, column, text, message)


def _own_nodes(statements: list[ast.stmt]) -> Iterator[ast.AST]:
    """All nodes of the body that belong to it and not to a function or class inside it."""
    stack: list[ast.AST] = list(statements)
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        yield node
        stack.extend(ast.iter_child_nodes(node))


def _split_default(text: str) -> tuple[str, str, str]:
    """Cut at the first ``=`` outside brackets and quotes (``Literal["a=b"]`` holds one inside)."""
    depth, quote = 0, ""
    for at, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "=" and depth == 0:
            return text[:at], "=", text[at + 1 :]
    return text, "", ""


def _evaluate_type(text: str, where: str, namespace: Mapping[str, Any]) -> Any:
    known = {**vars(typing), **vars(builtins), **namespace}
    try:
        found = eval(text, known)  # the person's own words, as an annotation in a cell would be
    except NameError as error:
        missing = error.name or text
        hint = did_you_mean(missing, [*(n for n in vars(builtins) if n.islower()), *namespace])
        raise CommandError(COMMAND, f"{where}: there is no type {missing!r} here", hint or None) from None
    except Exception as error:
        raise CommandError(COMMAND, f"{where}: {text!r} is not a type: {error}") from None
    return found


def _read_default(text: str, annotation: Any, where: str, namespace: Mapping[str, Any]) -> Any:
    if annotation is str:
        try:
            literal = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            return text
        return literal if isinstance(literal, str) else text
    try:
        return eval(text, dict(namespace))  # as above
    except Exception as error:
        hint = f"({type(error).__name__}: {error})"
        raise CommandError(COMMAND, f"{where}: the default {text!r} is not a Python expression {hint}") from None


def _example(text: str) -> str:
    name = re.sub(r"\W+", "_", text.partition("=")[0]).strip("_") or "url"
    return f"{name}:str"
