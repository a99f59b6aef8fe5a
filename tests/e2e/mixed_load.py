"""Mixed load: two scripts, two workers and the command line on one journal, while the hub and all of them are killed.

    python -m tests.e2e.mixed_load --seconds 600 --seed 1

Prints figures as JSON and ends with status 1 when an invariant does not hold; ``test_mixed_load`` runs it for a short
while. What must hold at the end:

* every start that was acknowledged is there, and every run is at rest with the result that its inputs ask for;
* each run's events are numbered without a gap, every key is there once, and whatever an execution began carries the
  epoch of the lease that was newest at that place: nobody wrote past a fence;
* a finished step is never begun again; a step is begun at most once an execution;
* of several answers to a question one was taken, and it is the one that was acknowledged;
* a follower through all of it got every event once and in order;
* nobody holds a live lease, no process of ours printed a traceback, and ``loom doctor`` finds nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

FLOWS = """
import asyncio, os, time
from loom_kernel import Context, current_step, step, workflow

def begin(i):
    line = f"{current_step().run_id} {i} {os.getpid()} {time.time():.6f}\\n"
    fd = os.open("effects.txt", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.write(fd, line.encode())
    os.close(fd)

@step
async def quick(i: int) -> int:
    begin(i)
    return i

@step
def slow(i: int, seconds: float) -> int:
    begin(i)
    time.sleep(seconds)
    return i

@workflow
async def line(ctx: Context, n: int, seed: int) -> int:
    total = seed
    for i in range(n):
        total += await (slow(i, 0.02) if i % 3 == 0 else quick(i))
    return total

@workflow
async def fan(ctx: Context, n: int, seed: int) -> int:
    first = await asyncio.gather(*(quick(i) for i in range(n)))
    second = await asyncio.gather(*(slow(n + i, 0.01) for i in first[:4]))
    return seed + sum(first) + sum(second)

@workflow
async def family(ctx: Context, n: int, seed: int) -> int:
    child = await ctx.workflow(line, inputs={"n": n, "seed": seed})
    return child.result + await quick(100)

@workflow
async def napping(ctx: Context, n: int, seed: int) -> int:
    total = seed + await quick(0)
    await ctx.sleep("nap", 0.4)
    return total + await quick(n)

@workflow
async def asking(ctx: Context, n: int, seed: int) -> int:
    total = seed + await quick(n)
    return total if await ctx.ui.confirm("Keep it?", name="keep") else -total
"""

DRIVER = '''
import asyncio, json, os, random, signal, sys, time
import flows
from loom_kernel import configure
from loom_kernel.errors import AnswerError, LoomError, ResumeError, SqlError, StorageUnavailableError
from loom_kernel.runtime import get_runtime

NAME, SEED = sys.argv[1], int(sys.argv[2])
LEDGER = os.open(f"ledger-{NAME}.jsonl", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
chance, ending, asking_sql = random.Random(SEED), asyncio.Event(), asyncio.Lock()

def note(**fact):
    os.write(LEDGER, (json.dumps({"by": NAME, "at": time.time(), **fact}) + "\\n").encode())

async def start(name, **options):
    n, seed = chance.randint(2, 8), chance.randint(1, 1_000_000)
    began = time.monotonic()
    run = await getattr(flows, name).options(**options).start_async(n=n, seed=seed)
    note(what="start", run=run.id, workflow=name, n=n, seed=seed, took=time.monotonic() - began, **options)
    return run

async def settle(run):
    result = await run.settled()
    note(what="settled", run=run.id, status=result.status, result=result.result)
    return result

async def whole():
    await settle(await start(chance.choice(["line", "line", "fan", "family", "napping"])))

async def left():
    await settle(await start(chance.choice(["line", "fan", "family", "napping", "asking"]), worker=True))

async def asked():
    await settle(await start("asking"))

async def stopped():
    run = await start("line")
    await asyncio.sleep(chance.random() * 0.1)
    await run.stop_async(by=NAME)
    result = await settle(run)
    if result.status == "paused":
        await run.resume_async()
        await settle(run)

async def cancelled():
    run = await start("napping", worker=chance.random() < 0.5)
    await run.cancel_async(by=NAME, reason="load")
    await settle(run)

async def taken():
    """Take a run from a living worker, as a person does."""
    found = await get_runtime().runs_async(status=("running", "awaiting_input"), limit=30)
    others = [r for r, s in zip(found, found.summaries) if s.header.for_worker and not r.live]
    if not others:
        return await asyncio.sleep(0.2)
    run = chance.choice(others)
    try:
        await run.resume_async(take=True)
    except ResumeError:
        return  # it ended, or went elsewhere, meanwhile
    note(what="taken", run=run.id)
    await settle(run)

async def counted():
    try:
        async with asking_sql:  # relations of one process share DuckDB's default connection
            [(events,)] = (await get_runtime().sql_async("select count(*) from events")).fetchall()
    except (SqlError, StorageUnavailableError) as error:
        if "hub" not in str(error) and "stopped" not in str(error):
            raise
        return
    note(what="counted", events=events)

async def answering():
    """Answers whatever is open, whoever executes it; the other script does the same."""
    while True:
        await asyncio.sleep(0.3)
        found = await get_runtime().runs_async(status=("awaiting_input",), limit=50)
        for run in found:
            for prompt in await run.prompts_async():
                value = chance.random() < 0.5
                try:
                    await run.answer_async(value, prompt=prompt.node_id, by=f"{NAME}-{value}")
                except AnswerError:
                    continue
                note(what="answered", run=run.id, prompt=prompt.node_id, value=value)

OPS = [whole] * 8 + [left] * 4 + [asked, stopped, cancelled, taken, taken, counted]

async def busy():
    while not ending.is_set():
        await chance.choice(OPS)()

async def main():
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, ending.set)
    print("ready", flush=True)
    answers = asyncio.create_task(answering())
    await asyncio.gather(*(busy() for _ in range(4)))
    answers.cancel()

asyncio.run(main())
'''

FOLLOWER = """
import asyncio, os, sys
from loom_kernel.journal.hub.client import HubJournal

async def main():
    out = os.open("followed.txt", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    async with await HubJournal.open(os.environ["LOOM_HOME"]) as journal:
        async for notices in journal.subscribe(0):
            os.write(out, b"".join(b"%d\\n" % notice.global_seq for notice in notices))

asyncio.run(main())
"""

CLI = (
    ["runs", "--json"],
    ["runs", "--status", "running", "--json"],
    ["sql", "--json", "select status, count(*) as n from runs group by status"],
    ["sql", "--json", "select worker, count(*) as n from attempts group by worker order by n desc limit 5"],
    ["hub", "status", "--json"],
)


class Load:
    """One load: its folder, its processes, what was done to them."""

    def __init__(self, folder: Path, seed: int, pace: float = 1.0) -> None:
        self.folder, self.pace = folder, pace
        self.chance = random.Random(seed)
        self.counts: collections.Counter[str] = collections.Counter()
        self.problems: list[str] = []
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.said: dict[str, int] = {}
        self.clis: list[tuple[list[str], subprocess.Popen[str]]] = []
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("LOOM_")},
            "LOOM_HOME": str(folder / ".loom"),
            "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        }
        (folder / "flows.py").write_text(FLOWS)
        (folder / "driver.py").write_text(DRIVER)
        (folder / "follower.py").write_text(FOLLOWER)

    def note(self, text: str) -> None:
        """What was done and when, for whoever looks for the reason of a problem."""
        with (self.folder / "done.log").open("a") as log:
            log.write(f"{time.strftime('%H:%M:%S')} {text}\n")

    # ------------------------------------------------------------ processes

    def spawn(self, name: str, *arguments: str) -> None:
        """Start one of ours; what it says goes to a file of its name."""
        with (self.folder / f"{name}.out").open("ab") as out:
            self.said[name] = out.tell()
            self.processes[name] = subprocess.Popen(
                [sys.executable, *arguments], cwd=self.folder, env=self.env, stdout=out, stderr=out
            )
        self.note(f"{name} is process {self.processes[name].pid}")

    def driver(self, name: str) -> None:
        self.spawn(name, "driver.py", name, str(self.chance.randrange(1 << 30)))

    def worker(self, name: str) -> None:
        self.spawn(name, "-m", "loom_kernel.cli.main", "worker", "flows.py", "--grace", "5")

    def end(self, name: str, number: int, patience_s: float = 60.0) -> None:
        """Signal it and wait; one that was asked to end in good order has to."""
        process = self.processes[name]
        self.note(f"signal {number} to {name}")
        process.send_signal(number)
        try:
            status = process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.problems.append(f"{name} did not end within {patience_s:g} s of signal {number}")
            process.kill()
            process.wait()
            return
        if number != signal.SIGKILL and status not in (0, -number if name == "follower" else 0):
            self.problems.append(f"{name} ended with status {status}")

    def ready(self, name: str) -> bool:
        """Whether the process that runs now has said so; before that, SIGTERM is its death."""
        said = (self.folder / f"{name}.out").read_bytes()[self.said.get(name, 0) :]
        return b"waiting for runs" in said or b"ready" in said

    def kill_hub(self) -> None:
        try:
            pid = int(json.loads((self.folder / ".loom" / "hub.json").read_text())["pid"])
            if b"loom_kernel.journal.hub" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
                self.note(f"killed the hub, process {pid}")
                self.counts["hub kills"] += 1
        except (OSError, ValueError, KeyError):
            pass  # it is being started

    def cli(self, arguments: list[str]) -> None:
        """One command beside everything else; looked at when it has ended."""
        self.counts["commands"] += 1
        process = subprocess.Popen(
            [sys.executable, "-m", "loom_kernel.cli.main", *arguments],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.clis.append((arguments, process))

    def reap(self, wait: bool = False) -> None:
        for arguments, process in list(self.clis):
            if process.poll() is None and not wait:
                continue
            out, err = process.communicate(timeout=60)
            self.clis.remove((arguments, process))
            if process.returncode == 0 and (not out or json.loads(out) is not None):
                continue
            if "hub restarted" in err or "already" in err or "asks nothing" in err:
                self.counts["commands told why not"] += 1
            else:
                self.problems.append(f"loom {' '.join(arguments)}: status {process.returncode}: {err[-500:]}")

    # ------------------------------------------------------------ the load

    def run(self, seconds: float) -> None:
        """Everything at once for so long, then until all is at rest."""
        self.spawn("follower", "follower.py")
        for name in ("left", "right"):
            self.driver(name)
        for name in ("one", "two"):
            self.worker(name)
        end = time.monotonic() + seconds
        events = {
            self.kill_hub: (1.5, 4.0),
            self.hurt_worker: (2.0, 5.0),
            self.hurt_driver: (10.0, 20.0),
            self.some_command: (1.0, 2.5),
        }
        due = {what: time.monotonic() + self.chance.uniform(2.0, 2.0 + every[1]) for what, every in events.items()}
        while time.monotonic() < end:
            time.sleep(0.05)
            self.look()
            for what, every in events.items():
                if time.monotonic() >= due[what]:
                    what()
                    due[what] = time.monotonic() + self.chance.uniform(*every) / self.pace
            self.reap()
        self.settle()

    def look(self) -> None:
        """Nobody ends without having been told to."""
        for name, process in self.processes.items():
            if process.poll() is not None:
                self.problems.append(f"{name} ended by itself with status {process.returncode}")
                self.driver(name) if name in ("left", "right") else self.worker(name)
                if len(self.problems) > 20:
                    raise SystemExit("\n".join(self.problems))

    def hurt_worker(self) -> None:
        name = self.chance.choice(["one", "two"])
        how = self.chance.choice(["kill", "kill", "drain", "drain", "freeze"])
        self.counts[f"workers: {how}"] += 1
        if how == "freeze":
            self.note(f"{name} is frozen")
            os.kill(self.processes[name].pid, signal.SIGSTOP)
            time.sleep(self.chance.uniform(0.2, 1.0))
            os.kill(self.processes[name].pid, signal.SIGCONT)
            return
        if how == "drain" and not self.ready(name):
            how = "kill"  # what is still being started has nothing to end in good order
        self.end(name, signal.SIGKILL if how == "kill" else signal.SIGTERM, 20.0)
        self.worker(name)

    def hurt_driver(self) -> None:
        name = self.chance.choice(["left", "right"])
        self.counts["scripts killed"] += 1
        self.end(name, signal.SIGKILL)
        self.driver(name)

    def some_command(self) -> None:
        self.cli(list(self.chance.choice(CLI)))

    def settle(self) -> None:
        """No more kills: scripts finish, workers execute what is left."""
        end = time.monotonic() + 90
        self.end_in_good_order("left", "right", by=end)
        self.reap(wait=True)
        end = time.monotonic() + 90
        while rows := self.unfinished():
            if time.monotonic() > end:
                self.problems.append(f"not at rest after 90 s: {rows[:5]}")
                break
            for row in rows:
                if row["openPrompts"]:
                    self.cli(["answer", row["runId"], "yes"])
            time.sleep(0.5)
            self.reap(wait=True)
        self.end_in_good_order("one", "two", by=end)
        time.sleep(0.5)
        self.end("follower", signal.SIGTERM)

    def end_in_good_order(self, *names: str, by: float) -> None:
        for name in names:
            while not self.ready(name) and time.monotonic() < by:
                time.sleep(0.1)
            self.end(name, signal.SIGTERM)

    def unfinished(self) -> list[dict[str, Any]]:
        command = [sys.executable, "-m", "loom_kernel.cli.main", "runs", "--json", "--limit", "100000"]
        for status in ("pending", "running", "awaiting_input", "interrupted"):
            command += ["--status", status]
        done = subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True, text=True, check=True)
        rows: list[dict[str, Any]] = json.loads(done.stdout)
        return rows

    # ------------------------------------------------------------ what must hold

    def check(self) -> dict[str, Any]:
        """Read everything back; figures, with problems added to ``problems``."""
        facts = [
            json.loads(line) for path in self.folder.glob("ledger-*.jsonl") for line in path.read_text().splitlines()
        ]
        runs, histories = asyncio.run(self.read())
        self.check_histories(histories)
        self.check_results(facts, runs)
        self.check_effects(histories, {fact["run"] for fact in facts if fact["what"] == "taken"})
        self.check_answers(facts, histories)
        self.check_follower(histories)
        self.check_words()
        starts = [fact["took"] for fact in facts if fact["what"] == "start"]
        everything = sum(map(len, histories.values()))
        claims = sum(
            entry.type == "lease.taken" and entry.event.kind == "worker" for h in histories.values() for entry in h
        )
        return {
            "runs": sum(run.header.parent_run_id is None for run in runs.values()),
            "child runs": sum(run.header.parent_run_id is not None for run in runs.values()),
            "statuses": dict(collections.Counter(run.status for run in runs.values())),
            "events": everything,
            "claims by workers": claims,
            "taken from a living holder": sum(
                entry.type == "lease.taken" and entry.event.after == "taken" for h in histories.values() for entry in h
            ),
            "after a holder's death": sum(
                entry.type == "lease.taken" and entry.event.after == "expired"
                for h in histories.values()
                for entry in h
            ),
            "executions beyond the first": sum(
                entry.type == "run.started" and entry.event.resumed for h in histories.values() for entry in h
            ),
            "answers acknowledged": sum(fact["what"] == "answered" for fact in facts),
            "start, seconds": {
                "p50": round(statistics.median(starts), 4),
                "p99": round(statistics.quantiles(starts, n=100)[98], 3),
                "worst": round(max(starts), 3),
            },
            **self.counts,
            "problems": self.problems,
        }

    async def read(self) -> tuple[dict[str, Any], dict[str, list[Any]]]:
        from loom_kernel.journal.hub.client import HubJournal

        async with await HubJournal.open(self.folder / ".loom") as journal:
            runs = {run.run_id: run for run in await journal.list_runs(roots_only=False)}
            histories = {run_id: [entry async for entry in journal.read(run_id)] for run_id in runs}
            for run_id in runs:
                state = await journal.lease_state(
                    run_id
                )  # a worker that died before its first word leaves an expired one
                self.hold(state is None or state.expired, f"{run_id}: its lease is still held")
        return runs, histories

    def check_histories(self, histories: dict[str, list[Any]]) -> None:
        for run_id, entries in histories.items():
            self.hold([e.seq for e in entries] == list(range(1, len(entries) + 1)), f"{run_id}: a gap in its events")
            keys = [e.key for e in entries if e.key]
            self.hold(len(keys) == len(set(keys)), f"{run_id}: a key is there twice")
            order = [e.global_seq for e in entries]
            self.hold(order == sorted(set(order)), f"{run_id}: its events are out of order")
            epoch = 0
            for entry in entries:
                if entry.type == "lease.taken":
                    self.hold(entry.event.epoch == epoch + 1, f"{run_id}: epoch {entry.event.epoch} after {epoch}")
                    epoch = entry.event.epoch
                elif entry.key and (
                    found := re.search(r":start:(\d+):\d+$|^(?:started|ended|paused):(\d+)$", entry.key)
                ):
                    wrote = int(found[1] or found[2])
                    self.hold(wrote == epoch, f"{run_id}: {entry.key} was written in epoch {epoch}")

    def check_results(self, facts: list[dict[str, Any]], runs: dict[str, Any]) -> None:
        for fact in facts:
            if fact["what"] == "start":
                run = runs.get(fact["run"])
                self.hold(run is not None, f"{fact['run']} was acknowledged and is not there")
                if run is not None:
                    given = json.loads(bytes(run.header.inputs))
                    self.hold(given == {"n": fact["n"], "seed": fact["seed"]}, f"{fact['run']}: other inputs {given}")
        allowed = {"completed", "cancelled", "paused"}
        for run_id, run in runs.items():
            self.hold(run.status in allowed, f"{run_id} of {run.workflow} is {run.status} ({run.reason})")
            self.hold(run.reason != "crashes" or self.counts["workers: kill"] > 2, f"{run_id} was set aside")
        started = {fact["run"]: fact for fact in facts if fact["what"] == "start"}
        for fact in facts:
            if fact["what"] == "settled" and fact["status"] == "completed" and fact["run"] in started:
                begun = started[fact["run"]]
                wanted = expected(begun["workflow"], begun["n"], begun["seed"])
                self.hold(fact["result"] in wanted, f"{fact['run']}: {fact['result']}, expected {wanted}")

    def check_effects(self, histories: dict[str, list[Any]], taken: set[str]) -> None:
        begun: dict[tuple[str, int], list[float]] = collections.defaultdict(list)
        for line in (self.folder / "effects.txt").read_text().splitlines():
            run_id, i, _, at = line.split()
            begun[run_id, int(i)].append(float(at))
        self.counts["steps begun"] = sum(map(len, begun.values()))
        done: dict[str, list[tuple[int, float]]] = collections.defaultdict(list)
        for run_id, entries in histories.items():
            for entry in entries:
                if entry.type == "node.completed" and (entry.node_id or "").startswith("step:"):
                    done[run_id].append((json.loads(entry.payload)["result"], entry.created_at / 1e6))
        self.counts["steps finished"] = sum(map(len, done.values()))
        again = 0
        for run_id, finished in done.items():
            executions = sum(entry.type == "lease.taken" for entry in histories[run_id])
            parent = histories[run_id][0].event.parent_run_id
            for i, at in finished:
                times = begun.get((run_id, i), [])
                again += len(times) - 1
                self.hold(bool(times), f"{run_id}: step {i} is finished and never began")
                self.hold(
                    len(times) <= executions, f"{run_id}: step {i} began {len(times)} times in {executions} executions"
                )
                # A worker that lost its run finds out at its next write: a step of it may begin in that moment.
                late = [t for t in times if t > at + (1.0 if taken & {run_id, parent} else 0.0)]
                self.hold(not late, f"{run_id}: step {i} began again after it was finished")
        self.counts["steps begun again after a death"] = again

    def check_answers(self, facts: list[dict[str, Any]], histories: dict[str, list[Any]]) -> None:
        kept = {
            (run_id, entry.node_id): json.loads(entry.payload)
            for run_id, entries in histories.items()
            for entry in entries
            if entry.type == "prompt.answered"
        }
        said: dict[tuple[str, str], set[bool]] = collections.defaultdict(set)
        for fact in facts:
            if fact["what"] == "answered":
                said[fact["run"], fact["prompt"]].add(fact["value"])
        for key, values in said.items():
            self.hold(key in kept, f"{key}: an acknowledged answer is not there")
            self.hold(
                values == {kept.get(key, {}).get("value")},
                f"{key}: {values} were acknowledged, {kept.get(key)} is kept",
            )

    def check_follower(self, histories: dict[str, list[Any]]) -> None:
        followed = [int(line) for line in (self.folder / "followed.txt").read_text().split()]
        everything = sorted(entry.global_seq for entries in histories.values() for entry in entries)
        self.hold(followed == sorted(set(followed)), "the follower got something twice or out of order")
        missing = set(everything) - set(followed)
        self.hold(not missing, f"the follower missed {len(missing)} events, first {sorted(missing)[:3]}")
        self.hold(not set(followed) - set(everything), "the follower got events that are not there")

    def check_words(self) -> None:
        for path in self.folder.glob("*.out"):
            text = path.read_text(errors="replace")
            if "Traceback" in text:
                self.problems.append(f"{path.name}: {text[text.index('Traceback') :][:1500]}")
        done = subprocess.run(
            [sys.executable, "-m", "loom_kernel.cli.main", "doctor", "--json"],
            cwd=self.folder, env=self.env, capture_output=True, text=True, check=False,
        )  # fmt: skip
        self.hold(done.returncode == 0, f"loom doctor: {done.stdout[-500:]} {done.stderr[-500:]}")

    def hold(self, holds: bool, problem: str) -> None:
        if not holds and len(self.problems) < 50:
            self.problems.append(problem)

    def close(self) -> None:
        """Leave nothing behind."""
        for process in [*self.processes.values(), *(process for _, process in self.clis)]:
            process.kill()
            process.wait()
        subprocess.run(
            [sys.executable, "-m", "loom_kernel.cli.main", "hub", "stop"],
            cwd=self.folder, env=self.env, capture_output=True, timeout=60, check=False,
        )  # fmt: skip


def expected(workflow: str, n: int, seed: int) -> set[int]:
    """What a run of these inputs may come to."""
    line = seed + sum(range(n))
    results: dict[str, Callable[[], set[int]]] = {
        "line": lambda: {line},
        "fan": lambda: {line + sum(n + i for i in range(min(4, n)))},
        "family": lambda: {line + 100},
        "napping": lambda: {seed + n},
        "asking": lambda: {seed + n, -(seed + n)},
    }
    return results[workflow]()


def load(folder: Path, seconds: float, seed: int, pace: float = 1.0) -> dict[str, Any]:
    """One load in ``folder``; its figures and problems. ``pace``: how often is killed, 1 for every three seconds."""
    made = Load(folder, seed, pace)
    began = time.monotonic()
    try:
        made.run(seconds)
        figures = made.check()
        return {"seed": seed, "seconds": seconds, "seconds in all": round(time.monotonic() - began, 1), **figures}
    finally:
        made.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--pace", type=float, default=1.0, help="how often is killed; 0.5 suits a busy machine")
    parser.add_argument("--folder", type=Path, help="where to keep it; a temporary folder otherwise")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(f"told to end by signal {number}"))
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="loom-load-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {arguments.seed} in {folder}", file=sys.stderr, flush=True)
    figures = load(folder, arguments.seconds, arguments.seed, arguments.pace)
    print(json.dumps(figures, indent=2, ensure_ascii=False))
    return 1 if figures["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
