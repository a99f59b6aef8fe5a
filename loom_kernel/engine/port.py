"""What a capability may do in a run: have its answers recorded, and know whose they are."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from loom_kernel import codec
from loom_kernel import events as ev
from loom_kernel.authoring.context import in_step
from loom_kernel.authoring.source import where
from loom_kernel.engine.calls import Durable
from loom_kernel.errors import LoomError
from loom_kernel.journal.abc import Append, RunJournal

if TYPE_CHECKING:
    from loom_kernel.engine.execution import Execution


REFUSED = "refused"


class RunPort:
    """Handed to a capability's maker, one for each run."""

    def __init__(self, execution: Execution) -> None:
        self._x = execution

    @property
    def run_id(self) -> str:
        """The run."""
        return self._x.run_id

    @property
    def journal(self) -> RunJournal:
        """The journal that the run is in."""
        return self._x.engine.journal

    def ask(
        self, name: str, identity: str, make: Callable[[str, str], Coroutine[Any, Any, Any]]
    ) -> Coroutine[Any, Any, Any]:
        """A call of a capability: in the body recorded and answered from the journal on a replay, in a step made anew.

        Args:
            name: what is called, such as ``"storage.commit"``.
            identity: what identifies its arguments.
            make: does it: ``make(token, node_id)``. The token is the same whenever this call is made again.

        Raises:
            LoomError: called in the thread of a sync step, which cannot await.
        """
        x = self._x
        x.gate()
        at = _called_at()
        handle: Any = in_step.get()
        if handle is not None:
            if not x.on_thread:
                raise LoomError(
                    f"ctx.{name} cannot be awaited in a sync step; make the step async, or return the value and call it in the body"
                )
            handle.asked = n = getattr(handle, "asked", 0) + 1
            return Durable(
                self._in_step(make, f"{self.run_id}/{handle.node_id}/{n}", handle.node_id), f"ctx.{name}", at
            )
        key = x.keys.key("value", name, identity)
        return Durable(self._recorded(make, name, key), f"ctx.{name}", at)

    async def _in_step(self, make: Callable[[str, str], Coroutine[Any, Any, Any]], token: str, node_id: str) -> Any:
        self._x.gate()
        value = await self._x.guarded(make(token, node_id))
        self._x.gate()  # a call that lost its run meanwhile does not go on, although it was done
        return value

    async def _recorded(self, make: Callable[[str, str], Coroutine[Any, Any, Any]], name: str, key: str) -> Any:
        x = self._x
        x.gate()
        known = x.history.values.get(key)
        if known is not None and known.kind == REFUSED:
            raise codec.decode_error(msgspec.json.decode(known.value, type=ev.ErrorRecord), step=name)
        if known is not None:
            return await x.decode(known.value)
        if x.dry is not None:
            await x.dry.ask(name)
        try:
            value = await x.guarded(make(f"{self.run_id}/{key}", ""))
        except LoomError as refused:
            # Recorded too: what was refused must not be done on a replay, when it may fit.
            record = Raw(msgspec.json.encode(codec.encode_error(refused)))
            await x.recorder.commit([Append(ev.ValueRecorded(kind=REFUSED, name=name, value=record), key, key)])
            raise
        x.gate()
        encoded = codec.encode(value, path=f"what ctx.{name} gave")
        await x.put_blobs(encoded)
        await x.recorder.commit([Append(ev.ValueRecorded(kind="asked", name=name, value=Raw(encoded.json)), key, key)])
        x.moved()
        return value


def _called_at() -> str:
    """The body's line."""
    frame: Any = sys._getframe(2)
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith("loom_kernel."):
        frame = frame.f_back
    return where(frame)
