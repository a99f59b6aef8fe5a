"""A run's state in a JSON file, for programs that read files: written anew after each change, never half."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from loom_kernel.views.run_snapshot import bounded
from loom_kernel.views.store import Store, StoreSnapshot

FOLDER = "status"


def keep(path: Any, run_id: str, home: Path) -> Store:
    """A store that writes what it shows into the file. What cannot be written is logged by the store.

    Args:
        path: the file; True is one in the ``.loom`` folder, named after the run.
    """
    file = home / FOLDER / f"{run_id}.json" if path is True else Path(os.fspath(path)).expanduser().absolute()

    def write(snapshot: StoreSnapshot) -> None:
        if path is True:
            file.parent.mkdir(exist_ok=True)
        told = {"runs": [bounded(run) for run in snapshot["runs"]], "version": snapshot["version"]}
        beside = file.with_name(f".{file.name}.{os.getpid()}")
        beside.write_bytes(msgspec.json.format(msgspec.json.encode(told), indent=2))
        beside.replace(file)

    store = Store()
    store.subscribe(write)
    return store
