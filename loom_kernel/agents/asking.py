"""Asking models: a chain of candidates, each tried again where that can help, and the next where it cannot.

Our own, since litellm's retries are none for several providers and its router falls back on every error, a refused
content included. What a failure means is in ``failures.py``; here is what is done about it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from loom_kernel import events as ev
from loom_kernel.agents import catalogue
from loom_kernel.agents.doors import Candidate, Doors, candidate
from loom_kernel.agents.failures import RULES, Next, disposition
from loom_kernel.agents.model import FailureCode, ModelFailure, Reply, Request, ThinkingLevel, Usage
from loom_kernel.engine.stages import Turn
from loom_kernel.errors import StageFailed

T = TypeVar("T")

OnOverflow = Callable[[], Awaitable[Sequence[Mapping[str, Any]] | None]]


@dataclass(frozen=True, kw_only=True)
class RetrySettings:
    """How often the same candidate is tried again, and when: ``[retry]`` in ``loom.toml``.

    Args:
        enabled: False goes to the next candidate at once.
        max_attempts: tries of one candidate in one call.
        base_s, max_s: the first wait and the longest; each is twice the one before, spread by a fifth.
        patience_s: a provider that asks to wait longer than this is given up at once.
    """

    enabled: bool = True
    max_attempts: int = 3
    base_s: float = 1.0
    max_s: float = 30.0
    patience_s: float = 60.0

    def wait(self, n: int, failure: ModelFailure, spread: float) -> float | None:
        """Seconds before try ``n + 1``, or None: not with this candidate."""
        if not self.enabled or n >= self.max_attempts or RULES[failure.code].next is not Next.RETRY:
            return None
        if failure.retry_after_s is not None:
            return failure.retry_after_s if failure.retry_after_s <= self.patience_s else None
        return min(self.max_s, self.base_s * 2 ** (n - 1)) * spread


class Limiter(Protocol):
    """Rate limits by name."""

    async def acquire(self, name: str, tokens: int) -> float:
        """Return when the call may be made, and how long that took."""
        ...

    def used(self, name: str, tokens: int, estimated: int) -> None:
        """What it used in the end, in the place of what was thought."""
        ...


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A call that was made: who answered, with what level; ``event`` is to be recorded with what was said."""

    model: str
    level: ThinkingLevel | None
    reply: Reply
    event: ev.ModelCalled


class Asker:
    """Asks for one stage. It remembers which candidate is the one now, and everything that was tried.

    Args:
        stage: its name, for errors.
        candidates: the chain, the first one first.
        doors: to the models.
        retry: how often each is tried.
        timeout_s: of one call.
    """

    def __init__(
        self,
        stage: str,
        candidates: Sequence[Candidate],
        doors: Doors,
        *,
        retry: RetrySettings,
        timeout_s: float,
        temperature: float | None = None,
        max_tokens: int | None = None,
        limiter: Limiter | None = None,
        limit: str | None = None,
        redact: Callable[[str], str] = str,
    ) -> None:
        self.stage, self.candidates, self.doors = stage, list(candidates), doors
        self.retry, self.timeout_s, self.temperature, self.max_tokens = retry, timeout_s, temperature, max_tokens
        self.limiter, self.limit, self._redact = limiter, limit, redact
        self.at = 0
        self.log: list[Asked] = []
        self.failures: list[tuple[Candidate, FailureCode, str]] = []
        """Candidates that were given up, and why."""
        self._waits: dict[FailureCode, float] = {}

    @property
    def now(self) -> Candidate:
        """The candidate that is asked next."""
        return self.candidates[min(self.at, len(self.candidates) - 1)]

    @property
    def level(self) -> ThinkingLevel | None:
        """Its level."""
        return self.now.level

    def for_decision(self, models: Sequence[str]) -> Iterator[Asker]:
        """Askers for a value: the models that were asked for by name, and the stage's own where it is not among them."""
        named = [candidate(one) for one in models]
        if self.now not in named:
            named.append(self.now)
        for one in named:
            made = Asker(
                self.stage, [one], self.doors, retry=self.retry, timeout_s=self.timeout_s, limiter=self.limiter,
                limit=self.limit, redact=self._redact,
            )  # fmt: skip
            made.log = self.log
            yield made

    def alone(self) -> Asker:
        """One that asks the candidate of now and no other."""
        return Asker(
            self.stage, [self.now], self.doors, retry=self.retry, timeout_s=self.timeout_s, limiter=self.limiter,
            limit=self.limit, redact=self._redact,
        )  # fmt: skip

    def give_up(self, turn: Turn, reason: str) -> None:
        """The candidate did not do, though it answered.

        Raises:
            StageFailed: it was the last.
        """
        self._advance("schema", reason, None)

    def _advance(self, code: FailureCode, reason: str, retry_after_s: float | None) -> None:
        self.failures.append((self.now, code, reason))
        if retry_after_s is not None:
            self._waits[code] = min(retry_after_s, self._waits.get(code, retry_after_s))
        if self.at + 1 < len(self.candidates):
            self.at += 1
            return
        deciding = disposition([code for _, code, _ in self.failures])
        raise self._failed(deciding, self._waits.get(deciding))

    def _failed(self, code: FailureCode, retry_after_s: float | None) -> StageFailed:
        if len(self.failures) == 1:
            message = self._redact(f"{self.failures[0][0]}: {self.failures[0][2]}")
        else:
            lines = [f"{one}: {reason}" for one, _, reason in self.failures]
            message = self._redact("none of its models could do it. " + "; ".join(lines))
        return StageFailed(self.stage, code, message, RULES[code].disposition, retry_after_s)

    async def ask(
        self,
        turn: Turn,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]],
        response_format: Mapping[str, Any] | None,
        deadline_s: float | None,
        on_text: Callable[[str], None] | None,
        on_overflow: OnOverflow | None = None,
    ) -> Asked:
        """Ask until somebody answers.

        Args:
            deadline_s: seconds for all of it; None for no such limit.
            on_overflow: called when the conversation is too long for the candidate: shorter messages, or None when there
                are none; then the next candidate is asked, since the same request cannot fit.

        Raises:
            StageFailed: nobody could, a model refused, or the time was up.
        """
        if deadline_s is None:
            return await self._ask(turn, messages, tools, response_format, on_text, on_overflow)
        found = await within(turn, deadline_s, self._ask(turn, messages, tools, response_format, on_text, on_overflow))
        if found is None:
            told = (
                "; ".join(f"{a.model} after {a.event.duration_s:.1f} s" for a in self.log)
                or f"{self.now} did not answer"
            )
            raise StageFailed(
                self.stage,
                "timeout",
                f"Structured output decision exceeded its {deadline_s * 1000:.0f}ms deadline; no decision was accepted. {told}",
                RULES["timeout"].disposition,
            )
        return found

    async def _ask(
        self,
        turn: Turn,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        response_format: Mapping[str, Any] | None,
        on_text: Callable[[str], None] | None,
        on_overflow: OnOverflow | None,
    ) -> Asked:
        n = 0
        while True:
            n += 1
            one = await self._fitting(self.now)
            request = Request(
                model=one.name,
                messages=tuple(messages),
                tools=tools,
                response_format=response_format,
                level=one.level,
                max_tokens=self.max_tokens,
                temperature=self.temperature,
                timeout_s=self.timeout_s,
            )
            thought = _estimate(messages) if self.limit is not None else 0
            if self.limiter is not None and self.limit is not None:
                await self.limiter.acquire(self.limit, thought)
            began, began_at = turn.monotonic(), turn.now()
            try:
                door = self.doors.of(one)
                with turn.busy() if one.provider != "scripted" else _FREE:
                    reply = await door.complete(request, on_text)
                if reply.finish == "content_filter":
                    raise ModelFailure("refused", "the provider's filter took its answer away", usage=reply.usage)
                if reply.empty:
                    raise ModelFailure("empty_answer", "it answered with nothing", usage=reply.usage)
            except ModelFailure as failure:
                usage = failure.usage or Usage()
                message = self._redact(failure.message)
                turn.spent(self._event(one, n, usage, began_at, turn.monotonic() - began, failure.code))
                self._used(usage, thought)
                rule = RULES[failure.code]
                if rule.next is Next.STOP:
                    self.failures.append((one, failure.code, message))
                    raise self._failed(failure.code, failure.retry_after_s) from failure
                if failure.code == "context_overflow" and on_overflow is not None:
                    shorter = await on_overflow()
                    if shorter is not None:
                        messages, n = shorter, n - 1
                        continue
                wait = self.retry.wait(n, failure, random.uniform(0.8, 1.2))
                if wait is not None:
                    turn.say(f"{one}: {message}; trying again in {wait:.1f} s")
                    turn.tell(
                        {"type": "retry", "stage": self.stage, "model": str(one), "error": message, "wait_s": wait}
                    )
                    await turn.sleep(wait)
                    continue
                self._advance(failure.code, message, failure.retry_after_s)
                turn.say(f"{one}: {message}; going on with {self.now}")
                turn.tell({"type": "fallback", "stage": self.stage, "model": str(self.now), "error": message})
                n = 0
                continue
            self._used(reply.usage, thought)
            event = self._event(one, n, reply.usage, began_at, turn.monotonic() - began, "")
            asked = Asked(model=reply.model or one.name, level=one.level, reply=reply, event=event)
            self.log.append(asked)
            return asked

    async def _fitting(self, one: Candidate) -> Candidate:
        """The candidate with a level that its model has, which is what is told of it from now on."""
        if one.level in (None, "off") or one.provider == "scripted":
            return one
        await asyncio.to_thread(catalogue.priced)  # a large file, the first time
        level = catalogue.effective(one.name, one.level)
        if level != one.level:
            one = self.candidates[self.at] = Candidate(one.name, level)
        return one

    def _used(self, usage: Usage, thought: int) -> None:
        if self.limiter is not None and self.limit is not None:
            self.limiter.used(self.limit, usage.input_tokens + usage.output_tokens, thought)

    def _event(self, one: Candidate, n: int, usage: Usage, began_at: float, took: float, error: str) -> ev.ModelCalled:
        return ev.ModelCalled(
            model=one.name,
            attempt=n,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.cached_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            cost_usd=usage.cost_usd or 0.0,
            started_at=began_at,
            duration_s=max(0.0, took),
            ok=not error,
            error=error,
            level=one.level or "",
        )


class _Free:
    def __enter__(self) -> None: ...
    def __exit__(self, *exc: object) -> None: ...


_FREE = _Free()


def _estimate(messages: Sequence[Mapping[str, Any]]) -> int:
    """About how many tokens a request has; four characters make one."""
    return sum(len(str(message.get("content") or "")) for message in messages) // 4 + 1


async def within(turn: Turn, seconds: float, work: Any) -> Any:
    """What ``work`` gives, or None when the time on the engine's clock is up first; then it is cancelled."""
    task = asyncio.ensure_future(work)
    timer = asyncio.ensure_future(turn.sleep(seconds))
    try:
        await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        return None
    finally:
        for one in (task, timer):
            if not one.done():
                one.cancel()
                await asyncio.wait({one})
