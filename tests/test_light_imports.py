"""Loading is light: heavy libraries come when they are used, and the hub never sees a notebook's."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = [
    "dask",
    "httpx",
    "jupyter_server",
    "jupyterlab",
    "litellm",
    "matplotlib",
    "networkx",
    "pandas",
    "polars",
    "pyarrow",
]


def loaded_after(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter has after executing ``code``."""
    program = f"{code}\nimport sys\nprint('\\n'.join(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_importing_the_package_loads_neither_ipython_nor_storage() -> None:
    """``import loom_kernel`` is for scripts and type checkers too."""
    assert loaded_after("import loom_kernel").isdisjoint([*HEAVY, "IPython", "anywidget", "duckdb", "numpy", "tornado"])


def test_loading_the_extension_loads_nothing_heavy() -> None:
    """``%load_ext loom_kernel`` feels instant."""
    code = "from IPython.core.interactiveshell import InteractiveShell as S\nS.instance().run_line_magic('load_ext', 'loom_kernel')"
    assert loaded_after(code).isdisjoint([*HEAVY, "duckdb", "numpy"])


@pytest.mark.parametrize("module", ["loom_kernel.journal.hub.server", "loom_kernel.journal.hub.client"])
def test_the_hub_knows_no_notebook(module: str) -> None:
    """The hub starts fast and stays small."""
    assert loaded_after(f"import {module}").isdisjoint([*HEAVY, "IPython", "anywidget", "numpy", "pydantic", "tornado"])
