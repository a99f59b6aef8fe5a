"""``defn.plan(...)`` as people use it."""

from __future__ import annotations

import pytest

from loom_kernel.authoring.context import Context
from loom_kernel.authoring.step import step
from loom_kernel.authoring.workflow import workflow
from loom_kernel.errors import InputError
from loom_kernel.runtime import Runtime

pytestmark = pytest.mark.timeout(60)


def test_a_definition_says_what_a_start_would_do(runtime: Runtime) -> None:
    """Before a run everything runs, after it the cache answers; wrong inputs are refused as at a start."""

    @step(cache=True)
    def double(n: int) -> int:
        return n * 2

    @workflow
    async def flow(ctx: Context, n: int) -> int:
        return await double(n)

    assert flow.plan(n=1).sentence == "1 runs"
    assert flow.start(n=1).wait().result == 2
    assert flow.plan(n=1).sentence == "1 from the cache"
    with pytest.raises(InputError):
        flow.plan(n="many")  # type: ignore[arg-type]
