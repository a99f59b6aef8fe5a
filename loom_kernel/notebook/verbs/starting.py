"""``%loom run`` and ``%loom workflows``."""

from __future__ import annotations

import argparse
from typing import Any

from loom_kernel.authoring.registry import registry
from loom_kernel.authoring.workflow import WorkflowDefinition
from loom_kernel.errors import CommandError, UnknownRunError, UnknownWorkflowError
from loom_kernel.notebook.arguments import (
    Arguments,
    budget_arguments,
    budget_of,
    pairs,
    variable,
    without_markers,
    yaml_value,
)
from loom_kernel.notebook.tables import Table
from loom_kernel.notebook.verbs.base import Session, Verb, find_run


def _run_arguments(parser: Arguments) -> None:
    parser.add_argument("name", metavar="NAME", help="a workflow, or a variable that holds one")
    parser.add_argument("inputs", nargs="*", metavar="key=value", help="its inputs; key=$name is a variable's value")
    parser.add_argument("--wait", action="store_true", help="wait for its end")
    parser.add_argument("--key", metavar="K", help="identity: a start with the same key attaches to the unfinished run")
    parser.add_argument("--tag", action="append", default=[], metavar="T", help="a label; repeat it for more")
    parser.add_argument("--fresh", action="store_true", help="make a new run, whatever is unfinished")
    parser.add_argument("--quiet", action="store_true", help="show nothing")
    budget_arguments(parser)


def _run(session: Session, arguments: argparse.Namespace) -> Any:
    definition = _definition(session, arguments.name)
    inputs = _inputs(session, definition, arguments)
    options: dict[str, Any] = {"show": not arguments.quiet, "fresh": arguments.fresh, "tags": tuple(arguments.tag)}
    budget = budget_of(arguments.command, arguments)
    if budget is not None:
        options["budget"] = budget
    if arguments.key is not None:
        options["key"] = arguments.key
    run = definition.options(**options).start(**inputs)
    if arguments.wait or (session.host is not None and session.host.headless):
        run.wait()
    return run


def _plan_arguments(parser: Arguments) -> None:
    parser.add_argument("name", metavar="NAME", help="a workflow, or a variable that holds one")
    parser.add_argument("inputs", nargs="*", metavar="key=value", help="its inputs; key=$name is a variable's value")


def _plan(session: Session, arguments: argparse.Namespace) -> None:
    definition = _definition(session, arguments.name)
    print(definition.plan(**_inputs(session, definition, arguments)))


def _definition(session: Session, name: str) -> WorkflowDefinition[..., Any]:
    held = session.namespace.get(name)
    return held if isinstance(held, WorkflowDefinition) and not registry.has(name) else registry.get(name)


def _inputs(
    session: Session, definition: WorkflowDefinition[..., Any], arguments: argparse.Namespace
) -> dict[str, Any]:
    """Inputs of the line and of the cell; those on the line are texts, which each input's type reads."""
    texts: dict[str, str] = {}
    values: dict[str, Any] = {}
    if arguments.cell is not None:
        cell = yaml_value(arguments.command, without_markers(arguments.cell), "the cell")
        if cell is not None and not isinstance(cell, dict):
            raise CommandError(
                arguments.command, f"the cell is YAML for a {type(cell).__name__}; write `name: value` lines"
            )
        for key, value in (cell or {}).items():
            text = (
                variable(arguments.command, str(key), value, session.namespace)[0] if isinstance(value, str) else value
            )
            values[str(key)] = text
    for key, text in pairs(arguments.command, arguments.inputs).items():
        if key in values:
            raise CommandError(arguments.command, f"input {key!r} is given on the line and in the cell")
        value, is_variable = variable(arguments.command, key, text, session.namespace)
        if is_variable:
            values[key] = value
        else:
            texts[key] = value
    return {**values, **definition.parse_inputs(texts)}


def _workflows_arguments(parser: Arguments) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="one workflow, with each of its inputs")


def _workflows(session: Session, arguments: argparse.Namespace) -> Table:
    if arguments.name:
        return _taken(_definition(session, arguments.name))
    rows = [[d.name, signature(d), d.description] for d in registry.all()]
    return Table(
        ["workflow", "inputs", "description"], rows, len(rows), "no workflows yet; %%workflow or @workflow defines one"
    )


def _taken(definition: WorkflowDefinition[..., Any]) -> Table:
    """What a workflow takes."""
    rows = [
        [name, f.type.describe(), "" if f.required else repr(f.default), "yes" if f.type.secret else ""]
        for name, f in definition.fields.items()
    ]
    return Table(["input", "type", "default", "secret"], rows, len(rows), f"{definition.name} takes no inputs")


def _show_inputs_arguments(parser: Arguments) -> None:
    parser.add_argument("name", metavar="NAME", help="a workflow; or a run: its id or its beginning, or a variable")


def _show_inputs(session: Session, arguments: argparse.Namespace) -> Table:
    try:
        return _taken(_definition(session, arguments.name))
    except UnknownWorkflowError as unknown:
        try:
            run = find_run(session, arguments.name)
        except UnknownRunError:
            raise unknown from None
    given = run.inputs
    return Table(["input", "value"], [[name, value] for name, value in given.items()], len(given), "it takes no inputs")


def signature(definition: WorkflowDefinition[..., Any]) -> str:
    """The inputs as one would write them: ``url: str, limit: int = 10``."""
    return ", ".join(
        f"{name}: {f.type.describe()}" + ("" if f.required else f" = {f.default!r}")
        for name, f in definition.fields.items()
    )


VERBS = {
    "run": Verb(
        "run",
        "Start a run and show it. An unfinished run of the same workflow, inputs and cell is continued.\n"
        "As %%loom run NAME the cell holds the inputs as YAML.",
        _run_arguments,
        _run,
        offers=("workflow", "input"),
        takes_cell=True,
    ),
    "plan": Verb(
        "plan",
        "What a start would do now: the calls that the cache answers, and those that run. Nothing is done.",
        _plan_arguments,
        _plan,
        offers=("workflow", "input"),
    ),
    "workflows": Verb(
        "workflows", "The workflows that are defined here.", _workflows_arguments, _workflows, offers=("workflow",)
    ),
    "inputs": Verb(
        "inputs",
        "What a workflow takes, or what a run was given.",
        _show_inputs_arguments,
        _show_inputs,
        offers=("workflow", "run"),
    ),
}
