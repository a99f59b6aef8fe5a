"""What must not stand in a workflow's body outside of durable calls, told when the workflow is defined.

A body is run again whenever its run is resumed, so a clock, a random number or a file read in it gives another value each
time. The text is looked at and its names are resolved as the body would resolve them; nothing is called or imported.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import os
import re
import textwrap
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from loom_kernel.authoring.step import StepDefinition
from loom_kernel.cells import cell_name


class WorkflowLintWarning(UserWarning):
    """A body does what gives another value, or is done again, when its run is resumed."""


@dataclass(frozen=True)
class Finding:
    """One thing in a body that belongs elsewhere. As text it is one line.

    Attributes:
        file: the name of the code's file.
        line: the line in it, or in the cell.
        what: what stands there and what comes of it.
        fix: what to write instead.
    """

    file: str
    line: int
    what: str
    fix: str

    def __str__(self) -> str:
        return f"{cell_name(self.file) or os.path.basename(self.file)}, line {self.line}: {self.what}; {self.fix}"


def lint(fn: Callable[..., Any]) -> list[Finding]:
    """What stands in the body ``fn`` and should not, by line. Empty where its text cannot be had.

    A line that ends with ``# loom: ok`` is passed over.
    """
    try:
        found = _read(fn)
        return [] if found is None else _Lint(*found).findings()
    except Exception:  # a body that cannot be understood is no reason to refuse it
        return []


def warn(fn: Callable[..., Any]) -> None:
    """Show what :func:`lint` finds, one :class:`WorkflowLintWarning` each."""
    for found in lint(fn):
        # Without a registry: a cell that is run again defines again, and is told again.
        warnings.warn_explicit(str(found), WorkflowLintWarning, found.file, found.line, fn.__module__)


def format_warning(message: Warning | str) -> str:
    """The warning as its one line: it names the place itself."""
    return f"{WorkflowLintWarning.__name__}: {message}\n"


# ---------------------------------------------------------------- what is looked for

_RESUMED = "when the run is resumed"
_CLOCK = (f"gives another time {_RESUMED}", "use ctx.now()")
_RANDOM = (f"gives another value {_RESUMED}", "use ctx.random(), or put it in a @step")
_UUID = (f"gives another id {_RESUMED}", "use ctx.uuid4()")
_IO = (f"is done again {_RESUMED}", "put it in a @step")
_LIST = (f"lists what is there at that time, in no fixed order, {_RESUMED}", "put it in a @step")
_INPUT = ("stops every run of this process, and asks again at each resume", "use await ctx.ui.input(...)")
_BLOCKS = ("stops every run of this process, and is done again at each resume", "use await ctx.sleep(label, seconds)")
_SLEEP = (f"begins anew {_RESUMED}", "use await ctx.sleep(label, seconds)")
_ENVIRONMENT = (f"may be another {_RESUMED}", "make it an input, or read it in a @step")
_FOLDER = (f"may be another {_RESUMED}", "use ctx.cwd")
_ORDER = ("a set has another order in another process", "go through sorted(...)")

Rule = tuple[str, str]


def _rules() -> dict[str, Rule]:
    groups: list[tuple[Rule, str, str]] = [
        (
            _CLOCK,
            "time",
            "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time process_time_ns",
        ),
        (_CLOCK, "datetime", "datetime.now datetime.utcnow datetime.today date.today datetime.date.today"),
        (_CLOCK, "pandas", "Timestamp.now Timestamp.utcnow Timestamp.today"),
        (_UUID, "uuid", "uuid1 uuid4 uuid6 uuid7"),
        (_RANDOM, "os", "urandom getrandom"),
        (_RANDOM, "secrets", "choice randbelow randbits token_bytes token_hex token_urlsafe SystemRandom"),
        (_BLOCKS, "time", "sleep"),
        (_SLEEP, "asyncio", "sleep"),
        (_INPUT, "builtins", "input"),
        (_IO, "builtins", "open"),
        (
            _IO,
            "os",
            "system popen remove unlink rename renames replace mkdir makedirs rmdir removedirs stat lstat chmod",
        ),
        (
            _IO,
            "os",
            "chown symlink link utime truncate open path.exists path.isfile path.isdir path.getsize path.getmtime",
        ),
        (_LIST, "os", "listdir scandir walk"),
        (_LIST, "glob", "glob iglob"),
        (_IO, "shutil", "copy copy2 copyfile copytree move rmtree make_archive unpack_archive disk_usage"),
        (_IO, "tempfile", "mkstemp mkdtemp TemporaryFile NamedTemporaryFile TemporaryDirectory SpooledTemporaryFile"),
        (_IO, "subprocess", "run Popen call check_call check_output getoutput getstatusoutput"),
        (_IO, "asyncio", "create_subprocess_exec create_subprocess_shell open_connection start_server"),
        (_IO, "urllib", "request.urlopen request.urlretrieve"),
        (_IO, "socket", "socket create_connection getaddrinfo gethostbyname"),
        (_IO, "sqlite3", "connect"),
        (_ENVIRONMENT, "os", "getenv getpid getlogin"),
        (_ENVIRONMENT, "socket", "gethostname"),
        (_FOLDER, "os", "getcwd"),
        (_FOLDER, "pathlib", "Path.cwd"),
        (_ENVIRONMENT, "pathlib", "Path.home"),
    ]
    return {f"{module}.{name}": rule for rule, module, names in groups for name in names.split()}


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_RULES = _rules()
_VERBS = _words("get post put patch delete head options request stream send")
_CLIENTS = {
    "requests": _VERBS | {"Session", "session"},
    "httpx": _VERBS | {"Client", "AsyncClient"},
    "aiohttp": _VERBS | {"ClientSession"},
}
_CLIENT_TYPES = frozenset({"Session", "Client", "AsyncClient", "ClientSession"})
_WITHOUT_ARGUMENTS = {"time.gmtime": 0, "time.localtime": 0, "time.ctime": 0, "time.asctime": 0, "time.strftime": 1}
_SEEDED = frozenset({"random.Random", "numpy.random.default_rng", "numpy.random.RandomState", "numpy.random.Generator"})
_NO_CHANCE = frozenset({"SeedSequence", "PCG64", "Philox", "getstate", "get_state"})
_PATH_IO = _words(
    "read_text read_bytes write_text write_bytes open unlink mkdir rmdir rename replace touch exists is_file is_dir "
    "stat lstat symlink_to hardlink_to chmod copy move"
)
_PATH_LISTS = frozenset({"iterdir", "glob", "rglob", "walk"})
_PATH_GIVES = frozenset({"joinpath", "with_suffix", "with_name", "with_stem", "absolute", "resolve", "expanduser"})
_SET_GIVES = frozenset({"union", "intersection", "difference", "symmetric_difference", "copy"})
_KEEPS_ORDER = frozenset({"builtins.list", "builtins.tuple", "builtins.enumerate", "builtins.iter", "builtins.zip"})
_ANY_ORDER = frozenset(f"builtins.{name}" for name in _words("sorted set frozenset len sum min max any all"))
_TAKES_FUNCTION = frozenset(f"builtins.{name}" for name in _words("sorted map filter min max"))
_AWAITED = frozenset({"tool", "step", "map", "parallel", "workflow", "sleep", "put"})
_ASKED = frozenset({"confirm", "input", "select", "editor", "form"})
_TASKS = frozenset({"asyncio.create_task", "asyncio.ensure_future"})
_REAL_MODULES = {
    "posix": "os",
    "nt": "os",
    "posixpath": "os.path",
    "ntpath": "os.path",
    "genericpath": "os.path",
    "_io": "builtins",
    "io": "builtins",
    "_random": "random",
    "_socket": "socket",
    "_sqlite3": "sqlite3",
    "_asyncio": "asyncio",
    "_datetime": "datetime",
    "pandas._libs.tslibs.timestamps": "pandas",
}
_PASSED_OVER = re.compile(r"#\s*loom:\s*ok\b")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SET = "=set"
_PATH = "=pathlib.Path"
_CTX = "=ctx"


# ---------------------------------------------------------------- reading


def _read(fn: Any) -> tuple[Any, ast.AST, list[str], int] | None:
    """The function, its tree, its lines, and what is added to a line's number in the tree."""
    fn = inspect.unwrap(fn)
    code = fn.__code__
    body = getattr(fn, "__loom_body__", None)
    if isinstance(body, str):  # a cell that is a body: its lines begin below the magic's
        return fn, ast.parse(body), body.splitlines(), code.co_firstlineno
    given = getattr(fn, "__loom_source__", None)
    if isinstance(given, str):
        text = given
    else:
        # As `inspect.getsource` does it, without its search through all modules.
        linecache.checkcache(code.co_filename)
        lines = linecache.getlines(code.co_filename, fn.__globals__)
        text = textwrap.dedent("".join(inspect.getblock(lines[code.co_firstlineno - 1 :])))
    if not text:
        return None
    tree = ast.parse(text).body[0]
    if not isinstance(tree, ast.AsyncFunctionDef) or tree.name != code.co_name:
        return None
    return fn, tree, text.splitlines(), code.co_firstlineno - 1


def _dotted(value: Any) -> Any:
    """What a value is called where it comes from; ``=type`` for an instance, a step itself, None for what says nothing."""
    kind = type(value)
    if issubclass(kind, StepDefinition):
        return value
    if issubclass(kind, types.ModuleType):
        name = types.ModuleType.__getattribute__(value, "__dict__").get("__name__", "")
        return _REAL_MODULES.get(name, name)
    if issubclass(kind, (types.BuiltinFunctionType, types.MethodType)):
        owner = value.__self__
        if issubclass(type(owner), types.ModuleType) or isinstance(owner, type):
            return _join(_dotted(owner), value.__name__)
        instance = _dotted(owner)
        return f"{instance}.{value.__name__}" if isinstance(instance, str) else None
    if issubclass(kind, (type, types.FunctionType)):
        return _type_name(value)
    if value is os.environ:
        return "os.environ"
    if kind in (set, frozenset):
        return None if all(type(item) is int for item in value) else _SET
    name = _type_name(kind)
    if name == "pathlib.Path":
        return _PATH
    if name in ("random.Random", "random.SystemRandom"):
        return "random"
    if name in _SEEDED:
        return "numpy.random"
    root, _, last = name.rpartition(".")
    return f"={name}" if root.partition(".")[0] in _CLIENTS and last in _CLIENT_TYPES else None


def _type_name(value: Any) -> str:
    module, name = str(value.__module__ or ""), str(value.__qualname__)
    if module.partition(".")[0] == "pathlib":
        return "pathlib.Path" if name in ("Path", "PosixPath", "WindowsPath") else f"pathlib.{name}"
    if module.startswith("numpy.random"):
        module = "numpy.random"
    if module.partition(".")[0] == "asyncio":
        module = "asyncio"
    return f"{_REAL_MODULES.get(module, module)}.{name}"


def _join(owner: Any, name: str) -> str | None:
    return f"{owner}.{name}" if isinstance(owner, str) else None


# ---------------------------------------------------------------- names


def _parts(node: ast.AST) -> list[Any]:
    """What a node consists of, in order, without the marks of reading and writing."""
    found: list[Any] = []
    for name in node._fields:
        if name != "ctx":
            part = getattr(node, name, None)
            if isinstance(part, ast.AST):
                found.append(part)
            elif type(part) is list:
                found += [item for item in part if isinstance(item, ast.AST)]
    return found


class _Scope:
    """Names that a function binds, each with the expressions it may stand for (None: anything)."""

    def __init__(self, node: Any, outer: _Scope | None) -> None:
        self.outer = outer
        self.bound: dict[str, list[Any]] = {}
        self.read: set[str] = set()
        self.functions: dict[str, Any] = {}
        if isinstance(node, _FUNCTIONS):
            arguments = node.args
            for p in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                self._bind(p.arg, p)
            for rest in (arguments.vararg, arguments.kwarg):
                if rest is not None:
                    self._bind(rest.arg, None)
        self._look(node.body if isinstance(node.body, list) else [node.body])
        self._read(node)

    def _bind(self, name: str, value: Any) -> None:
        self.bound.setdefault(name, []).append(value)

    def _read(self, node: ast.AST) -> None:
        stack = [node]
        while stack:
            node = stack.pop()
            if isinstance(node, ast.Name):
                if isinstance(node.ctx, ast.Load):
                    self.read.add(node.id)
            else:
                stack += _parts(node)

    def _look(self, nodes: list[Any]) -> None:
        shared: set[str] = set()
        stack = nodes[::-1]
        known: set[int] = set()  # targets that were bound with what they are assigned
        while stack:
            node = stack.pop()
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self._import(node)
            elif isinstance(node, (ast.Global, ast.Nonlocal)):
                shared.update(node.names)
            elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(target, ast.Name):
                        self._bind(target.id, node.value)
                        known.add(id(target))
            elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
                known.add(id(node.target))
            elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) and id(node) not in known:
                self._bind(node.id, None)
            elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
                self._bind(node.name, None)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                self._bind(node.name, None)
                if not isinstance(node, ast.ClassDef):
                    self.functions[node.name] = node
            if not isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
                stack += reversed(_parts(node))
        for name in shared:
            self.bound.pop(name, None)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if isinstance(node, ast.ImportFrom):
                path = f"{node.module}.{alias.name}" if node.module and not node.level else ""
                self._bind(alias.asname or alias.name, path or None)
            elif alias.asname:
                self._bind(alias.asname, alias.name)
            else:
                root = alias.name.partition(".")[0]
                self._bind(root, root)


class _Lint:
    """Goes through one body."""

    def __init__(self, fn: Any, tree: Any, lines: list[str], shift: int) -> None:
        self._fn, self._tree, self._lines, self._shift = fn, tree, lines, shift
        code = fn.__code__
        self._cells = dict(zip(code.co_freevars, fn.__closure__ or (), strict=False))
        self._cell_body = isinstance(tree, ast.Module)
        self._scope = _Scope(tree, None)
        if self._cell_body:
            for name in inspect.signature(fn).parameters:
                self._scope.bound.setdefault(name, []).insert(0, ast.arg(arg=name))
        self._first = next(iter(inspect.signature(fn).parameters), "")
        self._found: dict[tuple[int, int, str], Finding] = {}
        self._following: set[int] = set()
        self._names: dict[tuple[int, str], Any] = {}
        self._scopes = [self._scope]  # kept, so that ids stay theirs
        self._entered: set[int] = set()
        self._statement: Any = None

    def findings(self) -> list[Finding]:
        self._all(self._tree.body)
        return [self._found[at] for at in sorted(self._found)]

    def _tell(self, node: Any, what: str, fix: str) -> None:
        ends = [node.lineno, node.end_lineno]
        if isinstance(self._statement, (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Assert)):
            ends += [self._statement.lineno, self._statement.end_lineno]
        for number in {*range(node.lineno, node.end_lineno + 1), *ends}:
            if number <= len(self._lines) and _PASSED_OVER.search(self._lines[number - 1]):
                return
        line = node.lineno + self._shift
        self._found[(line, node.col_offset, what)] = Finding(self._fn.__code__.co_filename, line, what, fix)

    # ------------------------------------------------------------ what a name is

    def _value(self, node: Any) -> Any:
        """As :func:`_dotted`, for an expression."""
        if id(node) in self._following:
            return None
        self._following.add(id(node))
        try:
            return self._value_of(node)
        finally:
            self._following.discard(id(node))

    def _value_of(self, node: Any) -> Any:
        if isinstance(node, str):  # of an import in the body
            root, _, rest = node.rpartition(".")
            return _join(_REAL_MODULES.get(root, root), rest) if root and root in _REAL_MODULES else node
        if isinstance(node, ast.Name):
            return self._name(node.id)
        if isinstance(node, ast.arg):
            return self._argument(node)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, (ast.Set, ast.SetComp)):
            numbers = isinstance(node, ast.Set) and all(
                isinstance(e, ast.Constant) and type(e.value) is int for e in node.elts
            )
            return None if numbers else _SET
        if isinstance(node, ast.Call):
            return self._result(node)
        if isinstance(node, ast.BinOp):
            left = self._value(node.left)
            if left == _PATH and isinstance(node.op, ast.Div):
                return _PATH
            if left == _SET and isinstance(node.op, (ast.BitOr, ast.BitAnd, ast.BitXor, ast.Sub)):
                return _SET
        return None

    def _name(self, name: str) -> Any:
        at = (id(self._scope), name)
        if at not in self._names:
            self._names[at] = self._name_of(name)
        return self._names[at]

    def _name_of(self, name: str) -> Any:
        scope: _Scope | None = self._scope
        while scope is not None:
            if name in scope.bound:
                values = [None if value is None else self._value(value) for value in scope.bound[name]]
                return values[0] if all(value is values[0] or value == values[0] for value in values) else None
            scope = scope.outer
        try:
            if name in self._cells:
                return _dotted(self._cells[name].cell_contents)
            space = self._fn.__globals__
            return _dotted(space[name] if name in space else vars(builtins)[name])
        except (KeyError, ValueError):  # not there yet
            return None

    def _argument(self, node: ast.arg) -> Any:
        given: Any = node.annotation
        if self._cell_body:
            if node.arg == self._first:
                return _CTX
            given = self._fn.__annotations__.get(node.arg)
            given = getattr(given, "__origin__", given)
            of = _dotted(given) if isinstance(given, type) else None
        else:
            if isinstance(given, ast.Constant) and isinstance(given.value, str):
                given = ast.parse(given.value, mode="eval").body
            of = self._value(given.value if isinstance(given, ast.Subscript) else given)
            context = ast.unparse(given).rpartition(".")[2] == "Context" if given is not None else False
            if node.arg == self._first and (context or node.arg in ("ctx", "context", "_ctx", "_")):
                return _CTX
        return {"pathlib.Path": _PATH, "builtins.set": _SET, "builtins.frozenset": _SET}.get(str(of))

    def _attribute(self, node: ast.Attribute) -> Any:
        if isinstance(node.value, ast.Name):
            module = self._module(node.value.id)
            if module is not None:
                held = types.ModuleType.__getattribute__(module, "__dict__")
                value = _dotted(held[node.attr]) if node.attr in held else None
                if value is not None:
                    return value
        owner = self._value(node.value)
        if owner == _CTX and node.attr == "cwd":
            return _PATH
        if owner == _PATH and node.attr == "parent":
            return _PATH
        return _join(owner, node.attr)

    def _module(self, name: str) -> types.ModuleType | None:
        scope: _Scope | None = self._scope
        while scope is not None:
            if name in scope.bound:
                return None
            scope = scope.outer
        value = self._fn.__globals__.get(name)
        return value if issubclass(type(value), types.ModuleType) else None

    def _result(self, node: ast.Call) -> Any:
        """What a call gives, where that is known."""
        called = self._value(node.func)
        if called in ("builtins.set", "builtins.frozenset"):
            return _SET if node.args else None
        if called in ("pathlib.Path", "pathlib.Path.cwd", "pathlib.Path.home"):
            return _PATH
        if isinstance(called, str):
            owner, _, name = called.rpartition(".")
            if (owner == _PATH and name in _PATH_GIVES) or (owner == _SET and name in _SET_GIVES):
                return owner
        return None

    # ------------------------------------------------------------ going through

    def _all(self, statements: list[Any]) -> None:
        for statement in statements:
            self._visit(statement)

    def _children(self, node: ast.AST) -> None:
        for child in _parts(node):
            self._visit(child)

    def _visit(self, node: Any) -> None:
        if isinstance(node, ast.stmt):
            self._statement = node
        if isinstance(node, _FUNCTIONS):  # body code only where the body calls it
            for default in (*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)):
                self._visit(default)
            return
        if isinstance(node, (ast.ClassDef, ast.Import, ast.ImportFrom)):
            return
        if isinstance(node, ast.AnnAssign):
            self._unused(node)
            if node.value is not None:
                self._visit(node.value)
            return
        if isinstance(node, (ast.Expr, ast.Assign)):
            self._unused(node)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self._order(node.iter)
        elif isinstance(node, (ast.ListComp, ast.DictComp, ast.GeneratorExp)):
            for generator in node.generators:
                self._order(generator.iter)
        elif isinstance(node, ast.Call):
            self._call(node)
            return
        elif isinstance(node, (ast.Name, ast.Attribute)) and self._value(node) == "os.environ":
            self._tell(node, f"`{ast.unparse(node)}` {_ENVIRONMENT[0]}", _ENVIRONMENT[1])
            return
        self._children(node)

    def _order(self, node: Any) -> None:
        if isinstance(node, ast.Starred):
            node = node.value
        while (
            isinstance(node, ast.Call)
            and node.args
            and self._value(node.func) in ("builtins.enumerate", "builtins.iter")
        ):
            node = node.args[0]
        if self._value(node) == _SET:
            self._tell(node, f"`{_short(node)}`: {_ORDER[0]}", _ORDER[1])

    def _call(self, node: ast.Call) -> None:
        called = self._value(node.func)
        if isinstance(called, str):
            rule = _rule(called, node)
            if rule is not None:
                self._tell(node, f"`{_short(node.func)}()` {rule[0]}", rule[1])
                for argument in (*node.args, *node.keywords):
                    self._visit(argument)
                return
            if called in _KEEPS_ORDER or called == f"{_CTX}.map" or called == f"{_CTX}.parallel":
                for argument in node.args:
                    self._order(argument)
            elif called in _ANY_ORDER:
                self._in_any_order(node)
                return
            if called in _TAKES_FUNCTION:
                self._functions_within(node)
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "join" and node.args:
            self._order(node.args[0])
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                self._order(argument)
        if isinstance(node.func, ast.Name):
            self._enter(node.func.id)
        self._children(node)

    def _in_any_order(self, node: ast.Call) -> None:
        """``sorted(...)`` and the like: the order of what it is given does not matter."""
        self._functions_within(node)
        for argument in (*node.args, *(k.value for k in node.keywords)):
            if isinstance(argument, _COMPREHENSIONS):
                self._children(argument)
            elif (
                isinstance(argument, ast.Call)
                and self._value(argument.func) in _KEEPS_ORDER
                and all(not isinstance(inner, ast.Starred) for inner in argument.args)
            ):
                for inner in argument.args:
                    self._visit(inner)
            else:
                self._visit(argument)

    def _functions_within(self, node: ast.Call) -> None:
        for argument in (*node.args, *(k.value for k in node.keywords)):
            if isinstance(argument, ast.Lambda):
                self._within(argument, [argument.body])
            elif isinstance(argument, ast.Name):
                self._enter(argument.id)

    def _enter(self, name: str) -> None:
        """A function of the body's own, which it calls. One with a decorator, such as a step, is something else."""
        scope: _Scope | None = self._scope
        while scope is not None:
            if name in scope.bound:
                function = scope.functions.get(name)
                if function is not None and not function.decorator_list:
                    self._within(function, function.body, scope)
                return
            scope = scope.outer

    def _within(self, function: Any, body: list[Any], outer: _Scope | None = None) -> None:
        if id(function) in self._entered:
            return
        self._entered.add(id(function))
        scope, statement = self._scope, self._statement
        self._scope = _Scope(function, outer or scope)
        self._scopes.append(self._scope)
        self._all(body)
        self._scope, self._statement = scope, statement

    def _unused(self, node: ast.Expr | ast.Assign | ast.AnnAssign) -> None:
        """A call that only works when it is awaited, and is not."""
        if not isinstance(node.value, ast.Call):
            return
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if not all(isinstance(t, ast.Name) and self._never_read(t.id) for t in targets):
                return
        call = node.value
        called = self._value(call.func)
        shown = _short(call.func)
        if called is not None and not isinstance(called, str):
            self._tell(
                call, f"step `{shown}()` is called and never awaited, so it does not run", f"write await {shown}(...)"
            )
        elif isinstance(called, str) and called in _TASKS:
            self._tell(call, f"the task of `{shown}()` is never awaited, so the run may end before it", "await it")
        elif isinstance(called, str) and called.startswith(f"{_CTX}."):
            path = called.split(".")[1:]
            if (len(path) == 1 and path[0] in _AWAITED) or (len(path) == 2 and path[0] == "ui" and path[1] in _ASKED):
                self._tell(call, f"`{shown}()` is never awaited, so nothing is done", f"write await {shown}(...)")

    def _never_read(self, name: str) -> bool:
        return name in self._scope.bound and name not in self._scope.read


def _rule(called: str, node: ast.Call) -> Rule | None:
    """What is to be said of a call of ``called``."""
    rule = _RULES.get(called)
    if called == "asyncio.sleep" and node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0:
        return None  # lets others go on, and takes no time
    if called == "builtins.open" or rule is not None:
        return rule
    if called in _WITHOUT_ARGUMENTS:
        return _CLOCK if len(node.args) <= _WITHOUT_ARGUMENTS[called] else None
    root, _, rest = called.removeprefix("=").partition(".")
    last = rest.rpartition(".")[2]
    if called in _SEEDED:
        return None if node.args or node.keywords else _RANDOM
    if called.startswith(("random.", "numpy.random.")) and last not in _NO_CHANCE:
        return _RANDOM
    if called.startswith("os.environ."):
        return _ENVIRONMENT
    if called.startswith(f"{_PATH}."):
        return _IO if last in _PATH_IO else _LIST if last in _PATH_LISTS else None
    if root in _CLIENTS and last in _CLIENTS[root]:
        return _IO
    if root in ("pandas", "polars") and last.startswith(("read_", "scan_")) and not _in_memory(node):
        return _IO
    return None


def _in_memory(node: ast.Call) -> bool:
    """Whether what is read is text or bytes that the body holds."""
    return any(isinstance(n, ast.Call) and ast.unparse(n.func).endswith(("StringIO", "BytesIO")) for n in node.args)


def _short(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 50 else f"{text[:49]}…"


__all__ = ["Finding", "WorkflowLintWarning", "format_warning", "lint", "warn"]
