"""``loom``: one parser, one function a verb, one place where errors become sentences."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module

from loom_kernel._version import __version__
from loom_kernel.errors import LoomError

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


def parser() -> argparse.ArgumentParser:
    """Everything that ``loom`` takes."""
    top = argparse.ArgumentParser(
        prog="loom",
        description="Durable workflows that live in Jupyter.",
        allow_abbrev=False,
        epilog="loom VERB --help says more.",
    )
    top.add_argument("--version", action="version", version=f"loom-kernel {__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=True)
    common = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")
    reading = argparse.ArgumentParser(add_help=False, allow_abbrev=False, parents=[common])
    reading.add_argument("--json", action="store_true", help="print JSON")

    def verb(name: str, help: str, does: str, *, reads: bool = False) -> argparse.ArgumentParser:
        made = verbs.add_parser(
            name,
            help=help,
            description=help[0].upper() + help[1:] + ".",
            allow_abbrev=False,
            parents=[reading if reads else common],
        )
        made.set_defaults(does=does)
        return made

    demo = verb("demo", "execute the tour without a person and print what the journal says about it", "demo:demo")
    demo.add_argument("--notebook", metavar="FILE", help="another notebook than the tour")
    demo.add_argument("--answers", metavar="FILE", help="another file of answers")

    lab = verb("lab", "open JupyterLab where the notebooks are", "lab:lab")
    lab.add_argument("path", nargs="?", help="a notebook or folder to open")
    lab.add_argument("jupyter", nargs=argparse.REMAINDER, metavar="...", help="what else JupyterLab is given")

    run = verb("run", "run a workflow of a Python file or notebook and wait for it", "run:run", reads=True)
    run.add_argument(
        "target", metavar="FILE:NAME", help="the file, and the workflow in it (may be left out if there is one)"
    )
    run.add_argument("inputs", nargs="*", metavar="key=value", help="its inputs, read by their types")
    run.add_argument("--key", help="continue the unfinished run with this key, or start one")
    run.add_argument("--tag", action="append", default=[], help="a label; may be given several times")
    run.add_argument("--fresh", action="store_true", help="start anew, whatever is unfinished")
    run.add_argument("--detach", action="store_true", help="leave it to a worker and print its id")
    run.add_argument("--answers", metavar="FILE", help="a YAML file with answers to its questions")
    run.add_argument("--quiet", action="store_true", help="print nothing but the result")

    runs = verb("runs", "list the newest runs of this project", "runs:runs", reads=True)
    runs.add_argument("--status", action="append", help="only those; may be given several times")
    runs.add_argument("--workflow", help="only runs of that workflow")
    runs.add_argument("--key", help="only runs with that key")
    runs.add_argument("--tag", help="only runs with that label")
    runs.add_argument("--limit", type=_count, default=20, metavar="N", help="at most so many (20)")

    show = verb("show", "show a run: its nodes, its questions, its result", "runs:show", reads=True)
    show.add_argument("id", help="a run's id, or the beginning of it")
    show.add_argument("--at", metavar="TIME", help="as it was then: 14:03, 14:03:20, or '2026-05-01 14:03:20'")

    answer = verb("answer", "answer a run's open question", "runs:answer")
    answer.add_argument("id", help="a run's id, or the beginning of it")
    answer.add_argument(
        "words", nargs="+", metavar="[PROMPT] VALUE", help="the question's name, if several are open, and the answer"
    )

    for name, help in (("stop", "pause a run so that it can be resumed"), ("cancel", "end a run for good")):
        made = verb(name, help, f"runs:{name}")
        made.add_argument("id", help="a run's id, or the beginning of it")
        if name == "cancel":
            made.add_argument("--reason", default="", help="why, for the record")

    resume = verb("resume", "go on with a run here, with the definition in a file", "run:resume", reads=True)
    resume.add_argument("id", help="a run's id, or the beginning of it")
    resume.add_argument("target", metavar="FILE", help="the Python file or notebook that defines its workflow")
    resume.add_argument(
        "--accept", action="store_true", help="run what does not match the recorded history as new work"
    )
    resume.add_argument(
        "--take", action="store_true", help="take it from the worker that has it, although that one lives"
    )
    which = resume.add_mutually_exclusive_group()
    which.add_argument(
        "--edited",
        action="store_true",
        help="run edited steps again, and what depends on them; prints the plan, and goes on with --accept only",
    )
    which.add_argument("--recorded", action="store_true", help="with the body as it was recorded")
    resume.add_argument("--answers", metavar="FILE", help="a YAML file with answers to its questions")
    resume.add_argument("--quiet", action="store_true", help="print nothing but the result")

    fork = verb("fork", "start another run that begins with a run's records", "comparing:fork", reads=True)
    fork.add_argument("id", help="a run's id, or the beginning of it")
    fork.add_argument("target", metavar="FILE", help="the Python file or notebook that defines its workflow")
    fork.add_argument("inputs", nargs="*", metavar="key=value", help="inputs to change, read by their types")
    fork.add_argument(
        "--from", dest="node", metavar="NODE", help="run this node again, and all that came after it; child/name too"
    )
    fork.add_argument(
        "--answer", action="append", default=[], metavar="NAME=VALUE", help="another answer; may be given several times"
    )
    fork.add_argument("--tag", action="append", help="a label instead of the run's; may be given several times")
    fork.add_argument("--answers", metavar="FILE", help="a YAML file with answers to its questions")
    fork.add_argument("--quiet", action="store_true", help="print nothing but the result")

    diff = verb("diff", "show two runs beside each other", "comparing:diff", reads=True)
    diff.add_argument("id", help="a run's id, or the beginning of it")
    diff.add_argument("other", nargs="?", help="another run; the one it was forked from when left out")
    diff.add_argument("--node", help="of this call only: its arguments and results")
    diff.add_argument("--sql", action="store_true", help="print the query that tells the same")

    why = verb("why", "say why a run, or one of its nodes, is as it is", "comparing:why", reads=True)
    why.add_argument("id", help="a run's id, or the beginning of it")
    why.add_argument("node", nargs="?", help="one of its nodes: its name, name#2, id, or child/name")

    replay = verb(
        "replay", "replay recorded runs against the code in a file; no step runs, nothing is written", "replaying:replay",
        reads=True,
    )  # fmt: skip
    replay.add_argument(
        "targets",
        nargs="+",
        metavar="RUN [FILE]",
        help="a run's id or a history file (.jsonl), and the Python file that defines its workflow; with --all FILE...",
    )
    replay.add_argument("--all", action="store_true", help="every run of the journal whose workflow the files define")
    replay.add_argument("--limit", type=_count, metavar="N", help="with --all: the newest N only")
    replay.add_argument("--save", metavar="HISTORY", help="write the run to a history file (.jsonl) too")

    worker = verb("worker", "execute runs that were left to workers, or lost theirs", "worker:worker")
    worker.add_argument("files", nargs="+", metavar="FILE", help="a Python file that defines workflows")
    worker.add_argument("--at-once", type=_count, default=10, metavar="N", help="execute at most so many runs (10)")
    worker.add_argument(
        "--grace", type=float, default=30.0, metavar="SECONDS", help="when told to end, let steps at work finish (30)"
    )
    worker.add_argument("--answers", metavar="FILE", help="a YAML file with answers to its runs' questions")
    worker.add_argument("--quiet", action="store_true", help="print no line per run")

    sql = verb("sql", "ask the journal in SQL", "runs:sql", reads=True)
    sql.add_argument("query", help="one read-only statement; - reads it from stdin")
    sql.add_argument(
        "--csv", action="store_true", help="print comma-separated values, all rows unless --limit is given"
    )
    sql.add_argument("--limit", type=_count, metavar="N", help="at most so many rows (100)")

    model = verb("model", "which models there are; fetch a local one, try one", "model:model", reads=True)
    model.add_argument("what", nargs="?", default="list", choices=("list", "pull", "try"))
    model.add_argument("words", nargs="*", metavar="WORD", help="a part of a name; a local model; a model and a prompt")
    model.add_argument("--all", action="store_true", help="list also models whose key is not here")

    hub = verb("hub", "the process that owns the journal", "hub:hub", reads=True)
    hub.add_argument("what", choices=("status", "stop"))

    export = verb("export", "write every documented view of the journal to a folder", "keeping:export", reads=True)
    export.add_argument("--parquet", required=True, metavar="DIR", help="the folder for a Parquet file a view")

    gc = verb(
        "gc", "remove runs that ended for good long ago, and values that nothing refers to", "keeping:gc", reads=True
    )
    gc.add_argument(
        "--older-than",
        type=_age,
        metavar="AGE",
        help="runs not touched for so long: 30d, 12h, 90min; none when left out",
    )
    gc.add_argument("--dry-run", action="store_true", help="show what would go, remove nothing")
    gc.add_argument("--yes", action="store_true", help="do not ask")

    rm = verb("rm", "remove runs and everything recorded of them", "keeping:rm")
    rm.add_argument("ids", nargs="+", metavar="ID", help="a run's id, or the beginning of it")

    verb("doctor", "what this installation, its journal and its settings are like", "doctor:doctor", reads=True)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status. Without ``argv`` the process's own arguments count."""
    arguments = parser().parse_args(argv)
    module, _, function = arguments.does.partition(":")
    try:
        # Each verb's module is loaded for that verb alone: `loom runs` waits for no notebook machinery.
        status: int = getattr(import_module(f"loom_kernel.cli.{module}"), function)(arguments)
        return status
    except BrokenPipeError:
        # `loom runs | head` has read enough; Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_ERROR
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except Exception as error:
        if arguments.debug:
            traceback.print_exc()
        elif isinstance(error, LoomError):
            print(f"loom: {error}", file=sys.stderr)
        else:
            print(f"loom: {type(error).__name__}: {error} (--debug shows where)", file=sys.stderr)
        return EXIT_ERROR
    finally:
        runtime = sys.modules.get("loom_kernel.runtime")
        if runtime is not None:
            runtime.close()


def _age(text: str) -> float:
    from loom_kernel.cli.keeping import age

    return age(text)


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
