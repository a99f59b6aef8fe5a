"""``loom model``: which models there are, fetching a local one, trying one."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from loom_kernel.cli.table import print_json, print_table


def model(arguments: argparse.Namespace) -> int:
    """``loom model list|pull|try``."""
    from loom_kernel.runtime import get_runtime

    return {"list": _list, "pull": _pull, "try": _try}[arguments.what](get_runtime(), arguments)


def _list(runtime: Any, arguments: argparse.Namespace) -> int:
    from loom_kernel.agents import choosing

    rows = choosing.rows(runtime.agents, " ".join(arguments.words), everything=arguments.all)
    if arguments.json:
        print_json([dict(zip(choosing.COLUMNS, row, strict=True)) for row in rows])
    else:
        print_table(choosing.COLUMNS, rows)
    return 0


def _pull(runtime: Any, arguments: argparse.Namespace) -> int:
    from loom_kernel.agents import choosing
    from loom_kernel.errors import SettingsError

    if len(arguments.words) != 1:
        raise SettingsError("loom model pull takes one name; `loom model list` says which there are")
    path = choosing.pull(arguments.words[0], progress(sys.stderr), offline=bool(runtime.settings.get("offline")))
    if arguments.json:
        print_json({"path": path})
    else:
        print(path)
    return 0


def _try(runtime: Any, arguments: argparse.Namespace) -> int:
    from loom_kernel.agents import choosing

    name, prompt = (arguments.words[0] if arguments.words else None), " ".join(arguments.words[1:]) or None
    tried = runtime.loop.call(lambda: choosing.attempt(runtime.agents, name, prompt), "loom model try", "")
    if arguments.json:
        print_json(tried._asdict())
        return 0
    print(tried.text)
    cost = "" if tried.cost_usd is None else f", ${tried.cost_usd:.6f}"
    print(
        f"{tried.model}: {tried.seconds:.1f} s, {tried.input_tokens} tokens in, {tried.output_tokens} out{cost}",
        file=sys.stderr,
    )
    return 0


def progress(stream: Any) -> Any:
    """Shows bytes on their way: one line that changes in a terminal, one for each tenth elsewhere."""
    told = -1

    def say(done: int, total: int, sentence: str) -> None:
        nonlocal told
        percent = done * 100 // total
        if stream.isatty() and os.environ.get("TERM") != "dumb":
            stream.write(f"\r\x1b[K{sentence}: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB")
            if done == total:
                stream.write("\n")
        elif percent // 10 != told // 10 or told < 0:
            told = percent
            stream.write(f"{sentence}: {percent} %\n")
        stream.flush()

    return say
