"""What a stage is told beside its task: what came before it, and which files to read. Pure but for a look at the files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loom_kernel.authoring.agents import TaskResult
from loom_kernel.errors import DefinitionError

LARGE = 50_000
"""Characters of ``previous`` above which a stage is warned of its prompt."""


def contexts(what: str, previous: Any) -> list[tuple[str, str]]:
    """``previous`` as names and texts; blank texts are dropped.

    Raises:
        DefinitionError: it is none of text, ``{"name", "text"}``, TaskResult, or a list of these.
    """
    if previous is None:
        return []
    given = previous if isinstance(previous, (list, tuple)) else (previous,)
    found = []
    for one in given:
        if isinstance(one, str):
            found.append(("", one))
        elif isinstance(one, TaskResult):
            found.append((one.name, one.text))
        elif isinstance(one, Mapping) and isinstance(one.get("text"), str):
            found.append((str(one.get("name") or ""), one["text"]))
        else:
            raise DefinitionError(
                f'{what}: previous= takes texts, results of tasks and {{"name": ..., "text": ...}}, not a {type(one).__name__}'
            )
    return [(name, text) for name, text in found if text.strip()]


def compose(prompt: str, previous: Sequence[tuple[str, str]], task: str | None = None) -> str:
    """The prompt with what came before: in the place of ``{previous}``, else after it under a heading."""
    if task is not None:
        prompt = prompt.replace("{task}", task)
    if "{previous}" in prompt:
        return prompt.replace("{previous}", previous[-1][1] if previous else "")
    if not previous:
        return prompt
    if len(previous) == 1 and not previous[0][0]:
        return f"{prompt}\n\n{previous[0][1]}"
    sections = "\n\n".join(f"### {name or f'Result {n}'}\n{text}" for n, (name, text) in enumerate(previous, start=1))
    return f"{prompt}\n\n## Context\n\n{sections}"


def to_read(what: str, reads: Sequence[str], base: Path) -> str:
    """The line that tells a model which files to read; paths, not contents.

    Raises:
        FileNotFoundError: one is not there; the stage fails before its model is asked.
    """
    if not reads:
        return ""
    paths = []
    for read in reads:
        path = base / Path(read).expanduser()
        if not path.exists():
            raise FileNotFoundError(f"{what}: reads={read!r}: there is no file {path}")
        paths.append(str(path))
    return f"[Read from: {', '.join(paths)}]\n\n"


def parts(images: Sequence[Any]) -> list[dict[str, Any]]:
    """Pictures as parts of a message: bytes, files, PIL images, matplotlib figures, :class:`Image`, or parts as they are.

    Raises:
        DefinitionError: it is no picture.
    """
    import base64
    import io
    import mimetypes

    from loom_kernel.authoring.agents import Image

    found: list[dict[str, Any]] = []
    for one in images:
        if isinstance(one, Mapping) and one.get("type") in ("text", "image_url"):
            found.append(dict(one))
            continue
        media_type = "image/png"
        if isinstance(one, Image):
            data, media_type = one.data, one.media_type
        elif isinstance(one, bytes):
            data = one
            if data[:3] == b"\xff\xd8\xff":
                media_type = "image/jpeg"
        elif isinstance(one, (str, Path)):
            path = Path(one)
            if not path.is_file():
                raise DefinitionError(f"images: there is no file {path}")
            data, media_type = path.read_bytes(), mimetypes.guess_type(path.name)[0] or "image/png"
        elif hasattr(one, "savefig") or hasattr(one, "save"):
            buffer = io.BytesIO()
            (one.savefig if hasattr(one, "savefig") else one.save)(buffer, format="png")
            data = buffer.getvalue()
        else:
            raise DefinitionError(
                f"images: a {type(one).__name__} is no picture; give bytes, a file, a figure or Image(...)"
            )
        url = f"data:{media_type};base64,{base64.b64encode(data).decode()}"
        found.append({"type": "image_url", "image_url": {"url": url}})
    return found
