"""SQL: over the journal's views in the hub, or joined with the caller's own tables in this process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loom_kernel.runtime.core import Runtime


def sql(runtime: Runtime, query: str, frames: Mapping[str, Any], timeout_s: float) -> Any:
    """The result as a relation on DuckDB's default connection."""

    raise NotImplementedError


_ = Path
