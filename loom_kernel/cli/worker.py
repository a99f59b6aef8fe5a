"""``loom worker``: executes runs that were left to workers, or lost theirs."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from loom_kernel.authoring.workflow import WorkflowDefinition
from loom_kernel.cli.files import load
from loom_kernel.errors import LoomError, StorageConfigError
from loom_kernel.runtime import Runtime, get_runtime
from loom_kernel.runtime.host import WorkerHost
from loom_kernel.runtime.loop import wait_for
from loom_kernel.runtime.worker import Worker


def worker(arguments: argparse.Namespace) -> int:
    """``loom worker FILE...``; returns when it was told to end and has."""
    runtime = get_runtime()
    if runtime.settings.get("journal") == "memory":
        raise StorageConfigError(
            "a worker needs a journal that others reach, and this one is in memory; set LOOM_JOURNAL to duckdb or a folder"
        )
    files = [Path(file) for file in arguments.files]
    definitions = gather(files)
    runtime.host = WorkerHost(f"worker {' '.join(file.name for file in files)}")
    if arguments.answers:
        runtime.configure(answers=arguments.answers)
    return serve(runtime, definitions, arguments)


def gather(files: list[Path]) -> list[WorkflowDefinition[..., Any]]:
    """The workflows of all files.

    Raises:
        LoomError: a file is not there or defines no workflow, or two define one name.
    """
    found: dict[str, tuple[WorkflowDefinition[..., Any], Path]] = {}
    for file in files:
        if not file.is_file():
            raise LoomError(f"there is no file {str(file)!r}; a worker takes Python files with workflows in them")
        defined = load(file)
        if not defined:
            raise LoomError(f"{file} defines no workflow; write @workflow above an async function in it")
        for definition in defined:
            known = found.get(definition.normalized_name)
            if known is not None and known[0] is not definition:
                raise LoomError(
                    f"{known[1]} and {file} both define the workflow {definition.name!r}; give one of them another name"
                )
            found[definition.normalized_name] = (definition, file)
    return [definition for definition, _ in found.values()]


def serve(runtime: Runtime, definitions: list[WorkflowDefinition[..., Any]], arguments: argparse.Namespace) -> int:
    """Work until a signal asks for the end."""

    def say(line: str) -> None:
        if not arguments.quiet:
            print(line, flush=True)

    made = Worker(runtime, definitions, at_once=arguments.at_once, grace_s=arguments.grace, say=say)
    runtime.loop.call(runtime.opened, "loom worker", "")
    with signals(made, say):
        say(f"waiting for runs of {', '.join(definition.name for definition in definitions)}")
        wait_for(runtime.loop.submit(made.serve()))
    return 0


@contextmanager
def signals(made: Worker, say: Any) -> Iterator[None]:
    """The first SIGTERM or SIGINT drains the worker, the second ends it at once."""
    asked = 0

    def handle(number: int, frame: object) -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            made.stop()
        else:
            if made.running:
                say(f"finishing what is at work in {made.running} run(s); once more to end now")
            made.drain()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
