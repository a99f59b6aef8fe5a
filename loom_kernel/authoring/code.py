"""What a function does, as a hash and as a list of what it uses: comments, formatting, annotations and the names of
locals do not count; what it calls in the notebook, the constants that it reads and what it closes over do.

Cells are run again in any order, so a function's identity is looked up each time it is asked for: what was found is kept
as long as every name that it went through still means the same object.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import json
import os
import sysconfig
import types
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from loom_kernel.authoring.source import source_of

LENGTH = 16
"""Hex characters of a hash."""

CONSTANT_CHARS = 100_000
"""A constant that is longer as JSON counts by its type only."""

MAX_NESTED = 50
"""Containers within containers that are looked into; one that holds itself is looked into once."""

_MISSING = object()
_OPAQUE = object()  # a value that counts by its type only, such as a table, is not kept alive by whoever reads it
_KEPT = (
    types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial, type,
    list, tuple, dict, set, frozenset, str, int, float, bytes, type(None),
)  # fmt: skip
_SEES_LOCALS = frozenset({"locals", "vars", "eval", "exec", "dir", "globals"})
_DYNAMIC = frozenset({"getattr", "eval", "exec", "globals", "vars", "__import__"})
_CHANGES = frozenset(
    {
        "append",
        "extend",
        "insert",
        "add",
        "update",
        "setdefault",
        "pop",
        "popitem",
        "remove",
        "discard",
        "clear",
        "sort",
    }
)
_NAMED_CALLS = {"tool": "tool", "step": "inline"}
_IGNORED = frozenset({"ctx", "type_comment", "kind", "type_params", "returns"})


@dataclass
class Uses:
    """What a function's code reaches.

    Attributes:
        hash: stands for what it does.
        parts: one text for each thing that counts, to say which of them changed.
        steps, workflows: the definitions that it can call, by name.
        names: literal names of ``ctx.tool`` and ``ctx.step`` calls, by kind of record.
        words: every attribute and name in the code: a step may hang on an object that cannot be looked into.
        dynamic: kinds of record whose names cannot all be told from the code.
        family: the hash of it and of all that it reaches, and what was found of each of those.
    """

    hash: str = ""
    parts: dict[str, str] = field(default_factory=dict)
    steps: dict[str, Any] = field(default_factory=dict)
    workflows: dict[str, Any] = field(default_factory=dict)
    names: dict[str, set[str]] = field(default_factory=dict)
    words: set[str] = field(default_factory=set)
    dynamic: set[str] = field(default_factory=set)
    links: list[tuple[Callable[[], Any], Any, str]] = field(default_factory=list, repr=False)
    family: tuple[str, list[tuple[Callable[..., Any], Uses]]] = field(default=("", []), repr=False, compare=False)

    def current(self) -> bool:
        """Whether every name that was followed still means what it meant."""
        for look, before, text in self.links:
            now = look()
            if before is _OPAQUE:
                if type(now).__qualname__ != text:
                    return False
            elif now is not before or (text and _constant(now) != text):
                return False
        return True

    def can_call(self, kind: str, name: str) -> bool:
        """Whether the code may make such a call; True where it cannot be told."""
        if "*" in self.dynamic or kind in self.dynamic:
            return True
        if kind == "step":
            return name in self.steps or name in self.words
        if kind == "workflow":
            return name in self.workflows or name in self.words or name in self.names.get("workflow", ())
        if kind in ("tool", "inline"):
            return name in self.names.get(kind, ())
        return True


_known: weakref.WeakKeyDictionary[Any, Uses] = weakref.WeakKeyDictionary()
_inline: dict[int, tuple[Any, Uses]] = {}  # by code object, which is kept so that its id stays its own


def uses(fn: Callable[..., Any]) -> Uses:
    """What ``fn`` reaches, and the hash of it."""
    try:
        known = _known.get(fn)
    except TypeError:  # neither weak references nor hashes: looked at each time
        return _Walk().of(fn)
    if known is None or not known.current():
        known = _known[fn] = _Walk().of(fn)
    return known


def code_version(fn: Callable[..., Any]) -> str:
    """16 hex characters that stand for what the function does.

    Comments, formatting, docstrings, decorators, annotations, the function's own name and the names of its locals do
    not count. Parameters, defaults and the body do, and so do the functions and classes of the person's own that it
    uses and the constants that it reads. The steps that a body calls do not: each has its own version.
    """
    return uses(fn).hash


def inline_version(fn: Callable[..., Any]) -> str:
    """The same for a function that is made anew at each call: what it closes over is the body's data, no code."""
    code = getattr(fn, "__code__", None)
    if code is None:
        return code_version(fn)
    known = _inline.get(id(code))
    if known is None or known[0] is not code or not known[1].current():
        if len(_inline) > 2_000:
            _inline.clear()
        known = _inline[id(code)] = (code, _Walk(closures=False).of(fn))
    return known[1].hash


def family_version(fn: Callable[..., Any]) -> str:
    """The same with everything durable that it can call: within a step those are part of it, and a child workflow stands
    for all that it does."""
    if not (found := uses(fn)).steps and not found.workflows:
        return found.hash
    known, members = found.family
    if known and all(uses(one) is before for one, before in members):
        return known
    digest = hashlib.sha256()
    members = []
    seen: set[int] = set()
    todo = [fn]
    while todo:
        at = todo.pop()
        if id(at) in seen:
            continue
        seen.add(id(at))
        reached = found if at is fn else uses(at)
        members.append((at, reached))
        digest.update(reached.hash.encode())
        digest.update(",".join([*sorted(reached.steps), *sorted(reached.workflows)]).encode())
        todo += [table[name].fn for table in (reached.steps, reached.workflows) for name in sorted(table)]
    found.family = digest.hexdigest()[:LENGTH], members[1:]
    return found.family[0]


class _Walk:
    """Follows a function into what it uses."""

    def __init__(self, *, closures: bool = True) -> None:
        self.found = Uses()
        self._closures = closures
        self._seen: dict[int, int] = {}
        self._inside: set[int] = set()  # containers on the way here

    def of(self, fn: Callable[..., Any]) -> Uses:
        self._function(fn, "", root=True)
        text = json.dumps(list(self.found.parts.items()))
        self.found.hash = hashlib.sha256(text.encode()).hexdigest()[:LENGTH]
        return self.found

    def _part(self, path: str, text: str) -> None:
        self.found.parts[path] = hashlib.sha256(text.encode()).hexdigest()[:LENGTH] if len(text) > 64 else text

    def _function(self, fn: Any, path: str, *, root: bool = False) -> None:
        number = self._seen.get(id(fn))
        if number is not None:
            self._part(path, f"seen {number}")
            return
        self._seen[id(fn)] = len(self._seen)
        if isinstance(fn, functools.partial):
            self._value(fn.func, f"{path}.func")
            self._value([*fn.args, *sorted(fn.keywords.items())], f"{path}.args")
            return
        inner = getattr(fn, "__func__", fn)
        code = getattr(inner, "__code__", None)
        wrapped = getattr(inner, "__wrapped__", None)
        if wrapped is not None:
            self._value(wrapped, f"{path}.wrapped")
        tree = function_tree(inner) if wrapped is None else None  # the text would be the inner one's
        if tree is not None:
            names, attributes = _free(tree)
            changes = _changed(tree)
            self._calls(tree)
            self.found.words.update(names, *attributes.values(), _attributes(tree))
            self._part(path, dump(normalised(tree)))
        elif code is not None:
            names, attributes, changes = dict.fromkeys(_code_names(code)), {}, set()
            self._part(path, repr(_code_facts(code)))
            self.found.dynamic.update(_NAMED_CALLS.values())
        else:
            call = type(fn).__dict__.get("__call__")
            if isinstance(call, types.FunctionType) and _own(call):
                self._class(type(fn), path)
            else:
                self._part(path, _label(fn))
            return
        if _DYNAMIC & names.keys():
            self.found.dynamic.add("*")
        cells = dict(zip(code.co_freevars, inner.__closure__ or (), strict=False)) if code is not None else {}
        space = getattr(inner, "__globals__", {})
        for name in names:
            if name in cells and not self._closures:
                continue
            if name in cells:
                look = functools.partial(_cell, cells[name])
            elif name in space:
                look = functools.partial(space.get, name, _MISSING)
            else:
                # Not there yet: another answer once it is.
                self.found.links.append((functools.partial(space.get, name, _MISSING), _MISSING, ""))
                continue
            self._name(look, f"{path}/{name}", attributes.get(name, ()), name in changes)

    def _name(self, look: Callable[[], Any], path: str, attributes: Any, changes: bool = False) -> None:
        value = look()
        if changes and isinstance(value, (list, dict, set)):
            self.found.links.append((look, value, ""))
            self._part(path, type(value).__qualname__)  # what it collects there is no constant
            return
        if isinstance(value, _KEPT) or type(value).__module__.startswith("loom_kernel."):
            self.found.links.append((look, value, _constant(value) if isinstance(value, (list, dict, set)) else ""))
        else:
            self.found.links.append((look, _OPAQUE, type(value).__qualname__))
        if isinstance(value, types.ModuleType):
            self._part(path, f"module {value.__name__}")
            if _own_file(getattr(value, "__file__", None)):
                for attribute in attributes:
                    if hasattr(value, attribute):
                        self._name(functools.partial(getattr, value, attribute, _MISSING), f"{path}.{attribute}", ())
            return
        for attribute in attributes:
            self._held(inspect.getattr_static(value, attribute, None))
        self._value(value, path)

    def _held(self, value: Any) -> None:
        """A step or a workflow that hangs on an object of any kind."""
        from loom_kernel.authoring.step import StepDefinition
        from loom_kernel.authoring.workflow import WorkflowDefinition

        if isinstance(value, StepDefinition):
            self.found.steps[value.name] = value
        elif isinstance(value, WorkflowDefinition):
            self.found.workflows[value.normalized_name] = value

    def _value(self, value: Any, path: str) -> None:
        from loom_kernel.authoring.step import StepDefinition
        from loom_kernel.authoring.workflow import WorkflowDefinition

        if isinstance(value, (StepDefinition, WorkflowDefinition)):
            self._held(value)
        elif isinstance(value, type):
            if _own(value):
                self._class(value, path)
            else:
                self._part(path, _label(value))
        elif isinstance(value, (types.FunctionType, types.MethodType, functools.partial)):
            if isinstance(value, functools.partial) or _own(value):
                self._function(value, path)
            else:
                self._part(path, _label(value))
        elif isinstance(value, (list, tuple, dict, set, frozenset)) and not _constant(value):
            if id(value) not in self._inside and len(self._inside) < MAX_NESTED:
                self._inside.add(id(value))
                items = list(value.items()) if isinstance(value, dict) else [(str(i), v) for i, v in enumerate(value)]
                for key, item in items[:1_000]:
                    self._value(item, f"{path}[{key!r}]")
                self._inside.discard(id(value))
            self._part(path, type(value).__name__)
        else:
            self._part(path, _constant(value) or f"a {type(value).__qualname__}")

    def _class(self, cls: type, path: str) -> None:
        number = self._seen.get(id(cls))
        if number is not None:
            self._part(path, f"seen {number}")
            return
        self._seen[id(cls)] = len(self._seen)
        self._part(path, f"class {','.join(base.__qualname__ for base in cls.__bases__)}")
        for base in cls.__bases__:
            if _own(base):
                self._class(base, f"{path}<{base.__qualname__}")
        for name, member in sorted(vars(cls).items()):
            inner = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
            if isinstance(inner, types.FunctionType) and _own(inner):
                self._function(inner, f"{path}.{name}")
            elif not name.startswith("_") and (text := _constant(member)):
                self._part(f"{path}.{name}", text)
        fields = vars(cls).get("__annotations__")
        if fields:
            self._part(f"{path}:", repr({k: v if isinstance(v, str) else _label(v) for k, v in fields.items()}))

    def _calls(self, tree: ast.AST) -> None:
        """Names of the durable calls that are written with one."""
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            kind = _NAMED_CALLS.get(node.func.attr)
            if node.func.attr == "workflow":
                kind = "workflow"
                given = next((k.value for k in node.keywords if k.arg == "stage_name"), None)
                if given is None:
                    continue
            elif kind is None:
                continue
            else:
                given = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "name"), None)
            if isinstance(given, ast.Constant) and isinstance(given.value, str):
                self.found.names.setdefault(kind, set()).add(given.value)
            else:
                self.found.dynamic.add(kind)


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return _MISSING


def _constant(value: Any) -> str:
    """JSON of a plain value; empty where it is none, or is too long."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return json.dumps(value)[:CONSTANT_CHARS]
    if isinstance(value, bytes):
        return repr(value)[:CONSTANT_CHARS]
    if isinstance(value, (set, frozenset)) and all(isinstance(v, (str, int, float)) for v in value):
        return "set " + json.dumps(sorted(map(repr, value)))
    if isinstance(value, (list, tuple, dict)) and len(value) <= 10_000:
        try:
            text = json.dumps(value, sort_keys=True)
        except (TypeError, ValueError, RecursionError):
            return ""
        return text if len(text) <= CONSTANT_CHARS else ""
    return ""


def _label(value: Any) -> str:
    return str(getattr(value, "__qualname__", None) or type(value).__qualname__)


def _own(value: Any) -> bool:
    """Whether it is the person's own code: of a notebook, a script or a module of the project."""
    module = getattr(value, "__module__", None) or ""
    if module == "__main__":
        return True
    if module.partition(".")[0] in ("builtins", "loom_kernel"):
        return False
    code = getattr(getattr(value, "__func__", value), "__code__", None)
    if code is not None:
        return _own_file(code.co_filename)
    import sys

    return _own_file(getattr(sys.modules.get(module), "__file__", None))


@functools.lru_cache(maxsize=4096)
def _own_file(file: str | None) -> bool:
    if not file:
        return False
    path = os.path.realpath(file)
    return not any(path.startswith(folder) for folder in _foreign()) and f"{os.sep}site-packages{os.sep}" not in path


@functools.cache
def _foreign() -> tuple[str, ...]:
    """Folders of code that is not the person's: Python, what was installed, and this package."""
    paths = sysconfig.get_paths()
    here = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    folders = {os.path.realpath(paths[name]) for name in ("stdlib", "platstdlib", "purelib", "platlib")} | {here}
    return tuple(f"{folder}{os.sep}" for folder in folders)


# ---------------------------------------------------------------- trees

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def function_tree(fn: Any) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | None:
    """The function's own tree; None where its text cannot be had, or cannot be told from its neighbours'."""
    source = source_of(fn)
    if not source:
        return None
    try:
        module = ast.parse(source)
    except SyntaxError:  # a lambda in the middle of an expression
        return None
    if module.body and isinstance(module.body[0], (ast.FunctionDef, ast.AsyncFunctionDef)):
        return module.body[0]
    lambdas = [node for node in ast.walk(module) if isinstance(node, ast.Lambda)]
    return lambdas[0] if len(lambdas) == 1 and getattr(fn, "__name__", "") == "<lambda>" else None


def normalised(tree: ast.AST) -> ast.AST:
    """The tree without what does not count, its locals named by the order in which they appear. Changes ``tree``."""
    if isinstance(tree, (ast.FunctionDef, ast.AsyncFunctionDef)):
        tree.decorator_list = []
        tree.name = "_"
    for node in ast.walk(tree):
        if isinstance(node, (*_DEFINITIONS, ast.ClassDef)) and ast.get_docstring(node, False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        if isinstance(node, _DEFINITIONS):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
    tree = _NoAnnotations().visit(tree)
    if any(isinstance(node, ast.Name) and node.id in _SEES_LOCALS for node in ast.walk(tree)):
        return tree
    renamed: ast.AST = _Rename().visit(tree)
    return renamed


def dump(node: Any) -> str:
    """The tree as text, the same in every version of Python."""
    if isinstance(node, ast.AST):
        fields = ",".join(
            f"{name}={dump(value)}"
            for name, value in ast.iter_fields(node)
            if name not in _IGNORED and value is not None and value != []
        )
        return f"{type(node).__name__}({fields})"
    if isinstance(node, list):
        return f"[{','.join(map(dump, node))}]"
    return repr(node)


class _NoAnnotations(ast.NodeTransformer):
    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None or not isinstance(node.target, ast.Name):
            return node
        return ast.Assign(targets=[node.target], value=self.visit(node.value), lineno=node.lineno)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node  # there they are fields


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def _parameters(node: Any) -> list[str]:
    a = node.args
    found = [p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
    return found + [p.arg for p in (a.vararg, a.kwarg) if p is not None]


def _within(body: list[Any]) -> Iterator[ast.AST]:
    """Nodes of a scope, in order, without those of the scopes inside it."""
    stack = list(reversed(body))
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            continue
        if isinstance(node, _COMPREHENSIONS):
            stack += [n for n in ast.walk(node) if isinstance(n, ast.NamedExpr)]
            continue
        stack += reversed(list(ast.iter_child_nodes(node)))


def _bound(body: list[Any]) -> tuple[dict[str, bool], set[str], set[str]]:
    """Names that a scope binds, in order (False: keeps its name), and those it declares global and nonlocal."""
    found: dict[str, bool] = {}
    outer: set[str] = set()
    nonlocals: set[str] = set()
    for node in _within(body):
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            found.setdefault(node.id, True)
        elif isinstance(node, ast.NamedExpr):
            found.setdefault(node.target.id, True)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.setdefault(node.name, True)
        elif isinstance(node, ast.ClassDef):
            found[node.name] = False
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                found[alias.asname or alias.name.partition(".")[0]] = False
        elif (isinstance(node, ast.ExceptHandler) and node.name) or (
            isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name
        ):
            found.setdefault(node.name, True)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            found.setdefault(node.rest, True)
        elif isinstance(node, ast.Global):
            outer.update(node.names)
        elif isinstance(node, ast.Nonlocal):
            nonlocals.update(node.names)
    return found, outer, nonlocals


class _Rename(ast.NodeTransformer):
    """Locals become ``v0``, ``v1``, ... by the rules of Python's scopes; parameters keep their names."""

    def __init__(self) -> None:
        self._scopes: list[tuple[bool, dict[str, str]]] = []
        self._n = 0
        self.free: dict[str, None] = {}

    def _look(self, name: str) -> str:
        last = len(self._scopes) - 1
        for i in range(last, -1, -1):
            is_class, scope = self._scopes[i]
            if name in scope and (not is_class or i == last):
                return scope[name]
        self.free.setdefault(name)
        return name

    def _scope(self, body: list[Any], parameters: list[str]) -> dict[str, str]:
        scope = {name: name for name in parameters}
        found, outer, nonlocals = _bound(body)
        for name in outer:
            scope[name] = name
            self.free.setdefault(name)
        for name, renames in found.items():
            if name in nonlocals or name in scope:
                continue
            scope[name] = f"v{self._n}" if renames else name
            self._n += renames
        return scope

    def _enter(self, node: Any, name: str | None) -> Any:
        for option in ("decorator_list",):
            if hasattr(node, option):
                setattr(node, option, [self.visit(d) for d in getattr(node, option)])
        node.args.defaults = [self.visit(d) for d in node.args.defaults]
        node.args.kw_defaults = [self.visit(d) if d is not None else None for d in node.args.kw_defaults]
        if name is not None and self._scopes:
            node.name = self._look(name)
        body = node.body if isinstance(node.body, list) else [node.body]
        self._scopes.append((False, self._scope(body, _parameters(node))))
        visited = [self.visit(child) for child in body]
        node.body = visited if isinstance(node.body, list) else visited[0]
        self._scopes.pop()
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        return self._enter(node, node.name)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> Any:
        return self._enter(node, node.name)

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        return self._enter(node, None)

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        node.decorator_list = [self.visit(d) for d in node.decorator_list]
        node.bases = [self.visit(b) for b in node.bases]
        node.keywords = [self.visit(k) for k in node.keywords]
        found, outer, nonlocals = _bound(node.body)
        self._scopes.append((True, {name: name for name in found if name not in outer | nonlocals}))
        node.body = [self.visit(child) for child in node.body]
        self._scopes.pop()
        return node

    def _comprehension(self, node: Any) -> Any:
        first = node.generators[0]
        first.iter = self.visit(first.iter)  # belongs to the scope around it
        targets = [n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)]
        scope = {}
        for name in dict.fromkeys(targets):
            scope[name] = f"v{self._n}"
            self._n += 1
        self._scopes.append((False, scope))
        for i, generator in enumerate(node.generators):
            generator.target = self.visit(generator.target)
            if i:
                generator.iter = self.visit(generator.iter)
            generator.ifs = [self.visit(test) for test in generator.ifs]
        if isinstance(node, ast.DictComp):
            node.key, node.value = self.visit(node.key), self.visit(node.value)
        else:
            node.elt = self.visit(node.elt)
        self._scopes.pop()
        return node

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def visit_Name(self, node: ast.Name) -> Any:
        node.id = self._look(node.id)
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> Any:
        node.name = self._look(node.name) if node.name else None
        return self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs) -> Any:
        node.name = self._look(node.name) if node.name else None
        return self.generic_visit(node)

    def visit_MatchStar(self, node: ast.MatchStar) -> Any:
        node.name = self._look(node.name) if node.name else None
        return node

    def visit_MatchMapping(self, node: ast.MatchMapping) -> Any:
        node.rest = self._look(node.rest) if node.rest else None
        return self.generic_visit(node)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> Any:
        node.names = [self._look(name) for name in node.names]
        return node


def _free(tree: Any) -> tuple[dict[str, None], dict[str, dict[str, None]]]:
    """Names that a function reads from around it, and the attributes that it reads of them."""
    import copy

    rename = _Rename()
    mine = copy.deepcopy(tree)
    if hasattr(mine, "decorator_list"):
        mine.decorator_list = []
    for node in ast.walk(mine):
        if isinstance(node, ast.arg):
            node.annotation = None
    rename.visit(mine)
    attributes: dict[str, dict[str, None]] = {}
    for node in ast.walk(mine):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            attributes.setdefault(node.value.id, {})[node.attr] = None
    return rename.free, attributes


def _attributes(tree: ast.AST) -> set[str]:
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def _changed(tree: ast.AST) -> set[str]:
    """Names of containers that the function changes in place."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in _CHANGES and isinstance(node.func.value, ast.Name):
                found.add(node.func.value.id)
        elif (
            isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Name)
        ):
            found.add(node.value.id)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


# ---------------------------------------------------------------- without a text


def _code_names(code: types.CodeType) -> list[str]:
    found = list(code.co_names) + list(code.co_freevars)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found += _code_names(constant)
    return found


def _code_facts(code: types.CodeType) -> tuple[Any, ...]:
    constants = tuple(_code_facts(c) if isinstance(c, types.CodeType) else repr(c) for c in code.co_consts)
    return (code.co_code, code.co_names, code.co_varnames, constants)
