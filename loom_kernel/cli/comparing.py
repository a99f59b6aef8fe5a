"""``loom fork``, ``diff`` and ``why``."""

from __future__ import annotations

import argparse
from typing import Any

from loom_kernel.cli.files import load
from loom_kernel.cli.run import attend, split_target
from loom_kernel.cli.runs import runtime
from loom_kernel.cli.table import print_json
from loom_kernel.errors import LoomError
from loom_kernel.runtime.looking import of_node


def fork(arguments: argparse.Namespace) -> int:
    """``loom fork ID FILE [key=value...]``."""
    load(split_target(arguments.target)[0])
    made = runtime()
    if arguments.answers:
        made.configure(answers=arguments.answers)
    run = made.get_run(arguments.id)
    texts = dict(_pair(text, "inputs are written key=value") for text in arguments.inputs)
    definition = made.definition_of(run.workflow)
    forked = run.fork(
        arguments.node,
        inputs=definition.parse_inputs(texts) if texts else None,
        answers=dict(_pair(text, "answers are written NAME=VALUE") for text in arguments.answer),
        tags=tuple(arguments.tag) if arguments.tag is not None else None,
        fresh=True,
    )
    return attend(forked, arguments)


def diff(arguments: argparse.Namespace) -> int:
    """``loom diff ID [OTHER]``."""
    run = runtime().get_run(arguments.id)
    found = run.diff(arguments.other)
    if arguments.sql:
        print(found.sql)
        return 0
    if arguments.node is not None:
        found = of_node(found, arguments.node)
    if arguments.json:
        print_json(found.to_json())
    else:
        print(found.text())
    return 0


def why(arguments: argparse.Namespace) -> int:
    """``loom why ID [NODE]``."""
    run = runtime().get_run(arguments.id)
    try:
        said = run.why(arguments.node)
    except KeyError as error:
        raise LoomError(str(error.args[0])) from None
    if arguments.json:
        print_json({"about": said.title, "lines": list(said.lines)})
    else:
        print(said)
    return 0


def _pair(text: str, form: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise LoomError(f"{form}, not {text!r}")
    return name, value
