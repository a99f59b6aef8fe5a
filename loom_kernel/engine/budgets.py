"""Budgets: what a run and its children may spend, when it is warned, and how it is stopped softly.

The upper half decides and is pure. :class:`Ledger` keeps an execution's account, and :meth:`Ledger.look` is where calls ask.
Semantics: Atomic's run budgets.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Raw

from loom_kernel import codec
from loom_kernel import events as ev
from loom_kernel.engine.endings import Ending
from loom_kernel.engine.replay import History
from loom_kernel.errors import WorkflowBudgetExceededError
from loom_kernel.policies import Budget

if TYPE_CHECKING:
    from loom_kernel.engine.execution import Execution

log = logging.getLogger("loom_kernel.engine")

WARN_AT_PERCENT = 80.0

FIELDS = ("max_cost", "max_tokens", "max_duration_s", "warn_at_percent")

WRAP_UP = (
    "The budget of this run is spent. Stop working now. In a few lines: what is done, what is in the way, what the next "
    "step would be. Start nothing new."
)
"""What a model stage that is at work is told, once a run."""

WRAP_UP_PATIENCE_S = 120.0

WrapUp = Callable[[str], Awaitable[Mapping[str, Any]]]
"""Ends a stage's turn: takes the text above, gives ``{"summary": ..., "usage": ...}``."""


_NONE = Budget()

# ---------------------------------------------------------------- deciding


class Spent(NamedTuple):
    """What was spent: seconds of running, tokens, US dollars."""

    duration: float = 0.0
    tokens: int = 0
    cost: float = 0.0


class Reading(NamedTuple):
    """One dimension, how much of it was spent, and how much may be."""

    dimension: str
    reading: float
    ceiling: float

    @property
    def percent(self) -> float:
        return self.reading / self.ceiling * 100


class Verdict(NamedTuple):
    """What comes of a look: the dimension that is spent, and those to warn of now."""

    exhausted: Reading | None
    warnings: tuple[Reading, ...]


def resolve(*budgets: Budget | None) -> Budget:
    """The budget that counts: of each field the first that says something."""
    given = [budget for budget in budgets if budget is not None]
    if len(given) < 2:
        return given[0] if given else _NONE
    return Budget(**{name: next((v for b in given if (v := getattr(b, name)) is not None), None) for name in FIELDS})


def limits(budget: Budget) -> bool:
    """Whether it limits anything."""
    return bool(budget.max_cost or budget.max_tokens or budget.max_duration_s)


def judge(budget: Budget, spent: Spent, warned: Collection[str]) -> Verdict:
    """Compare. A limit is reached when the reading is at least the ceiling; the first in the order of the fields counts."""
    percent = WARN_AT_PERCENT if budget.warn_at_percent is None else budget.warn_at_percent
    exhausted: Reading | None = None
    warnings: list[Reading] = []
    for dimension, reading, ceiling in (
        ("duration", spent.duration, budget.max_duration_s),
        ("tokens", spent.tokens, budget.max_tokens),
        ("cost", spent.cost, budget.max_cost),
    ):
        if not ceiling:
            continue
        found = Reading(dimension, reading, ceiling)
        if reading >= ceiling:
            exhausted = exhausted or found
        elif percent and found.percent >= percent and dimension not in warned:
            warnings.append(found)
    return Verdict(exhausted, tuple(warnings))


def to_record(budget: Budget | None) -> dict[str, float]:
    """The fields that say something, as an event keeps them."""
    return {} if budget is None else {n: v for n in FIELDS if (v := getattr(budget, n)) is not None}


def from_record(kept: Mapping[str, float]) -> Budget | None:
    """The other way round."""
    if not kept:
        return None
    known = {name: value for name, value in kept.items() if name in FIELDS}
    if "max_tokens" in known:
        known["max_tokens"] = math.floor(known["max_tokens"])
    return Budget(**known)  # type: ignore[arg-type]


def total(history: History) -> tuple[int, float]:
    """Tokens and dollars of a recorded run and its children."""
    if not history.records:
        return history.tokens, history.cost_usd
    records = history.records.values()
    return history.tokens + sum(r.tokens for r in records), history.cost_usd + sum(r.cost_usd for r in records)


# ---------------------------------------------------------------- keeping account


class Ledger:
    """What an execution has spent, its children included, over all its stretches.

    Args:
        x: the execution.
        budget: what it may spend.
        parent, node_id: the account that it is part of, and the node behind which it runs.
    """

    def __init__(self, x: Execution, budget: Budget, parent: Ledger | None, node_id: str) -> None:
        self._x, self.budget, self._parent, self._node_id = x, budget, parent, node_id
        history: History = x.history
        self._earlier_s = history.executed_s
        self._began = x.engine.clock.monotonic()
        self._children: dict[str, tuple[int, float]] = {
            record.node_id: (record.tokens, record.cost_usd)
            for record in history.records.values()
            if record.tokens or record.cost_usd
        }
        self.tokens, self.cost = total(history)
        self._warned = dict(history.warned)
        self._landing: asyncio.Task[Ending] | None = None
        self.limited: bool = limits(budget) or (parent is not None and parent.limited)
        """Whether there is anything to look at, here or above."""
        if parent is not None:
            parent.adopt(node_id, self.tokens, self.cost)

    @property
    def spent(self) -> Spent:
        """Everything so far."""
        return Spent(self._earlier_s + self._x.engine.clock.monotonic() - self._began, self.tokens, self.cost)

    def child(self, node_id: str) -> tuple[int, float]:
        """Tokens and dollars of the run behind a node."""
        return self._children.get(node_id, (0, 0.0))

    def adopt(self, node_id: str, tokens: int, cost: float) -> None:
        """What a child's run had used already when it was opened; what was counted before is not counted again."""
        known_tokens, known_cost = self.child(node_id)
        self._children[node_id] = (max(tokens, known_tokens), max(cost, known_cost))
        self._add(max(0, tokens - known_tokens), max(0.0, cost - known_cost))

    def charge(self, call: ev.ModelCalled) -> None:
        """A model was asked in this run."""
        self._add(call.counted_tokens, max(0.0, call.cost_usd))

    def _add(self, tokens: int, cost: float) -> None:
        self.tokens += tokens
        self.cost += cost
        if self._parent is not None and (tokens or cost):
            known = self._parent.child(self._node_id)
            self._parent._children[self._node_id] = (known[0] + tokens, known[1] + cost)
            self._parent._add(tokens, cost)

    def _family(self) -> Iterator[Ledger]:
        """This account and those it is part of, the outermost first."""
        if self._parent is not None:
            yield from self._parent._family()
        yield self

    async def look(self, frontier: str) -> None:
        """Warn, or stop the run whose budget is spent; the outermost comes first.

        Raises:
            WorkflowBudgetExceededError: it was stopped.
        """
        for account in self._family():
            verdict = judge(account.budget, account.spent, account._warned)
            for warning in verdict.warnings:
                account._warned[warning.dimension] = None
                account._x.recorder.ride(ev.BudgetWarned(**warning._asdict()), None, f"budget:{warning.dimension}")
            if verdict.exhausted is not None:
                error = WorkflowBudgetExceededError(*verdict.exhausted, frontier)
                await account._land(verdict.exhausted, error)
                self._rest_below(account)
                raise error

    async def _land(self, reading: Reading, error: WorkflowBudgetExceededError) -> None:
        """All calls that find the budget spent share one landing."""
        if self._landing is None:
            x = self._x
            self._landing = x.loop.create_task(self._wrap_up(reading, error), context=x.engine.context)
        try:
            ending = await asyncio.shield(self._landing)
        except asyncio.CancelledError:  # whoever found it does not wait any more; it is spent all the same
            self._landing.add_done_callback(lambda landed: self._x.end_soon(landed.result()))
            raise
        self._x.end_soon(ending)

    def _rest_below(self, account: Ledger) -> None:
        """The runs from this one up to the one that is stopped rest with it, whatever their bodies do about the error."""
        if self is not account:
            message = "stopped with the run that started it"
            self._x.end_soon(Ending(kind="paused", reason="stopped", message=message))
            if self._parent is not None:
                self._parent._rest_below(account)

    def _turns(self) -> Iterator[WrapUp]:
        """What ends the turns of model stages that are at work here and below."""
        yield from self._x.wrap_ups.values()
        for x in self._x.engine.executions.values():
            if x.ledger._parent is self:
                yield from x.ledger._turns()

    async def _wrap_up(self, reading: Reading, error: WorkflowBudgetExceededError) -> Ending:
        result: dict[str, Any] = {
            "status": "budget_exceeded",
            **reading._asdict(),
            "percent": round(reading.percent, 1),
            "frontier_stage": error.frontier,
        }
        wrap_up = next(self._turns(), None)
        if wrap_up is not None:
            result |= await self._told(wrap_up)
        return Ending(
            kind="blocked",
            value=result,
            result=Raw(codec.encode(result).json),
            error=error,
            record=codec.encode_error(error),
            reason="budget",
            message=str(error),
            resumable=True,
        )

    async def _told(self, wrap_up: WrapUp) -> dict[str, Any]:
        """What the stage says before it ends; nothing, where it fails or takes too long."""
        engine = self._x.engine
        turn = asyncio.ensure_future(wrap_up(WRAP_UP))
        patience = asyncio.ensure_future(engine.clock.sleep(WRAP_UP_PATIENCE_S))
        await asyncio.wait((turn, patience), return_when=asyncio.FIRST_COMPLETED)
        late = not turn.done()
        for task in (turn, patience):
            task.cancel()
        if late:
            return {}
        try:
            told = turn.result()
            said = {f"wrap_up_{name}": told[name] for name in ("summary", "usage") if name in told}
            codec.encode(said)
        except (Exception, asyncio.CancelledError) as error:
            log.warning("run %s: the stage that was told to wrap up could not: %s", self._x.run_id, error)
            return {}
        return said
