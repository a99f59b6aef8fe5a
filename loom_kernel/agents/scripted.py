"""``scripted/NAME``: a model whose replies are written beforehand, for tests and tours.

A script is a list of replies. Each is a text, or a mapping with

* ``text``, or ``json`` (a value that becomes the text), or ``echo: true`` (the last message comes back),
* ``tool``: ``{name, arguments}`` or a list of them,
* ``error``: a failure's code, such as ``rate_limited``, with ``message`` and ``retry_after_s``,
* ``delay_s`` before it begins, ``chunk_s`` between the pieces of a streamed one, ``chunks`` the number of pieces,
* ``when``: a text that the last message must hold; replies with it are taken before those without,
* ``times``: how often it may be taken, 1 where nothing is said, ``"always"`` for ever,
* ``usage``: ``{input_tokens, output_tokens, cached_tokens, cost_usd}``.

Scripts come from :func:`script`, from a YAML file named by ``LOOM_SCRIPT`` (a mapping from names to lists), or from a
``.py`` file there whose functions of the same names make them. A request that no reply is left for fails with a sentence
that shows it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from loom_kernel.agents.model import FailureCode, ModelFailure, OnText, Reply, Request, ToolCall, Usage
from loom_kernel.errors import SettingsError

CODES = frozenset(get_args(FailureCode))
_FIELDS = frozenset(
    {"text", "json", "echo", "tool", "error", "message", "retry_after_s", "delay_s", "chunk_s", "chunks", "when", "times", "usage", "finish"}
)  # fmt: skip


@dataclass
class _Line:
    reply: Mapping[str, Any]
    left: float


@dataclass
class Script:
    """The replies of one scripted model, and what it was asked.

    Attributes:
        requests: every request, oldest first.
    """

    name: str
    lines: list[_Line] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    @classmethod
    def of(cls, name: str, replies: Sequence[Any]) -> Script:
        """Raises: SettingsError: a reply that says nothing, or something unknown."""
        return cls(name, [_Line(*_read(name, n, reply)) for n, reply in enumerate(replies, start=1)])

    def take(self, request: Request) -> Mapping[str, Any]:
        """The next reply."""
        self.requests.append(request)
        last = _text(request.messages[-1]) if request.messages else ""
        for conditional in (True, False):
            for line in self.lines:
                when = line.reply.get("when")
                if line.left > 0 and (when is not None) is conditional and (when is None or when in last):
                    line.left -= 1
                    return line.reply
        raise ModelFailure(
            "incompatible_request",
            f"scripted/{self.name} has no reply left for: {last[:200]!r}. Add one to its script.",
            model=f"scripted/{self.name}",
        )

    @property
    def left(self) -> int:
        """Replies that were not taken and are not for always."""
        return sum(int(line.left) for line in self.lines if line.left != float("inf"))


_scripts: dict[str, Script] = {}
_files: dict[Path, dict[str, Script]] = {}


@contextmanager
def script(name: str, replies: Sequence[Any]) -> Iterator[Script]:
    """While this holds, ``scripted/NAME`` answers with these replies.

    Raises:
        SettingsError: a reply that says nothing, or something unknown.
    """
    before = _scripts.get(name)
    _scripts[name] = made = Script.of(name, replies)
    try:
        yield made
    finally:
        if before is None:
            _scripts.pop(name, None)
        else:
            _scripts[name] = before


def set_script(name: str, replies: Sequence[Any]) -> Script:
    """The same until the process ends, or it is set again."""
    _scripts[name] = made = Script.of(name, replies)
    return made


def names(file: str | Path | None = None) -> list[str]:
    """Scripted models that there are."""
    return sorted({*_scripts, *(_from_file(Path(file)) if file else ())})


class ScriptedModel:
    """The door to scripted models.

    Args:
        file: where scripts are that were not set from code.
        sleep: waits for ``delay_s`` and ``chunk_s``.
    """

    def __init__(
        self, file: str | Path | None = None, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._file, self._sleep = file, sleep

    async def complete(self, request: Request, on_text: OnText | None = None) -> Reply:
        """See :class:`~loom_kernel.agents.model.Model`."""
        name = request.model.removeprefix("scripted/")
        found = _scripts.get(name) or (_from_file(Path(self._file)).get(name) if self._file else None)
        if found is None:
            known = ", ".join(names(self._file)) or "none"
            raise ModelFailure(
                "unknown_model",
                f"no script named {name!r}; there are: {known}. Write one with loom_kernel.testing.script, or in the file "
                "that LOOM_SCRIPT names",
                model=request.model,
            )
        reply = found.take(request)
        if delay := reply.get("delay_s"):
            await self._sleep(float(delay))
        usage = _usage(request, reply)
        text = _said(request, reply)
        if "error" in reply and not text:
            raise _failure(request, reply, usage)
        if on_text is not None and text:
            for piece in _pieces(text, int(reply.get("chunks") or 0)):
                if pause := reply.get("chunk_s"):
                    await self._sleep(float(pause))
                on_text(piece)
        if "error" in reply:  # after part of an answer
            raise _failure(request, reply, usage)
        calls = _calls(request, reply)
        finish: Any = reply.get("finish") or ("tool_calls" if calls else "stop")
        return Reply(text=text, tool_calls=calls, finish=finish, usage=usage, model=request.model)


def _read(name: str, n: int, reply: Any) -> tuple[Mapping[str, Any], float]:
    where = f"script {name!r}, reply {n}"
    if isinstance(reply, str):
        reply = {"text": reply}
    if not isinstance(reply, Mapping):
        raise SettingsError(f"{where}: a text or a mapping is needed, not {type(reply).__name__}")
    unknown = sorted(set(reply) - _FIELDS)
    if unknown:
        raise SettingsError(f"{where}: no field named {unknown[0]!r}; there are: {', '.join(sorted(_FIELDS))}")
    if not set(reply) & {"text", "json", "echo", "tool", "error"}:
        raise SettingsError(f"{where}: one of text, json, echo, tool, error is needed")
    if "error" in reply and reply["error"] not in CODES:
        raise SettingsError(f"{where}: error {reply['error']!r} is none of {', '.join(sorted(CODES))}")
    times = reply.get("times", 1)
    return reply, float("inf") if times == "always" else float(times)


def _from_file(file: Path) -> dict[str, Script]:
    file = file.absolute()
    known = _files.get(file)
    if known is not None:
        return known
    if not file.is_file():
        raise SettingsError(f"LOOM_SCRIPT names {file}, which is no file")
    given: Any
    if file.suffix == ".py":
        import runpy

        names = runpy.run_path(str(file))
        given = {
            k: v()
            for k, v in names.items()
            if callable(v) and not k.startswith("_") and getattr(v, "__module__", "") == "<run_path>"
        }
    else:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError

        try:
            given = YAML(typ="safe").load(file)
        except YAMLError as error:
            raise SettingsError(f"{file}: {error}") from None
    if not isinstance(given, Mapping):
        raise SettingsError(f"{file}: a mapping from names of scripted models to lists of replies is needed")
    _files[file] = {str(k): Script.of(str(k), v) for k, v in given.items()}
    return _files[file]


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or () if isinstance(part, Mapping))


def _said(request: Request, reply: Mapping[str, Any]) -> str:
    if reply.get("echo"):
        return _text(request.messages[-1])
    if "json" in reply:
        return json.dumps(reply["json"])
    return str(reply.get("text") or "")


def _pieces(text: str, chunks: int) -> list[str]:
    if chunks < 2:
        words = text.split(" ")
        return [word + " " for word in words[:-1]] + words[-1:]
    size = max(1, -(-len(text) // chunks))
    return [text[i : i + size] for i in range(0, len(text), size)]


def _calls(request: Request, reply: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    asked = reply.get("tool") or ()
    if isinstance(asked, Mapping):
        asked = (asked,)
    n = sum(m.get("role") == "assistant" for m in request.messages)
    calls = []
    for i, call in enumerate(asked):
        arguments = call.get("arguments", {})
        calls.append(
            ToolCall(
                id=call.get("id") or f"call-{n}-{i}",
                name=call["name"],
                arguments=arguments if isinstance(arguments, str) else json.dumps(arguments),
            )
        )
    return tuple(calls)


def _usage(request: Request, reply: Mapping[str, Any]) -> Usage:
    given = reply.get("usage")
    if given is not None:
        return Usage(**{"cost_usd": 0.0, **given})
    said = sum(len(_text(m).split()) for m in request.messages)
    return Usage(input_tokens=said, output_tokens=len(_said(request, reply).split()), cost_usd=0.0)


def _failure(request: Request, reply: Mapping[str, Any], usage: Usage) -> ModelFailure:
    return ModelFailure(
        reply["error"],
        str(reply.get("message") or f"the script says {reply['error']}"),
        model=request.model,
        retry_after_s=reply.get("retry_after_s"),
        usage=usage if reply.get("text") else None,
    )
