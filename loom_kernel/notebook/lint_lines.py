"""What is found in a workflow's body, as one clean line each under the cell that defines it."""

from __future__ import annotations

import warnings
from typing import Any


def install() -> Any:
    """Let warnings of that class be one line; returns what takes it back."""
    before = warnings.formatwarning

    def shown(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        if category.__name__ == "WorkflowLintWarning":
            from loom_kernel.authoring.lint import WorkflowLintWarning, format_warning

            if category is WorkflowLintWarning:
                return format_warning(message)
        return before(message, category, filename, lineno, line)

    def remove() -> None:
        if warnings.formatwarning is shown:  # else somebody came after us, who calls us still
            warnings.formatwarning = before

    warnings.formatwarning = shown
    return remove
