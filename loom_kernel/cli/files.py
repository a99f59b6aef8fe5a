"""Files with workflows: executed once, as modules of their own."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from loom_kernel.authoring.registry import registry
from loom_kernel.authoring.workflow import WorkflowDefinition
from loom_kernel.errors import DefinitionError, LoomError


def load(path: Path) -> list[WorkflowDefinition[..., Any]]:
    """Execute the file and return the workflows that it defines or imports, also where a name was defined before.

    It is not the main module, so what stands below ``if __name__ == "__main__"`` does not run.

    Raises:
        DefinitionError: it cannot be executed.
    """
    if path.suffix == ".ipynb":
        raise DefinitionError(
            f"{path} is a notebook, whose cells may do anything when they are executed; put its workflows into a Python "
            "file that both the notebook and this command import, or open the notebook with `loom lab`"
        )
    before = {id(d) for d in registry}
    folder = str(path.parent.resolve())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    # The name begins with codec.classes.FILE_MODULE: its classes are stored as those of the main script.
    name = f"__loom_{path.stem}__"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise DefinitionError(f"{path} is not a Python file; its name should end in .py")
    module = importlib.util.module_from_spec(spec)
    earlier = sys.modules.get(name)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except LoomError:
        _forget(name, earlier)
        raise
    except Exception as error:
        _forget(name, earlier)
        raise DefinitionError(f"{path} cannot be executed: {type(error).__name__}: {error}") from error
    # Its names belong to __main__, so that values of its classes are found again.
    public = {name: value for name, value in vars(module).items() if not name.startswith("__")}
    vars(sys.modules["__main__"]).update(public)
    return [d for d in registry if id(d) not in before]


def _forget(name: str, earlier: Any) -> None:
    if earlier is None:
        sys.modules.pop(name, None)
    else:
        sys.modules[name] = earlier
