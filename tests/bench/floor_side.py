"""The floor: append a hundred bytes to a file and wait until they are on the disk."""

from __future__ import annotations

import os
import time
from pathlib import Path

from workload import N, main


def sequential(folder: Path) -> dict[str, float]:
    """N appends, each followed by ``fdatasync``."""
    descriptor = os.open(folder / "floor.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    sync = getattr(os, "fdatasync", os.fsync)
    start = time.perf_counter()
    for _ in range(N):
        os.write(descriptor, b"x" * 100)
        sync(descriptor)
    took = time.perf_counter() - start
    os.close(descriptor)
    return {"sequential": took}


if __name__ == "__main__":
    main({"steps": sequential})
