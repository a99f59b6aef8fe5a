"""Steps that another process can import."""

from __future__ import annotations

import os
import time

from loom_kernel.authoring.step import step


@step(executor="process")
def pid_and_sum(numbers: list[int]) -> list[int]:
    print("adding in a process")
    return [os.getpid(), sum(numbers)]


@step(executor="process", timeout_s=0.3)
def hang() -> None:
    time.sleep(60)


@step(executor="process")
def divide(a: int, b: int) -> float:
    return a / b
