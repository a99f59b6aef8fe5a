"""Executing a workflow of a file from the command line, and going on with one."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from loom_kernel.authoring.registry import registry
from loom_kernel.authoring.workflow import WorkflowDefinition
from loom_kernel.cli.files import load
from loom_kernel.cli.runs import runtime
from loom_kernel.cli.table import print_json
from loom_kernel.errors import AnswerError, LoomError, RunError, UnknownWorkflowError
from loom_kernel.journal.abc import JournalEntry
from loom_kernel.runtime import Run
from loom_kernel.views import words

EXIT_FAILED = 1
EXIT_STOPPED = 3


def run(arguments: argparse.Namespace) -> int:
    """``loom run FILE:NAME key=value``."""
    file, name = split_target(arguments.target)
    definition = find(load(file), name, file)
    texts = dict(_pair(text) for text in arguments.inputs)
    made = runtime()
    if arguments.answers:
        made.configure(answers=arguments.answers)
    options: dict[str, Any] = {"key": arguments.key, "tags": tuple(arguments.tag), "fresh": arguments.fresh}
    if arguments.detach:
        options["worker"] = True
    started = definition.options(**options).start(**definition.parse_inputs(texts))
    if arguments.detach:
        return leave(started, arguments)
    return attend(started, arguments)


def leave(started: Run[Any], arguments: argparse.Namespace) -> int:
    """Say which run was left to a worker."""
    if arguments.json:
        print_json({"runId": started.id, "status": started.status})
    else:
        print(started.id if arguments.quiet else f"{started.view.workflow}  {started.id}")
    return 0


def resume(arguments: argparse.Namespace) -> int:
    """``loom resume ID FILE``."""
    load(split_target(arguments.target)[0])
    made = runtime()
    if arguments.answers:
        made.configure(answers=arguments.answers)
    if arguments.edited:
        print(made.get_run(arguments.id).plan_edited())
    resumed = made.resume(
        arguments.id,
        accept=arguments.accept,
        take=arguments.take,
        edited=arguments.edited,
        recorded=arguments.recorded,
    )
    return attend(resumed, arguments)


def attend(started: Run[Any], arguments: argparse.Namespace) -> int:
    """Print what happens until the run rests, ask the person where one is there, print the result."""
    quiet = arguments.quiet or arguments.json
    if not quiet:
        print(f"{started.view.workflow}  {started.id}", flush=True)
    for entry in started.follow():
        if not quiet:
            tell(started, entry)
        if entry.type == "prompt.opened" and not arguments.json:
            ask(started, entry)
    result = started.settle()
    if arguments.json:
        error = None if result.error is None else f"{type(result.error).__name__}: {result.error}"
        print_json({"runId": started.id, "status": result.status, "result": result.result, "error": error})
    elif result.result is not None:
        print(result.result)
    try:
        from loom_kernel.runtime.outcome import or_raise

        or_raise(started, result)
    except RunError as error:
        print(f"loom: {error}", file=sys.stderr)
        return EXIT_STOPPED if result.status in ("paused", "cancelled", "killed") else EXIT_FAILED
    left = runtime().attendant.leftovers()
    if left:
        print("loom: lines of the answers file were never asked for:", *left, sep="\n  ", file=sys.stderr)
        return EXIT_FAILED
    return 0


def tell(started: Run[Any], entry: JournalEntry) -> None:
    """One line for a node that has settled."""
    if entry.type not in ("node.completed", "node.failed", "node.cancelled"):
        return
    node = started.view.nodes.get(entry.node_id or "")
    if node is None:
        return
    status = entry.type.removeprefix("node.")
    took = words.duration(node.duration_s) if node.duration_s is not None else ""
    print(f"  {words.GLYPHS.get(status, '?')} {node.label:<24} {status:<10} {took}".rstrip(), flush=True)


def ask(started: Run[Any], entry: JournalEntry) -> None:
    """A question: asked here where a person sits at the terminal, else how to answer it from elsewhere."""
    prompt = started.view.find(entry.node_id or "")
    if prompt is None or started._answer_coming(prompt):
        return
    print(f"  ? {prompt.message}" + (f" ({prompt.error})" if prompt.error else ""), file=sys.stderr, flush=True)
    for number, option in enumerate(prompt.options, 1):
        print(f"    {number} {option}", file=sys.stderr)
    if not (sys.stdin.isatty() and prompt.kind in ("confirm", "input", "select")):
        print(f"    loom answer {started.id} {prompt.prompt} VALUE", file=sys.stderr, flush=True)
        return
    while True:
        print("    > ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        try:
            started.answer(line.rstrip("\n"), prompt=prompt.node_id, by="terminal")
            return
        except AnswerError as error:
            print(f"    {error}", file=sys.stderr)


def split_target(target: str) -> tuple[Path, str | None]:
    """``flows.py:digest`` as a file and a name.

    Raises:
        LoomError: there is no such file.
    """
    file, colon, name = target.rpartition(":")
    if not colon or not file or Path(target).exists():
        file, name = target, ""
    path = Path(file)
    if not path.is_file():
        raise LoomError(f"there is no file {file!r}; write FILE:NAME, such as flows.py:digest")
    return path, name or None


def find(defined: list[WorkflowDefinition[..., Any]], name: str | None, path: Path) -> WorkflowDefinition[..., Any]:
    """The one of that name, or the only one.

    Raises:
        UnknownWorkflowError: none of that name.
        LoomError: several, and none named.
    """
    if name is not None:
        if registry.has(name):
            return registry.get(name)
        by_function = [d for d in defined if d.fn.__name__ == name]
        if by_function:
            return by_function[0]
        raise UnknownWorkflowError(name, (d.name for d in defined))
    if len(defined) == 1:
        return defined[0]
    names = ", ".join(d.name for d in defined)
    raise LoomError(f"{path} defines {names}; say which: {path}:NAME" if defined else f"{path} defines no workflow")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise LoomError(f"inputs are written key=value, not {text!r}")
    return name, value
