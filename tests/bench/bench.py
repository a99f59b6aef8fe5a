"""``make bench``: how long durable steps take, beside bare ``fdatasync``, DBOS and LangGraph, on this machine, now.

Every figure is the smallest of several rounds; in a round every side gets its turn, so that a busy minute hits all.
A program, not a test: times depend on the machine, and no test may. ``bench.py [ROUNDS]``, five by default.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from workload import N

HERE = Path(__file__).parent
Seconds = dict[str, float]
PEERS = {"dbos": "DBOS, SQLite", "langgraph": "LangGraph, sync"}
PACKAGES = {"dbos": ["dbos"], "langgraph": ["langgraph", "langgraph.checkpoint.sqlite"]}


def run(side: str, case: str, folder: Path, *, dies: bool = False) -> Seconds:
    """One case of one side, in a process of its own.

    Raises:
        RuntimeError: it failed; the message holds what it wrote.
    """
    command = [sys.executable, str(HERE / f"{side}_side.py"), case, str(folder)]
    env = {k: v for k, v in os.environ.items() if not k.startswith("LOOM_") or k == "LOOM_BENCH_STEPS"}
    env |= {"LOOM_HOME": str(folder / ".loom"), "PYTHONPATH": str(HERE.parents[1])}
    done = subprocess.run(command, env=env, cwd=HERE, capture_output=True, text=True, timeout=300, check=False)
    if dies and done.returncode == -signal.SIGKILL:
        return {}
    if done.returncode:
        raise RuntimeError(f"{side} {case} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def kill_hub(folder: Path) -> None:
    """End the hub of the journal in ``folder``, without warning."""
    try:
        os.kill(json.loads((folder / ".loom" / "hub.json").read_text())["pid"], signal.SIGKILL)
    except (OSError, ValueError):
        pass


def round_of(side: str, folder: Path) -> Seconds:
    """Everything that one side measures, once."""
    try:
        if side == "floor":
            return run("floor", "steps", folder)
        if side == "loading":
            return run("loading", "load", folder)
        seconds = run(side, "steps", folder)
        run(side, "record", folder, dies=True)
        seconds |= run(side, "recover", folder)
        if side == "loom":
            seconds |= run("loom", "busy", folder)
            (folder / "crashed").unlink()
            run(side, "record", folder, dies=True)
            kill_hub(folder)
            seconds["recovery_hub_start"] = run(side, "recover", folder)["recovery"]
        return seconds
    finally:
        kill_hub(folder)
        shutil.rmtree(folder, ignore_errors=True)


def measure(rounds: int) -> dict[str, Seconds]:
    """The smallest figure of every side and name."""
    # Beside the project, not in a temporary folder: that may be memory, where a sync costs nothing.
    work = HERE.parent / "artifacts" / "bench"
    sides = ["floor", "loom", "loading", *(s for s in PEERS if all(find_spec(p.split(".")[0]) for p in PACKAGES[s]))]
    best: dict[str, Seconds] = {}
    for number in range(1, rounds + 1):
        for side in sides:
            print(f"\rround {number} of {rounds}: {side:<10}", end="", file=sys.stderr, flush=True)
            for name, seconds in round_of(side, work / side).items():
                known = best.setdefault(side, {})
                known[name] = min(seconds, known.get(name, seconds))
    print("\r" + " " * 40 + "\r", end="", file=sys.stderr)
    return best


def report(best: dict[str, Seconds]) -> list[str]:
    """The table: what was measured, ours, the floor and the peers, how many times ours they take, the aim."""
    floor, loom, loading = best["floor"]["sequential"] / N, best["loom"], best["loading"]
    peers = [side for side in PEERS if side in best]
    head = ["", "loom-kernel", *(PEERS[p] for p in peers), "aim", ""]

    def row(title: str, ours: float, name: str, aim: float | None, scale: float, unit: str, digits: int) -> list[str]:
        cells = [title, f"{ours * scale:.{digits}f} {unit}"]
        ahead = True
        for peer in peers:
            theirs = best[peer].get(name)
            cells.append("-" if theirs is None else f"{theirs * scale:.{digits}f} {unit}  ({theirs / ours:.1f}x)")
            ahead = ahead and (theirs is None or aim is None or ours < theirs)
        if aim is None:
            return [*cells, "", ""]
        return [*cells, f"{aim * scale:.{digits}f} {unit}", "ok" if ours <= aim and ahead else "MISSED"]

    per_step, step_aim = 1000 / N, max(3 * floor, 0.0005) * N
    rows = [
        row("async step, one after the other", loom["sequential"], "sequential", step_aim, per_step, "ms", 2),
        row("  the median one", loom["sequential_median"], "", step_aim, per_step, "ms", 2),
        row("sync step, one after the other", loom["sequential_sync"], "sequential_sync", None, per_step, "ms", 2),
        row("async step, kernel computing", loom["sequential_busy"], "", 0.003 * N, per_step, "ms", 2),
        row(f"fan-out of {N:,}", loom["fan"], "fan", 0.1, 1, "s", 3),
        row(f"{N:,} children of one step", loom["children"], "", 0.3, 1, "s", 3),
        row(f"recovery of {N:,}, live hub", loom["recovery"], "recovery", 0.1, 1, "s", 3),
        row(f"recovery of {N:,}, hub start", loom["recovery_hub_start"], "recovery", None, 1, "s", 3),
    ]
    widths = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head))]
    table = ["  ".join(f"{cell:<{w}}" for cell, w in zip(r, widths, strict=True)).rstrip() for r in [head, *rows]]
    loading_ratio = loading["load_ext"] / loading["bare"]
    client, hub = loom["client_cpu"] * per_step, loom["hub_cpu"] * per_step
    return [
        *table,
        "",
        f"bare fdatasync: {floor * 1000:.3f} ms; an async step takes {loom['sequential'] / N / floor:.1f} times that",
        f"processor time of an async step: {client:.2f} ms here, {hub:.2f} ms in the hub; aim 0.40 ms together  "
        + ("ok" if client + hub <= 0.4 else "MISSED"),
        f"IPython starts in {loading['bare']:.3f} s, with %load_ext loom_kernel in {loading['load_ext']:.3f} s: "
        + f"{loading_ratio:.2f}x, aim 1.35x  {'ok' if loading_ratio <= 1.35 else 'MISSED'}",
    ]


def installed(package: str) -> str:
    """A package with its version."""
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"{package} is missing: pip install 'loom-kernel[bench]'"


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    print(f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; ", end="")
    print(f"Python {platform.python_version()}, {installed('duckdb')}, {installed('ipython')}")
    print("Peers: " + ", ".join(installed(p) for p in ("dbos", "langgraph", "langgraph-checkpoint-sqlite")))
    print(f"{N:,} steps, the smallest of {rounds} rounds; (x) is how many times ours a peer takes\n", flush=True)
    print(*report(measure(rounds)), sep="\n")


if __name__ == "__main__":
    main()
