"""Questions that an author's own widget asks: what their answers are, and when one is still the same question."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from loom_kernel import codec
from loom_kernel.errors import AnswerError, LoomError


def as_json(value: Any, name: str) -> Any:
    """The answer of a custom question, which must be JSON as it stands.

    Raises:
        AnswerError: it is not, or it is too large.
    """
    try:
        encoded = codec.encode(value, path="the value", allow_nan=False)
    except LoomError as error:
        raise AnswerError(f"the answer to {name!r} must be JSON: {error}") from None
    if encoded.blobs:
        size = len(encoded.blobs[0].data)
        raise AnswerError(f"the answer to {name!r} is {size:,} bytes; at most {codec.BLOB_BYTES:,} are taken")
    if b'"$loom"' in encoded.json:
        raise AnswerError(
            f"the answer to {name!r} must be JSON, and {type(value).__name__} is not, or has a part that is not"
        )
    return value


def identity_of(factory: Callable[..., Any], given: str | None, place: str) -> str:
    """The hash that stands for what a custom question is: of the identity given, else the factory's name, source or place."""
    name = getattr(factory, "__qualname__", "")
    if given is not None:
        what = ["given", given]
    elif name and not name.endswith("<lambda>"):
        what = ["name", name]
    else:
        try:
            what = ["source", inspect.getsource(factory).strip()]
        except (OSError, TypeError):
            what = ["place", place]
    return codec.content_hash("\n".join(what))
