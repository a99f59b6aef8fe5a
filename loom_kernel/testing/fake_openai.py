"""A server on loopback that speaks the OpenAI protocol and says what a test wrote down, faults included.

    with FakeOpenAI() as fake:
        fake.error(429, retry_after=1).reply("hello")
        ...  # model "openai/any" with api_base=fake.base_url
    assert fake.requests[0]["model"] == "any"

Replies are taken in order; those behind :meth:`FakeOpenAI.when` only by requests that fit, and before the others. A
request that nothing was written for is answered with 400 and fails the test at the end of the ``with``, as do replies
that nobody asked for.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

Fault = Literal["drop", "truncate", "malformed", "stall", "error"]

_NEVER_S = 3_600.0

_WORDS: dict[int, tuple[str, str | None]] = {
    400: ("invalid_request_error", None),
    401: ("authentication_error", "invalid_api_key"),
    402: ("insufficient_quota", "insufficient_quota"),
    403: ("permission_error", None),
    404: ("not_found_error", "model_not_found"),
    413: ("request_too_large", None),
    422: ("unprocessable_entity", None),
    429: ("rate_limit_error", "rate_limit_exceeded"),
}


@dataclass
class _Step:
    kind: Literal["reply", "status", "hang", "drop"] = "reply"
    text: str = ""
    refusal: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    finish: str = ""
    usage: tuple[int, int] = (7, 5)
    status: int = 200
    body: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    chunk_s: float = 0.0
    fault: Fault | None = None
    fault_after: int = 2
    choices: bool = True
    fits: Callable[[Mapping[str, Any]], bool] | None = None
    times: float = 1


class FakeOpenAI:
    """The server. Methods that write a reply give the server back, so that they can be strung together.

    Attributes:
        base_url: what ``api_base`` is to be.
        requests: the JSON of each request, oldest first; ``headers`` their headers.
        closed_early: how many clients went before their answer was whole.
    """

    def __init__(self, *, leftovers: bool = True) -> None:
        self.base_url = ""
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.closed_early = 0
        self.unexpected: list[dict[str, Any]] = []
        self._steps: list[_Step] = []
        self._fits: Callable[[Mapping[str, Any]], bool] | None = None
        self._leftovers = leftovers
        self._lock = threading.Lock()

    # ------------------------------------------------------------ what it is to say

    def _add(self, **step: Any) -> Self:
        with self._lock:
            self._steps.append(_Step(fits=self._fits, **step))
            self._fits = None
        return self

    def when(self, fits: Callable[[Mapping[str, Any]], bool]) -> Self:
        """The next reply is only for requests that fit."""
        self._fits = fits
        return self

    def reply(self, text: str = "ok", **step: Any) -> Self:
        """An answer. Options: ``usage``, ``finish``, ``delay_s``, ``chunk_s``, ``fault``, ``fault_after``, ``times``."""
        return self._add(text=text, **step)

    def json(self, value: Any, **step: Any) -> Self:
        """An answer that is JSON."""
        return self._add(text=json.dumps(value), **step)

    def call_tool(self, name: str, arguments: Any, id: str = "call_1", **step: Any) -> Self:
        """A call of a tool; arguments that are a text are sent as they are."""
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        call = {"id": id, "type": "function", "function": {"name": name, "arguments": text}}
        return self._add(calls=[call], **step)

    def error(
        self, status: int, message: str = "", *, code: str | None = None, retry_after: float | None = None, **step: Any
    ) -> Self:
        """A refusal with that status."""
        kind, known = _WORDS.get(status, ("server_error", None))
        body = {"error": {"message": message or f"status {status}", "type": kind, "param": None, "code": code or known}}
        headers = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}
        return self._add(kind="status", status=status, body=json.dumps(body), headers=headers, **step)

    def context_overflow(self, **step: Any) -> Self:
        """The conversation is too long."""
        sentence = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
        return self.error(400, sentence, code="context_length_exceeded", **step)

    def content_filter(self, **step: Any) -> Self:
        """The prompt was refused."""
        sentence = "The response was filtered due to the prompt triggering content management policy."
        return self.error(400, sentence, code="content_filter", **step)

    def refuse(self, sentence: str, **step: Any) -> Self:
        """A refusal in the field that OpenAI has for it, where the answer is not streamed."""
        return self._add(refusal=sentence, **step)

    def raw(self, body: str, status: int = 200, **headers: str) -> Self:
        """Any body at all."""
        return self._add(kind="status", status=status, body=body, headers=dict(headers))

    def hang(self, **step: Any) -> Self:
        """No answer, ever."""
        return self._add(kind="hang", **step)

    def drop(self, **step: Any) -> Self:
        """The connection is closed."""
        return self._add(kind="drop", **step)

    # ------------------------------------------------------------ running it

    def __enter__(self) -> Self:
        ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(ready,), name="fake-openai", daemon=True)
        self._thread.start()
        if not ready.wait(10):
            raise RuntimeError("the fake OpenAI server did not start")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        if kind is not None:
            return
        if self.unexpected:
            raise AssertionError(
                f"{len(self.unexpected)} requests that nothing was written for: {self.unexpected[0]!r}"
            )
        left = [step for step in self._steps if step.times != float("inf")]
        if left and self._leftovers:
            raise AssertionError(f"{len(left)} replies that nobody asked for; the first: {left[0]!r}")

    def _serve(self, ready: threading.Event) -> None:
        import tornado.httpserver
        import tornado.netutil
        import tornado.web

        async def main() -> None:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            app = tornado.web.Application(
                [(r"/v1/(?:chat/completions|messages)", _handler(), {"fake": self})], log_function=lambda _: None
            )
            sockets = tornado.netutil.bind_sockets(0, "127.0.0.1")
            self.base_url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}/v1"
            server = tornado.httpserver.HTTPServer(app)
            server.add_sockets(sockets)
            ready.set()
            await self._stop.wait()
            server.stop()
            await server.close_all_connections()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

        asyncio.run(main())

    def _take(self, request: Mapping[str, Any]) -> _Step | None:
        with self._lock:
            for conditional in (True, False):
                for step in self._steps:
                    if (step.fits is not None) is conditional and (step.fits is None or step.fits(request)):
                        step.times -= 1
                        if step.times <= 0:
                            self._steps.remove(step)
                        return step
        return None


def _handler() -> Any:
    import tornado.iostream
    import tornado.web

    class Chat(tornado.web.RequestHandler):
        def initialize(self, fake: FakeOpenAI) -> None:
            self.fake = fake
            self.done = False

        def on_connection_close(self) -> None:
            if not self.done:
                self.fake.closed_early += 1

        async def post(self) -> None:
            request = json.loads(self.request.body)
            self.fake.requests.append(request)
            self.fake.headers.append(dict(self.request.headers))
            step = self.fake._take(request)
            if step is None:
                self.fake.unexpected.append(request)
                step = _Step(
                    kind="status", status=400, body='{"error": {"message": "nothing was written for this request"}}'
                )
            if step.delay_s:
                await asyncio.sleep(step.delay_s)
            if step.kind == "hang":
                await asyncio.sleep(_NEVER_S)
            if step.kind == "drop":
                self.close_now()
                return
            if step.kind == "status":
                self.set_status(step.status, "as the test says")
                self.set_header("Content-Type", "application/json")
                for name, value in step.headers.items():
                    self.set_header(name, value)
                self.end(step.body)
                return
            try:
                await (self.stream(request, step) if request.get("stream") else self.whole(request, step))
            except tornado.iostream.StreamClosedError:
                return

        def close_now(self) -> None:
            self.done = True
            self.request.connection.stream.close()  # type: ignore[union-attr]

        def end(self, body: str = "") -> None:
            self.done = True
            self.finish(body or None)

        async def whole(self, request: Mapping[str, Any], step: _Step) -> None:
            message: dict[str, Any] = {"role": "assistant", "content": step.text or None}
            if step.calls:
                message["tool_calls"] = step.calls
            if step.refusal:
                message["refusal"] = step.refusal
            choice = {"index": 0, "message": message, "finish_reason": finish(step)}
            self.set_header("Content-Type", "application/json")
            about = {**head(request, "chat.completion"), "usage": usage(step)}
            self.end(json.dumps({**about, "choices": [choice] if step.choices else []}))

        async def stream(self, request: Mapping[str, Any], step: _Step) -> None:
            self.set_header("Content-Type", "text/event-stream")
            for n, chunk in enumerate(pieces(request, step)):
                if step.fault is not None and n == step.fault_after and await self.go_wrong(step.fault):
                    return
                await self.send(json.dumps(chunk))
                if step.chunk_s:
                    await asyncio.sleep(step.chunk_s)
            await self.send("[DONE]")
            self.end()

        async def send(self, data: str) -> None:
            self.write(f"data: {data}\n\n")
            await self.flush()

        async def go_wrong(self, fault: Fault) -> bool:
            """Returns whether that was the end."""
            if fault == "drop":
                self.close_now()
            elif fault == "truncate":
                self.end()
            elif fault == "malformed":
                await self.send('{"choices": [{"delta": {"content": ')
                return False
            elif fault == "stall":
                await asyncio.sleep(_NEVER_S)
            else:
                await self.send(json.dumps({"error": {"message": "overloaded", "type": "server_error", "code": 503}}))
                self.end()
            return True

    return Chat


def finish(step: _Step) -> str:
    """Why the answer ends."""
    return step.finish or ("tool_calls" if step.calls else "stop")


def usage(step: _Step) -> dict[str, int]:
    """As OpenAI counts."""
    sent, received = step.usage
    return {"prompt_tokens": sent, "completion_tokens": received, "total_tokens": sent + received}


def head(request: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """What stands in every answer."""
    return {"id": "chatcmpl-fake", "object": kind, "created": 1_700_000_000, "model": request.get("model")}


def pieces(request: Mapping[str, Any], step: _Step) -> list[dict[str, Any]]:
    """An answer as a stream: words of the text; of a tool's call its name, then its arguments in two pieces."""

    def chunk(delta: Mapping[str, Any], end: str | None = None) -> dict[str, Any]:
        choices = [{"index": 0, "delta": delta, "finish_reason": end}] if step.choices else []
        return {**head(request, "chat.completion.chunk"), "choices": choices}

    found = [chunk({"role": "assistant", "content": ""})]
    words = step.text.split(" ") if step.text else []
    found += [chunk({"content": word if n == 0 else f" {word}"}) for n, word in enumerate(words)]
    for index, call in enumerate(step.calls):
        arguments = call["function"]["arguments"]
        half = len(arguments) // 2
        named = {
            "index": index,
            "id": call["id"],
            "type": "function",
            "function": {"name": call["function"]["name"], "arguments": ""},
        }
        found.append(chunk({"tool_calls": [named]}))
        found += [
            chunk({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
            for part in (arguments[:half], arguments[half:])
        ]
    found.append(chunk({}, finish(step)))
    if (request.get("stream_options") or {}).get("include_usage"):
        found.append({**head(request, "chat.completion.chunk"), "choices": [], "usage": usage(step)})
    return found
