"""Asking a step's own function how far an attempt came that nobody saw end."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from loom_kernel.authoring.unknown import WORDS, Finished, UnknownAttempt
from loom_kernel.engine.executor import Work
from loom_kernel.engine.output import LiveHandle
from loom_kernel.errors import DefinitionError

if TYPE_CHECKING:
    from loom_kernel.engine.calls import Call
    from loom_kernel.engine.execution import Execution
    from loom_kernel.engine.steps import Plan


async def asked(
    x: Execution, call: Call, plan: Plan, check: Callable[[UnknownAttempt], Any], attempt: int
) -> Finished | str:
    """What the function says: ``Finished(value)``, or ``"retry"``, ``"ask"``, ``"fail"``.

    One that raises knows nothing: a person is asked.
    """
    work = plan.work
    about = UnknownAttempt(
        step=call.name,
        arguments=_arguments(work),
        attempt=attempt,
        run_id=x.run_id,
        node_id=call.node_id,
        idempotency_key=f"{x.run_id}:{call.node_id}",
    )
    handle = LiveHandle(
        attempt=attempt,
        run_id=x.run_id,
        node_id=call.node_id,
        loop=x.loop,
        on_output=x.on_output,
        now=x.engine.clock.monotonic,
    )
    said: list[Finished | str] = []

    def checked(found: Any) -> None:
        if not isinstance(found, Finished) and found not in WORDS:
            raise DefinitionError(
                f"step {call.name!r}: on_unknown gave {found!r}; it is Finished(value) or one of {', '.join(WORDS)}"
            )
        said.append(found)

    if inspect.iscoroutinefunction(check):

        async def fn() -> None:
            checked(await check(about))

    else:

        def fn() -> None:  # type: ignore[misc]
            checked(check(about))

    asking = dataclasses.replace(
        work, fn=fn, args=(), kwargs={}, is_async=inspect.iscoroutinefunction(check), identity=None, executor="thread",
        finish=None, store="full",
    )  # fmt: skip
    try:
        with x.at_work(call):
            await x.engine.executor.run(asking, handle)
    except Exception as error:
        x.warn(f"step {call.name!r}: on_unknown raised {type(error).__name__}: {error}; a person is asked instead")
        return "ask"
    return said[0]


def _arguments(work: Work) -> dict[str, Any]:
    try:
        bound = inspect.signature(work.fn).bind(*work.args, **work.kwargs)
    except (TypeError, ValueError):
        return dict(work.kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)
