"""``@workflow``: from an async function to a frozen definition that can be started."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Coroutine, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from loom_kernel.authoring import launcher as launcher_slot
from loom_kernel.authoring import lint as body_lint
from loom_kernel.authoring.code import code_version
from loom_kernel.authoring.context import Context
from loom_kernel.authoring.launcher import Options
from loom_kernel.authoring.registry import normalize_workflow_name, registry
from loom_kernel.authoring.result import RunResult
from loom_kernel.authoring.schema import (
    EMPTY,
    InputField,
    Inputs,
    ValueType,
    fields_of,
    problems,
    resolver,
    unknown_input,
)
from loom_kernel.authoring.source import source_of
from loom_kernel.errors import DefinitionError, InputError, OutputError
from loom_kernel.policies import Budget

if TYPE_CHECKING:
    from pydantic import BaseModel

    from loom_kernel.authoring.lint import Finding
    from loom_kernel.runtime import Run, StartPlan

P = ParamSpec("P")
R = TypeVar("R")

HEARTBEAT_MINUTES = 15.0

_CONTEXT_NAMES = ("ctx", "context", "_ctx", "_")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WorkflowDefinition(Generic[P, R]):
    """A workflow: its name, what it takes and returns, its body. Made by :func:`workflow`.

    Attributes:
        name: as it is shown.
        normalized_name: as it is compared.
        description: for lists and help.
        fn: the body.
        inputs: the pydantic model of its inputs, where one was given; otherwise they come from the signature.
        outputs: the pydantic model of its outputs, where one was given; otherwise the return annotation counts.
        budget: what a run may spend.
        auto_attach: kept; a notebook shows the live view of every start by itself.
        heartbeat_interval_minutes: how often a run tells the chat that launched it that it goes on; 0 is never. Kept;
            nothing is told before there is a chat surface.
        input_bindings: which inputs say what stages take for granted: ``worktree``.
    """

    name: str
    normalized_name: str
    description: str
    fn: Callable[..., Coroutine[Any, Any, Any]]
    inputs: type[BaseModel] | None = None
    outputs: type[BaseModel] | None = None
    budget: Budget | None = None
    auto_attach: bool = False
    heartbeat_interval_minutes: float = HEARTBEAT_MINUTES
    input_bindings: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict, hash=False)
    takes_context: bool = True
    start_options: Options = dataclasses.field(default_factory=Options)

    # ------------------------------------------------------------ running

    def start(self, *args: P.args, **inputs: P.kwargs) -> Run[R]:
        """Start a run; it is durable when this returns. Attaches to an unfinished run of the same identity.

        Raises:
            InputError: with everything that is wrong with the inputs.
            WouldBlock: on the thread that runs workflows.
        """
        given = self.bind(*args, **inputs)
        self.validate_inputs(given)
        run: Run[R] = launcher_slot.get_launcher().start(self, given, self.start_options)
        return run

    async def start_async(self, *args: P.args, **inputs: P.kwargs) -> Run[R]:
        """Twin of :meth:`start`."""
        given = self.bind(*args, **inputs)
        self.validate_inputs(given)
        run: Run[R] = await launcher_slot.get_launcher().start_async(self, given, self.start_options)
        return run

    async def run(self, *args: P.args, **inputs: P.kwargs) -> RunResult[R]:
        """Start a run and return what it came to; never raises for the run's outcome.

        Raises:
            InputError: with everything that is wrong with the inputs.
        """
        given = self.bind(*args, **inputs)
        self.validate_inputs(given)
        return await launcher_slot.get_launcher().run(self, given, self.start_options)

    def plan(self, *args: P.args, **inputs: P.kwargs) -> StartPlan:
        """What a new run would do now, with nothing done: the calls that earlier runs answer, and those that run.

        The body's plain code runs, and its calls are only heard. What comes after a call that runs is not known, and the
        plan says so.

        Raises:
            InputError: with everything that is wrong with the inputs.
        """
        given = self.bind(*args, **inputs)
        self.validate_inputs(given)
        made: StartPlan = launcher_slot.get_launcher().plan(self, given)
        return made

    async def plan_async(self, *args: P.args, **inputs: P.kwargs) -> StartPlan:
        """Twin of :meth:`plan`."""
        given = self.bind(*args, **inputs)
        self.validate_inputs(given)
        made: StartPlan = await launcher_slot.get_launcher().plan_async(self, given)
        return made

    def options(self, **options: Any) -> WorkflowDefinition[P, R]:
        """The same definition with options set: ``key, budget, tags, fresh, show, answers, worker``.

        Raises:
            TypeError: an option of another name, or of another type (``DefinitionError``).
        """
        known = [f.name for f in dataclasses.fields(Options)]
        for name in options:
            if name not in known:
                raise TypeError(f"no option {name!r}; there are {', '.join(known)}")
        if "tags" in options:
            tags = options["tags"]
            options["tags"] = (tags,) if isinstance(tags, str) else tuple(tags)
        return dataclasses.replace(self, start_options=dataclasses.replace(self.start_options, **options))

    def call(self, ctx: Context, inputs: Mapping[str, Any]) -> Coroutine[Any, Any, R]:
        """The body's coroutine, with validated inputs."""
        accepted = self._parameters
        given = {name: value for name, value in inputs.items() if name in accepted}
        return self.fn(ctx, **given) if self.takes_context else self.fn(**given)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            f"workflow {self.name!r} is not called directly: `{self.fn.__name__}.start(...)` starts a run, "
            f"`await ctx.workflow({self.fn.__name__}, inputs={{...}})` runs it within another"
        )

    # ------------------------------------------------------------ inputs

    @cached_property
    def fields(self) -> dict[str, InputField]:
        """The inputs by name."""
        resolve = resolver(self.fn)
        if self.inputs is not None:
            return {
                name: InputField(
                    name,
                    ValueType(info.rebuild_annotation(), lambda a: a, label=f"workflow {self.name!r}, input {name!r}"),
                    EMPTY if info.is_required() else info.get_default(call_default_factory=True),
                )
                for name, info in self.inputs.model_fields.items()
            }
        return {
            name: InputField(
                name,
                ValueType(parameter.annotation, resolve, label=f"workflow {self.name!r}, input {name!r}"),
                parameter.default,
            )
            for name, parameter in self._parameters.items()
        }

    @cached_property
    def secret_inputs(self) -> frozenset[str]:
        """Names of the inputs whose values are never stored."""
        return frozenset(name for name, f in self.fields.items() if f.type.secret)

    def bind(self, *args: Any, **inputs: Any) -> dict[str, Any]:
        """Positional inputs by name; defaults are left out."""
        if not args:
            return dict(inputs)
        names = list(self.fields)
        if len(args) > len(names):
            raise InputError(self.name, [f"{len(args)} values were given, it takes {len(names)}"])
        given = dict(zip(names, args, strict=False))
        twice = [f"{name}: given twice" for name in given if name in inputs]
        if twice:
            raise InputError(self.name, twice)
        return {**given, **inputs}

    def validate_inputs(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The validated inputs, defaults included. Strict: ``"3"`` is not 3.

        Raises:
            InputError: lists every unknown, missing and wrong-typed input.
        """
        return self._check_inputs(given, strict=True)

    def restore_inputs(self, stored: Mapping[str, Any], secrets: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The validated inputs of a recorded run. Secret ones, which are not stored, come from ``secrets``.

        Inputs that the workflow no longer has are left out; new ones take their defaults.

        Raises:
            InputError: lists the missing secrets and what does not fit any more.
        """
        secret = self.secret_inputs
        given = {name: value for name, value in stored.items() if name in self.fields and name not in secret}
        given.update({name: value for name, value in (secrets or {}).items() if name in secret})
        missing = [
            f"{name}: a secret, which is not stored; give it again"
            for name in sorted(secret)
            if name not in given and (self.fields[name].required or name in stored)
        ]
        if missing:
            raise InputError(self.name, missing)
        # Not strict: a nested model may have come back as the plain values that it was stored as.
        return self._check_inputs(given, strict=False)

    def parse_inputs(self, texts: Mapping[str, str]) -> dict[str, Any]:
        """Values for inputs written as text (``key=value`` on a command line), by each input's type."""
        return {
            name: self.fields[name].type.parse(text) if name in self.fields else text for name, text in texts.items()
        }

    def inputs_object(self, inputs: Mapping[str, Any]) -> Any:
        """What ``ctx.inputs`` is: an instance of the model that was given, else :class:`Inputs`."""
        return Inputs(inputs) if self.inputs is None else self.inputs.model_construct(**inputs)

    def input_schema(self) -> dict[str, Any]:
        """JSON Schema of the inputs."""
        if self.inputs is not None:
            return self.inputs.model_json_schema()
        from pydantic_core import to_jsonable_python

        properties: dict[str, Any] = {}
        definitions: dict[str, Any] = {}
        for name, f in self.fields.items():
            schema = f.type.json_schema()
            definitions.update(schema.pop("$defs", {}))
            if not f.required:
                schema["default"] = to_jsonable_python(f.default, fallback=repr)
            properties[name] = schema
        required = [name for name, f in self.fields.items() if f.required]
        schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        return {**schema, "$defs": definitions} if definitions else schema

    def _check_inputs(self, given: Mapping[str, Any], *, strict: bool) -> dict[str, Any]:
        found = [unknown_input(name, self.fields) for name in given if name not in self.fields]
        values: dict[str, Any] = {}
        for name, f in self.fields.items():
            if name not in given and f.required:
                found.append(f"{name}: missing ({f.type.describe()})")
                continue
            value = given.get(name, f.default)
            if name not in given and value is None:
                values[name] = None  # `limit: int = None` is common, and what it means is clear
                continue
            values[name], wrong = f.type.check(value, name, strict=strict)
            found += wrong
        if found:
            raise InputError(self.name, found)
        if self.inputs is not None:
            values = self._check_model(values)
        return values

    def _check_model(self, values: dict[str, Any]) -> dict[str, Any]:
        """The model's own validators, which see all fields together."""
        from pydantic import ValidationError

        assert self.inputs is not None
        try:
            model = self.inputs.model_validate(values, by_name=True)
        except ValidationError as error:
            raise InputError(self.name, [p.removeprefix(".") for p in problems(error, "")]) from None
        return {name: getattr(model, name) for name in self.fields}

    @cached_property
    def _parameters(self) -> dict[str, inspect.Parameter]:
        parameters = list(inspect.signature(self.fn).parameters.values())
        return {p.name: p for p in parameters[1 if self.takes_context else 0 :]}

    # ------------------------------------------------------------ outputs

    @cached_property
    def output_type(self) -> ValueType:
        """What the body returns."""
        annotation = self.outputs if self.outputs is not None else inspect.signature(self.fn).return_annotation
        return ValueType(annotation, resolver(self.fn), label=f"workflow {self.name!r}, its output")

    def check_output(self, value: Any) -> R:
        """The value a body returned, checked against its annotation, strictly.

        Raises:
            OutputError: it does not fit; lists the paths.
        """
        checked, wrong = self.output_type.check(value, "output")
        if wrong:
            raise OutputError(self.name, wrong)
        result: R = checked
        return result

    @cached_property
    def output_names(self) -> frozenset[str] | None:
        """The names of its declared outputs; None where the output is one value, or anything."""
        try:
            schema = self.output_schema()
        except Exception:  # what has no schema has no names
            return None
        while "$ref" in schema:
            schema = schema.get("$defs", {}).get(schema["$ref"].rsplit("/", 1)[-1], {})
        properties = schema.get("properties")
        return frozenset(properties) if schema.get("type") == "object" and properties else None

    def check_partial(self, outputs: Mapping[str, Any]) -> None:
        """Outputs given to ``ctx.exit``: some of the declared ones.

        Raises:
            OutputError: a name that is not declared, or a value that does not fit.
        """
        if not isinstance(outputs, Mapping):
            raise OutputError(self.name, [f"outputs: ctx.exit takes names and values, not a {type(outputs).__name__}"])
        declared = self.output_names
        if declared is None:
            return
        wrong: list[str] = []
        types = fields_of(self.output_type.annotation)
        for name, value in outputs.items():
            if name not in declared:
                wrong.append(f"{name}: not declared; there are {', '.join(sorted(declared))}")
            elif name in types:
                wrong += ValueType(types[name], lambda a: a, label=f"output {name!r}").check(value, name)[1]
        if wrong:
            raise OutputError(self.name, wrong)

    def restore_output(self, value: Any) -> Any:
        """A recorded output as the annotation says; as it was stored where it no longer fits."""
        restored, wrong = self.output_type.check(value, "output", strict=False)
        return value if wrong else restored

    def output_schema(self) -> dict[str, Any]:
        """JSON Schema of the output."""
        return self.output_type.json_schema()

    # ------------------------------------------------------------ identity

    @cached_property
    def source(self) -> str:
        """The body's text."""
        return source_of(self.fn)

    @property
    def version(self) -> str:
        """Hash of what the body does now; see :func:`~loom_kernel.authoring.code.code_version`."""
        return code_version(self.fn)

    def lint(self) -> list[Finding]:
        """What stands in the body and gives another value, or is done again, when a run is resumed."""
        return body_lint.lint(self.fn)

    def __repr__(self) -> str:
        return f"<workflow {self.name}>"


def define(
    fn: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    inputs: type[BaseModel] | None = None,
    outputs: type[BaseModel] | None = None,
    budget: Budget | None = None,
    auto_attach: bool = False,
    heartbeat_interval_minutes: float = HEARTBEAT_MINUTES,
    worktree_from_inputs: Mapping[str, str] | None = None,
) -> WorkflowDefinition[Any, Any]:
    """The definition of a body, not registered. :func:`workflow` documents the arguments."""
    shown = name if name is not None else getattr(fn, "__name__", "")
    normalized = normalize_workflow_name(shown)
    if inspect.isasyncgenfunction(fn) or inspect.isgeneratorfunction(fn):
        raise DefinitionError(f"workflow {shown!r} is a generator; a body is an async function that returns its output")
    if not inspect.iscoroutinefunction(fn):
        raise DefinitionError(f"workflow {shown!r} is not an async function; write `async def {shown}(ctx, ...)`")
    if description is not None and not isinstance(description, str):
        raise DefinitionError(f"workflow {shown!r}: description is a text, not a {type(description).__name__}")
    if budget is not None and not isinstance(budget, Budget):
        raise DefinitionError(f"workflow {shown!r}: budget={budget!r} should be a Budget(...)")
    minutes = heartbeat_interval_minutes
    if isinstance(minutes, bool) or not isinstance(minutes, (int, float)) or not 0 <= minutes < math.inf:
        raise DefinitionError(
            f"workflow {shown!r}: heartbeat_interval_minutes={minutes!r} should be minutes, at least 0 (0 is never)"
        )
    for option, model in (("inputs", inputs), ("outputs", outputs)):
        if model is not None and not hasattr(model, "model_fields"):
            raise DefinitionError(f"workflow {shown!r}: {option} is a pydantic model class")
    parameters = list(inspect.signature(fn).parameters.values())
    takes_context = bool(parameters) and _is_context(parameters[0])
    for p in parameters[1 if takes_context else 0 :]:
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.POSITIONAL_ONLY):
            raise DefinitionError(f"workflow {shown!r}: {p} cannot be an input; every input has a name of its own")
        if inputs is not None and p.name not in inputs.model_fields:
            raise DefinitionError(f"workflow {shown!r}: the parameter {p.name!r} is no field of {inputs.__name__}")
    if description is None:
        description = (inspect.getdoc(fn) or "").split("\n\n")[0].replace("\n", " ")
    return WorkflowDefinition(
        name=shown,
        normalized_name=normalized,
        description=description,
        fn=fn,
        inputs=inputs,
        outputs=outputs,
        budget=budget,
        auto_attach=auto_attach is True,
        heartbeat_interval_minutes=float(minutes),
        input_bindings=_bindings(shown, worktree_from_inputs, parameters, inputs),
        takes_context=takes_context,
    )


def _bindings(
    shown: str, given: Mapping[str, str] | None, parameters: list[inspect.Parameter], inputs: type[BaseModel] | None
) -> dict[str, dict[str, str]]:
    """Which inputs say what stages take for granted."""
    if given is None:
        return {}
    known = set(inputs.model_fields) if inputs is not None else {p.name for p in parameters}
    if (
        not isinstance(given, Mapping)
        or "git_worktree_dir" not in given
        or set(given) - {"git_worktree_dir", "base_branch"}
    ):
        raise DefinitionError(
            f'workflow {shown!r}: worktree_from_inputs={given!r}: {{"git_worktree_dir": input, "base_branch": input}} is needed'
        )
    for option, name in given.items():
        if name not in known:
            raise DefinitionError(
                f"workflow {shown!r}: worktree_from_inputs names {name!r} for {option}, which is no input"
            )
    return {"worktree": dict(given)}


def resolve_inputs(definition: WorkflowDefinition[..., Any], inputs: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The inputs a run of ``definition`` would have: validated, defaults included.

    Raises:
        InputError: with everything that is wrong with them.
    """
    return definition.validate_inputs(inputs or {})


@overload
def workflow(fn: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> WorkflowDefinition[P, R]: ...
@overload
def workflow(fn: Callable[P, Coroutine[Any, Any, R]], /) -> WorkflowDefinition[P, R]: ...
@overload
def workflow(
    name: str | None = None,
    /,
    *,
    description: str | None = None,
    inputs: type[BaseModel] | None = None,
    outputs: type[BaseModel] | None = None,
    budget: Budget | None = None,
    auto_attach: bool = False,
    heartbeat_interval_minutes: float = HEARTBEAT_MINUTES,
    worktree_from_inputs: Mapping[str, str] | None = None,
    lint: bool = True,
) -> _WorkflowDecorator: ...
def workflow(fn: Any = None, /, *, name: str | None = None, lint: bool = True, **options: Any) -> Any:
    """Make an async function a workflow, and register it under its name.

    Written ``@workflow`` or ``@workflow(...)``. The body's first parameter is the context (``ctx``); the others are
    its inputs, checked strictly by their annotations. Its output is checked by the return annotation.

    Args:
        name: its name; the function's own when left out.
        description: one line for lists; the first paragraph of the docstring when left out.
        inputs: a pydantic model of the inputs, which ``ctx.inputs`` is then an instance of.
        outputs: a pydantic model of the outputs.
        budget: what a run may spend.
        auto_attach: no further effect here: in a notebook every start shows its live view, unless ``show=False`` is set.
            Only True is kept, as in Atomic.
        heartbeat_interval_minutes: minutes, a part of one too; 0 is never. Kept with the definition for the chat surface,
            which will tell whoever launched a run that it goes on. Until then nothing reads it.
        worktree_from_inputs: names of inputs that say in which git worktree model stages work which name none:
            ``{"git_worktree_dir": "input", "base_branch": "input"}``, the second may be left out.
        lint: warn of what in the body gives another value, or is done again, when a run is resumed. A line that ends
            with ``# loom: ok`` is passed over; :meth:`WorkflowDefinition.lint` gives what is found.

    Raises:
        DefinitionError: a body that is not async, a parameter that cannot be an input, an option of the wrong type.
    """
    if isinstance(fn, str):
        fn, name = None, fn

    def made(function: Any) -> WorkflowDefinition[..., Any]:
        definition = registry.register(define(function, name=name, **options))
        if lint:
            body_lint.warn(function)
        return definition

    return made if fn is None else made(fn)


class _WorkflowDecorator:
    """For type checkers: what ``@workflow(...)`` is."""

    def __call__(self, fn: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> WorkflowDefinition[P, R]:
        raise NotImplementedError


def _is_context(parameter: inspect.Parameter) -> bool:
    annotation = parameter.annotation
    if annotation is Context or (isinstance(annotation, str) and annotation.split(".")[-1] == "Context"):
        return True
    return parameter.name in _CONTEXT_NAMES


__all__ = ["WorkflowDefinition", "define", "resolve_inputs", "workflow"]
