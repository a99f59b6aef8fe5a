"""What may be asked of the storage: names, operations and queries, checked before anything happens. Pure."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

import msgspec

from loom_kernel import codec
from loom_kernel.codec import Encoded
from loom_kernel.errors import StorageRejectedError

Category = Literal["artifact", "record"]

NAME_CHARACTERS = 1024
CURSOR_CHARACTERS = 16_384
MOST, USUAL = 200, 50
MAX_REVISION = 2**53 - 1

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_CAMEL = re.compile(r"(?<=[a-z])([A-Z])")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")

_NEEDS: dict[str, tuple[str, ...]] = {
    "create_artifact": ("id", "payload"),
    "replace_artifact": ("id", "expected_revision", "payload"),
    "append_record": ("id", "payload"),
    "remove_artifact": ("id", "expected_revision"),
    "remove_record": ("id",),
}


class Operation(NamedTuple):
    """One operation, checked; its data is encoded already, so that later changes of the caller's objects do not count."""

    op: str
    id: str
    flow: str = ""
    stage: str = ""
    expected_revision: int = 0
    encoded: Encoded | None = None
    value: Any = None

    @property
    def category(self) -> Category:
        return "record" if self.op.endswith("record") else "artifact"


class Query(NamedTuple):
    """A list's question, checked."""

    category: Category
    flow: str | None
    stage: str | None
    ids: tuple[str, ...] | None
    after: str | None
    before: str | None
    ascending: bool
    limit: int
    start: tuple[str, str] | None  # created_at and id of the last row of the page before

    @property
    def fingerprint(self) -> str:
        """Names the question without its page size, so that a cursor fits only where it came from."""
        ids = None if self.ids is None else sorted(set(self.ids))
        order = "created_asc" if self.ascending else "created_desc"
        parts = ["project", self.category, self.flow, self.stage, ids, self.after, self.before, order]
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()

    def cursor(self, created_at: str, id: str) -> str:
        """Where the next page begins."""
        raw = msgspec.json.encode(
            {"version": 1, "fingerprint": self.fingerprint, "createdAt": created_at, "id": id}, order="sorted"
        )
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def name(value: Any, what: str) -> str:
    """An id or a name.

    Raises:
        StorageRejectedError: it is none.
    """
    if not isinstance(value, str) or not 1 <= len(value) <= NAME_CHARACTERS or not value.strip():
        raise StorageRejectedError(f"{what} {_short(value)}: a text of 1 to {NAME_CHARACTERS:,} characters is needed")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise StorageRejectedError(f"{what} {_short(value)} is not valid text") from None
    if _CONTROL.search(value):
        raise StorageRejectedError(f"{what} {_short(value)} holds a control character")
    return value


def operations(given: Any) -> list[Operation]:
    """The operations of a batch, checked and encoded.

    Raises:
        StorageRejectedError: the first thing that is wrong, with its place.
        ValueNotStorableError: data that cannot be kept.
    """
    if isinstance(given, Mapping | str | bytes) or not isinstance(given, Sequence):
        raise StorageRejectedError("commit takes a list of operations")
    found = [_operation(item, f"operation {n}") for n, item in enumerate(given)]
    seen: set[tuple[str, str]] = set()
    for n, operation in enumerate(found):
        target = (operation.category, operation.id)
        if target in seen:
            raise StorageRejectedError(
                f"operation {n}: the {operation.category} {operation.id!r} is a target twice; a batch does one thing to each"
            )
        seen.add(target)
    return found


def _operation(given: Any, at: str) -> Operation:
    fields = _fields(given, at)
    kind = fields.pop("type", None)
    if kind not in _NEEDS:
        raise StorageRejectedError(f"{at}: type {_short(kind)} is none of {', '.join(_NEEDS)}")
    _exactly(fields, _NEEDS[kind], f"{at} ({kind})")
    id_ = name(fields["id"], f"{at}: id")
    if "payload" not in fields:
        return Operation(kind, id_, expected_revision=_revision(fields, at))
    payload = _fields(fields["payload"], f"{at}: payload")
    _exactly(payload, ("flow_name", "stage_name", "data"), f"{at}: payload")
    value = payload["data"]
    encoded = codec.encode(value, path=f"{at}: data", allow_nan=False)
    if encoded.stands_in:
        value = codec.decode_now(encoded.json, dict(encoded.blobs).__getitem__)
    return Operation(
        kind,
        id_,
        name(payload["flow_name"], f"{at}: flow_name"),
        name(payload["stage_name"], f"{at}: stage_name"),
        _revision(fields, at),
        encoded,
        value,
    )


def _revision(fields: Mapping[str, Any], at: str) -> int:
    value = fields.get("expected_revision", 1)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_REVISION:
        raise StorageRejectedError(f"{at}: expected_revision {_short(value)} is no revision")
    return value


def query(category: Category, given: Mapping[str, Any] | None, more: Mapping[str, Any]) -> Query:
    """A list's question.

    Raises:
        StorageRejectedError: the first thing that is wrong.
    """
    fields = {**_fields(given or {}, "the query"), **_fields(more, "the query")}
    fields = {key: value for key, value in fields.items() if value is not None}
    unknown = fields.keys() - {
        "flow_name", "stage_name", "ids", "created_after", "created_before", "order", "limit", "cursor",
    }  # fmt: skip
    if unknown:
        raise StorageRejectedError(f"the query has no {sorted(unknown)[0]!r}")
    ids = fields.get("ids")
    if ids is not None:
        if isinstance(ids, str) or not isinstance(ids, Sequence):
            raise StorageRejectedError(f"ids {_short(ids)} is no list of ids")
        ids = tuple(name(item, "ids") for item in ids)
    after, before = _time(fields, "created_after"), _time(fields, "created_before")
    if after is not None and before is not None and after >= before:
        raise StorageRejectedError("created_after is not before created_before")
    order = fields.get("order", "created_desc")
    if order not in ("created_asc", "created_desc"):
        raise StorageRejectedError(f"order {_short(order)} is neither created_asc nor created_desc")
    limit = fields.get("limit", USUAL)
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST:
        raise StorageRejectedError(f"limit {_short(limit)} is no number from 1 to {MOST}")
    asked = Query(
        category,
        name(fields["flow_name"], "flow_name") if "flow_name" in fields else None,
        name(fields["stage_name"], "stage_name") if "stage_name" in fields else None,
        ids,
        after,
        before,
        order == "created_asc",
        limit,
        None,
    )
    if "cursor" in fields:
        return asked._replace(start=_start(asked, fields["cursor"]))
    return asked


def _start(asked: Query, cursor: Any) -> tuple[str, str]:
    wrong = StorageRejectedError("the cursor is not one of this query; begin again without it")
    if not isinstance(cursor, str) or not 1 <= len(cursor) <= CURSOR_CHARACTERS:
        raise wrong
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        found = msgspec.json.decode(raw)
        created_at, id_ = found["createdAt"], found["id"]
        same = asked.cursor(created_at, id_) == cursor  # of this question, and written the one way there is
    except Exception:
        raise wrong from None
    if not same or not isinstance(id_, str) or not _TIME.fullmatch(created_at):
        raise wrong
    return created_at, id_


def _time(fields: Mapping[str, Any], key: str) -> str | None:
    value = fields.get(key)
    if value is None:
        return None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise StorageRejectedError(f"{key} {value}: a time needs its zone")
        return stamp(int(value.timestamp() * 1e6))
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        raise StorageRejectedError(f"{key} {_short(value)} is no time like 2026-01-31T12:00:00.000Z")
    try:
        datetime.fromisoformat(value)
    except ValueError:
        raise StorageRejectedError(f"{key} {value!r} is no time") from None
    return value


def stamp(micros: int) -> str:
    """Microseconds since the epoch as UTC, ISO with three decimals."""
    moment = datetime.fromtimestamp(micros // 1_000_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{micros // 1000 % 1000:03d}Z"


def _fields(given: Any, at: str) -> dict[str, Any]:
    """A mapping's items, in snake case whichever way they were spelled."""
    if not isinstance(given, Mapping):
        raise StorageRejectedError(f"{at}: {_short(given)} is no mapping")
    out: dict[str, Any] = {}
    for key, value in given.items():
        if not isinstance(key, str):
            raise StorageRejectedError(f"{at}: the key {_short(key)} is no text")
        plain = _CAMEL.sub(lambda found: "_" + found[1].lower(), key)
        if plain in out:
            raise StorageRejectedError(f"{at}: {key!r} is given twice")
        out[plain] = value
    return out


def _exactly(fields: Mapping[str, Any], needed: tuple[str, ...], at: str) -> None:
    missing = [key for key in needed if key not in fields]
    unknown = sorted(fields.keys() - set(needed))
    if missing:
        raise StorageRejectedError(f"{at} needs {', '.join(missing)}")
    if unknown:
        raise StorageRejectedError(f"{at} has no {unknown[0]!r}; it takes {', '.join(needed)}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
