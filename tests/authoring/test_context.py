"""The token that says whether somebody asked for an end."""

from __future__ import annotations

import asyncio
import threading

import pytest

from loom_kernel.authoring.context import CancelToken


def test_a_token_is_falsy_until_somebody_asks() -> None:
    """The first reason stays."""
    token = CancelToken()
    token.raise_if_cancelled()
    assert not token
    assert token.reason is None
    token.set("stop")
    token.set("again")
    assert token
    assert token.reason == "stop"
    with pytest.raises(asyncio.CancelledError):
        token.raise_if_cancelled()


def test_waiting_ends_when_another_thread_asks() -> None:
    """A token crosses threads."""

    async def body() -> str:
        token = CancelToken()
        threading.Timer(0.02, token.set, ["enough"]).start()
        return await asyncio.wait_for(token.wait(), 5)

    assert asyncio.run(body()) == "enough"


def test_waiting_on_a_set_token_returns_at_once() -> None:
    """Nobody waits for what has happened."""

    async def body() -> str:
        token = CancelToken()
        token.set("done")
        return await asyncio.wait_for(token.wait(), 5)

    assert asyncio.run(body()) == "done"
