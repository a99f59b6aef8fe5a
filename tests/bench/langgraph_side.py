"""LangGraph with SqliteSaver and ``durability="sync"``: every step's checkpoint is written before the next step."""

from __future__ import annotations

import operator
import sqlite3
import time
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt
from workload import N, die, main

CONFIG: dict[str, Any] = {"configurable": {"thread_id": "t"}, "recursion_limit": N + 50}


def saver(folder: Path, name: str) -> SqliteSaver:
    checkpoints = SqliteSaver(sqlite3.connect(folder / name, check_same_thread=False))
    checkpoints.setup()
    return checkpoints


class Chain(TypedDict):
    x: int


class Fan(TypedDict):
    out: Annotated[list[int], operator.add]


def sequential(folder: Path) -> float:
    graph = StateGraph(Chain)
    graph.add_node("add", lambda state: {"x": state["x"] + 1})
    graph.add_edge(START, "add")
    graph.add_conditional_edges("add", lambda state: END if state["x"] >= N else "add", {"add": "add", END: END})
    compiled = graph.compile(checkpointer=saver(folder, "chain.sqlite"))
    start = time.perf_counter()
    assert compiled.invoke({"x": 0}, CONFIG, durability="sync")["x"] == N
    return time.perf_counter() - start


def fan(folder: Path) -> float:
    graph = StateGraph(Fan)
    graph.add_node("add", lambda state: {"out": [state["i"] + 1]})
    graph.add_conditional_edges(START, lambda state: [Send("add", {"i": i}) for i in range(N)], ["add"])
    graph.add_edge("add", END)
    compiled = graph.compile(checkpointer=saver(folder, "fan.sqlite"))
    start = time.perf_counter()
    assert sum(compiled.invoke({"out": []}, CONFIG, durability="sync")["out"]) == N * (N + 1) // 2
    return time.perf_counter() - start


def recorded(folder: Path) -> Any:
    """N tasks, then a question: the functional API, which replays its body as ours does."""

    @task
    def add(x: int) -> int:
        return x + 1

    @entrypoint(checkpointer=saver(folder, "recorded.sqlite"))
    def chain(n: int) -> int:
        x = 0
        for _ in range(n):
            x = add(x).result()
        interrupt("go on?")
        return x

    return chain


def steps(folder: Path) -> dict[str, float]:
    return {"sequential": sequential(folder), "fan": fan(folder)}


def record(folder: Path) -> dict[str, float]:
    recorded(folder).invoke(N, CONFIG, durability="sync")
    die()
    return {}


def recover(folder: Path) -> dict[str, float]:
    start = time.perf_counter()
    assert recorded(folder).invoke(Command(resume="yes"), CONFIG, durability="sync") == N
    return {"recovery": time.perf_counter() - start}


if __name__ == "__main__":
    main({"steps": steps, "record": record, "recover": recover})
