"""Values: each comes back as the type it was, or is refused with the path of the culprit."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import functools
import hashlib
import importlib
import ipaddress
import json
import math
import os
import pathlib
import re
import sqlite3
import subprocess
import sys
import threading
import types
import uuid
import zoneinfo
from typing import Any, NamedTuple

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from loom_kernel import codec, events
from loom_kernel.errors import (
    LoomError,
    RetryableError,
    StepFailed,
    UnhashableValue,
    UnknownClassError,
    ValueNotStorableError,
)

# ---------------------------------------------------------------- classes that values may be of


class Colour(enum.Enum):
    RED = "r"
    BLUE = ("b", 1)


class Level(enum.IntEnum):
    LOW = 1


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Word(enum.StrEnum):
    A = "a"


@dataclasses.dataclass
class Point:
    x: int
    tags: set[str] = dataclasses.field(default_factory=set)
    half: float = dataclasses.field(init=False, default=0.5)


@dataclasses.dataclass(frozen=True, slots=True)
class Fixed:
    x: Any

    def __post_init__(self) -> None:
        if self.x == "never again":
            raise AssertionError("__init__ must not run when a value is read")


class Pair(NamedTuple):
    left: Any
    right: Any = None


class Packed(msgspec.Struct, frozen=True):
    a: int
    b: Any = None


class Order(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")

    when: dt.date
    amount: decimal.Decimal = pydantic.Field(decimal.Decimal(1), alias="sum")
    _note: str = pydantic.PrivateAttr("kept too")


class Names(pydantic.RootModel[list[str]]):
    pass


class Site(pydantic.BaseModel):
    url: pydantic.HttpUrl


class HttpProblem(Exception):
    def __init__(self, response: Any, *, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.response, self.status = response, status


class Slotted(ValueError):
    __slots__ = ("code",)


def module_level(x: int) -> int:
    """A function that may be an argument."""
    return x + 1


def back(value: Any, **options: Any) -> Any:
    """A value, written and read, by both ways of reading; its hash must survive."""
    encoded = codec.encode(value, **options)
    assert len(encoded.json) <= codec.BLOB_BYTES
    blobs = {}
    for blob in encoded.blobs:
        assert hashlib.sha256(blob.data).hexdigest() == blob.sha256
        blobs[blob.sha256] = blob.data

    async def get(sha256: str) -> bytes:
        return blobs[sha256]

    read = codec.decode_now(encoded.json, blobs.__getitem__)
    again = asyncio.run(codec.decode(encoded.json, get))
    assert codec.content_hash(value) == codec.content_hash(read) == codec.content_hash(again)
    return read


VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2**53 + 1, 2**64, -(2**200), 10**2000, 0.0, -0.0, 1.0, 1e300, 5e-324,
    "", "é", "a\x00b", "😀", "\ud800", "x" * 100_000, [], {}, [[]], {"": None}, {"$loom": "tuple", "v": [1]},
    (), (1, (2, [3])), [(1,), {"a": (2,)}], set(), {1, "a", (2, 3)}, frozenset({1.5}),
    b"", b"\x00\xff", b"z" * 100_000, bytearray(b"ab"), 1 + 2j, range(1, 9, 2), slice(1, None, "x"), ...,
    dt.date(2026, 3, 29), dt.time(1, 2, 3, 4), dt.time(1, tzinfo=dt.UTC), dt.timedelta(-1, 5, 7), dt.timedelta.max,
    dt.datetime(2026, 1, 2, 3, 4, 5, 6), dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
    dt.datetime(2026, 10, 25, 2, 30, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"), fold=1),
    dt.datetime(2026, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=30), "IST")),
    dt.timezone(dt.timedelta(seconds=-90)), zoneinfo.ZoneInfo("Asia/Tokyo"),
    decimal.Decimal("1.00"), decimal.Decimal("-1E+5"), fractions.Fraction(1, 3),
    uuid.UUID(int=5), pathlib.Path("a/b"), pathlib.PureWindowsPath("c:/x"), ipaddress.ip_address("::1"),
    ipaddress.ip_network("10.0.0.0/8"), re.compile("a+", re.IGNORECASE), re.compile(b"x"),
    collections.OrderedDict([("b", 1), ("a", 2)]), collections.Counter("abca"), collections.deque([1, (2,)], maxlen=3),
    collections.defaultdict(list, {"a": [1]}), collections.defaultdict(None, {"a": 1}),
    Colour.RED, Colour.BLUE, Level.LOW, Rights.READ | Rights.WRITE, Rights(0), Word.A,
    Point(1, {"a"}), Fixed((1, 2)), Pair(1, (2,)), Packed(1, (2,)),
    Names(["a"]), Site(url="https://example.org/x"),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda v: f"{type(v).__name__}-{repr(v)[:30]}")
def test_round_trip(value: Any) -> None:
    """A value comes back equal and of the same type, alone and inside containers."""
    read = back(value)

    assert type(value) is type(read)
    assert value == read
    assert [{"k": (value,)}] == back([{"k": (value,)}])


def test_round_trip_details() -> None:
    """What equality does not see comes back too: order, time zones, fold, signs, default factories, numbers' digits."""
    when = back(dt.datetime(2026, 10, 25, 2, 30, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"), fold=1))

    assert (zoneinfo.ZoneInfo("Europe/Berlin"), 1) == (when.tzinfo, when.fold)
    assert list(back({"b": 1, "a": 2})) == ["b", "a"]
    assert math.copysign(1, back(-0.0)) == -1.0
    assert list is back(collections.defaultdict(list)).default_factory
    assert back(collections.deque(maxlen=3)).maxlen == 3
    assert str(back(decimal.Decimal("1.00"))) == "1.00"
    assert [float, int, bool] == [type(x) for x in back([1.0, 1, True])]


@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
def test_not_a_number(text: str) -> None:
    """NaN and infinities are kept, unless the boundary is JSON's, which names where they stand."""
    assert text == repr(back([float(text)])[0])

    with pytest.raises(ValueNotStorableError, match=r"result\['a'\]\[1\] is a float that JSON does not have"):
        codec.encode({"a": [1, float(text)]}, allow_nan=False)


def test_model() -> None:
    """A pydantic model comes back whole: aliases, extra and private fields, and which fields were set."""
    order = Order(when=dt.date(2026, 1, 2), sum="2.50", colour=("red",))
    order._note = "mine"
    read = back(order)

    assert order == read and type(read) is Order
    assert ("mine", {"when", "amount", "colour"}) == (read._note, read.model_fields_set)
    assert read.colour == ("red",)


def test_reading_does_not_construct() -> None:
    """A data class is rebuilt without its ``__init__``: it was valid when it was stored."""
    value = Fixed("once")
    object.__setattr__(value, "x", "never again")

    assert back(value).x == "never again"


def test_class_that_grew() -> None:
    """A field that a data class has got since has its default; one that it lost is left out."""
    raw = json.dumps({"$loom": "dataclass", "class": f"{__name__}:Point", "v": {"x": 1}}).encode()
    slotted = json.dumps({"$loom": "dataclass", "class": f"{__name__}:Fixed", "v": {"x": 1, "gone": 2}}).encode()

    assert Point(1) == codec.decode_now(raw)
    assert Fixed(1) == codec.decode_now(slotted)


def test_large_parts_become_blobs() -> None:
    """What is above 64 KiB leaves the JSON: large bytes on their own, other large values as a whole."""
    part = codec.encode({"small": 1, "large": b"x" * 100_000})
    whole = codec.encode(list(range(50_000)))
    both = codec.encode([b"y" * 100_000, "z" * 100_000])

    assert ([len(b.data) for b in part.blobs], b'"small":1' in part.json) == ([100_000], True)
    assert [len(whole.blobs), len(both.blobs)] == [1, 2]
    assert {b.sha256 for b in part.blobs} == codec.references(part.json)
    assert codec.encode("x" * 1000).blobs == ()


def test_same_content_same_blob() -> None:
    """Equal large parts of a value are kept once."""
    assert len(codec.encode([b"x" * 100_000, b"x" * 100_000]).blobs) == 1


# ---------------------------------------------------------------- refusals


def refusal(value: Any) -> str:
    with pytest.raises(ValueNotStorableError) as caught:
        codec.encode(value)
    return str(caught.value)


def circle() -> list[Any]:
    inner: list[Any] = []
    inner.append({"self": inner})
    return inner


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"rows": [0, 1, 2, Fixed(sqlite3.connect(":memory:"))]}, r"result\['rows'\]\[3\]\.x is a sqlite3.Connection, .* open it inside the step"),
        ({1: "a"}, r"result is a dict with the int key 1, .* Keys are strings"),
        ([{"a": {None: 1}}], r"result\[0\]\['a'\] is a dict with the NoneType key None"),
        ({Word.A: 1}, r"the tests.Word key"),
        (circle(), r"result\[0\]\['self'\] is a list that contains itself"),
        ({"f": lambda: 1}, r"result\['f'\] is a function, .* Functions are not data"),
        ((x for x in ()), r"result is a generator, .* Return list"),
        ([threading.Lock()], r"result\[0\] is a _thread.lock"),
        (Point, r"result is a type, .* Return its name"),
        (object(), r"result is an object, .* Return plain data"),
        (math, r"result is a module"),
        ({("a", object())}, r"result\{…\}\[1\] is an object"),
        (type("Text", (str,), {})("x"), r"convert it to that type"),
        (collections.defaultdict(lambda: 1), r"Return dict\(value\)"),
        (dt.datetime(2026, 1, 1, tzinfo=type("Odd", (dt.tzinfo,), {"utcoffset": lambda s, w: dt.timedelta(0)})()), r"time zone .* Use zoneinfo"),
        ("x", None),
    ],
    ids=lambda v: None if isinstance(v, str) else type(v).__name__,
)  # fmt: skip
def test_refused(value: Any, sentence: str | None) -> None:
    """What cannot be kept is refused on its first way in, with the path inside the value and what to do."""
    if sentence is None:
        codec.encode(value)
        return
    assert re.search(sentence, refusal(value)), refusal(value)


def test_refused_open_file(tmp_path: pathlib.Path) -> None:
    """An open file is refused; the sentence says to return its path."""
    with open(tmp_path / "f", "w") as file:
        assert "return its path or its contents" in refusal([file])


def test_refused_local_class() -> None:
    """A class defined inside a function cannot be found again, so its values are refused at once."""

    @dataclasses.dataclass
    class Local:
        x: int

    assert "define it at the top level of a cell or module" in refusal({"a": Local(1)})
    assert "cannot be found again" in refusal(dataclasses.make_dataclass("Made", ["x"])(1))


def test_refused_deep() -> None:
    """A value nested beyond all reason is refused with a sentence, not with a RecursionError."""
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]

    assert "nested too deeply" in refusal(deep)
    with pytest.raises(UnhashableValue, match="nested too deeply"):
        codec.content_hash(deep)
    while deep:  # taken apart by hand: freeing it in one go would recurse too
        deep = deep[0]


def test_path_names_the_value() -> None:
    """The caller says what the value is called."""
    with pytest.raises(ValueNotStorableError, match=r"^output\['a'\] is a function"):
        codec.encode({"a": module_level}, path="output")


# ---------------------------------------------------------------- reading what is not there any more


def test_notebook_classes() -> None:
    """A class of the notebook is found in the namespace given, in its present definition."""
    main = types.ModuleType("__main__")
    exec(
        "import dataclasses, enum\n@dataclasses.dataclass\nclass Row:\n    x: int\nclass E(enum.Enum):\n    A = 1\n",
        main.__dict__,
    )
    before, sys.modules["__main__"] = sys.modules["__main__"], main
    try:
        raw = codec.encode([main.Row(1), main.E.A]).json
        rows = codec.decode_now(raw)
    finally:
        sys.modules["__main__"] = before

    assert [main.Row(1), main.E.A] == rows
    assert [main.Row(1), main.E.A] == codec.decode_now(raw, namespace=vars(main))
    with pytest.raises(
        UnknownClassError, match=r"a stored value is a Row, which is not defined in this notebook; run the cell"
    ):
        codec.decode_now(raw, namespace={})


@pytest.mark.parametrize(
    ("tag", "name"),
    [
        ("dataclass", "os:system"),
        ("dataclass", "subprocess:Popen"),
        ("model", "tests_nowhere.x:Y"),
        ("enum", "builtins:eval"),
        ("error", "pathlib:Path"),
        ("namedtuple", "builtins:tuple"),
        ("url", "builtins:str"),
        ("dataclass", f"{__name__}:Point.__init__"),
    ],
)
def test_only_data_classes_are_rebuilt(tag: str, name: str) -> None:
    """A stored name that is not a class of plain data is refused and never called."""
    node = {"$loom": tag, "class": name, "v": {"x": 1}, "name": "A", "set": []}
    if tag == "error":
        assert isinstance(
            codec.decode_error(events.ErrorRecord(type=name, message="m"), step="s", namespace=None), StepFailed
        )
        return
    with pytest.raises(UnknownClassError):
        codec.decode_now(json.dumps(node).encode())


def test_lost_enum_member() -> None:
    """A member that is gone is named."""
    raw = json.dumps({"$loom": "enum", "class": f"{__name__}:Colour", "name": "GREEN"}).encode()

    with pytest.raises(UnknownClassError, match="has no member 'GREEN' any more"):
        codec.decode_now(raw)


def test_newer_form() -> None:
    """A form that a newer version wrote asks for an upgrade."""
    with pytest.raises(LoomError, match="upgrade"):
        codec.decode_now(b'{"$loom":"hologram"}')


# ---------------------------------------------------------------- secrets


def test_secrets_leave_a_digest() -> None:
    """The text of a secret is nowhere in what is kept; equal secrets have equal digests."""
    secret = pydantic.SecretStr("hunter2")
    encoded = codec.encode({"token": secret, "raw": pydantic.SecretBytes(b"hunter2")})

    assert b"hunter2" not in encoded.json and "hunter2" not in codec.preview({"t": secret}).decode()
    assert codec.digest("hunter2") == codec.digest(secret) == codec.decode_now(encoded.json)["token"]
    assert codec.digest("hunter3") != codec.digest(secret)
    assert codec.content_hash(secret) == codec.content_hash(codec.digest(secret))
    with pytest.raises(LoomError, match="keeps only a digest of this secret"):
        codec.digest(secret).get_secret_value()


# ---------------------------------------------------------------- hashing


def test_hash_tells_types_apart() -> None:
    """Values that compare equal but are of different types, or look alike as JSON, have different hashes."""
    values: list[Any] = [
        1, True, 1.0, "1", [1], (1,), {1}, frozenset({1}), {"1": 1}, b"1", decimal.Decimal(1), decimal.Decimal("1.0"),
        -0.0, 0.0, None, "", float("nan"), "nan", {"$loom": "tuple", "v": [1]}, Pair(1), Fixed(1), dt.date(2026, 1, 1), "2026-01-01",
        Colour.RED, "r", {}, [], (),
    ]  # fmt: skip
    hashes = [codec.content_hash(v) for v in values]

    assert len(values) == len(set(hashes))
    assert {32} == {len(h) for h in hashes}


def test_hash_ignores_order_of_keys() -> None:
    """The order of a dict's keys, or of a set's items, is not content."""
    assert codec.content_hash({"a": 1, "b": (2,)}) == codec.content_hash({"b": (2,), "a": 1})
    assert codec.content_hash({"a": 1, "b": 2}) == codec.content_hash({"b": 2, "a": 1})
    assert codec.content_hash({f"k{i}" for i in range(50)}) == codec.content_hash(
        {f"k{i}" for i in reversed(range(50))}
    )
    assert codec.content_hash(collections.OrderedDict(a=1, b=2)) != codec.content_hash(
        collections.OrderedDict(b=2, a=1)
    )


def test_hash_is_stable_over_versions() -> None:
    """Hashes are stored, so they must never change: these were written by the first version."""
    assert {text: codec.content_hash(value) for text, value in SAMPLES.items()} == KNOWN


SAMPLES: dict[str, Any] = {
    "null": None,
    "int": 1,
    "text": "feed.csv",
    "dict": {"url": "feed.csv", "limit": 10, "deep": [1.5, True, None]},
    "tuple": (1, "a"),
    "date": dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
    "bytes": b"abc",
}
KNOWN = {
    "null": "941dffce4e4308ceb33e87326003257d",
    "int": "cea3878a334b240469d159ff840b6434",
    "text": "7b61f70da7aee31a9f626bc1b59b4cb8",
    "dict": "bbfa9c49c91cf4430a23a0dc1fc94484",
    "tuple": "2cd4cea6f3d41db95102f4f6be27ac89",
    "date": "b667bdaa488c23d3154c9802b968c7fa",
    "bytes": "c4c54570e0aafa22b67d7ad4e36de0bd",
}


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"db": sqlite3.connect(":memory:")}, r"argument\['db'\] is a sqlite3.Connection"),
        ([lambda: 1], r"argument\[0\] is a lambda or inner function"),
        ((x for x in ()), "argument is a generator"),
        (Fixed(math), r"argument\.x is a module"),
        (object(), "argument is an object"),
    ],
    ids=["connection", "lambda", "generator", "module", "object"],
)
def test_unhashable(value: Any, sentence: str) -> None:
    """What has no content is refused with its path."""
    with pytest.raises(UnhashableValue, match=sentence):
        codec.content_hash(value)


def test_hash_of_things_that_are_no_values() -> None:
    """Functions, classes, partials, and dicts with other keys identify a call, though they cannot be kept."""
    double = functools.partial(module_level, x=2)

    assert codec.content_hash(module_level) == codec.content_hash(module_level)
    assert codec.content_hash(module_level) != codec.content_hash(back)
    assert codec.content_hash(double) != codec.content_hash(functools.partial(module_level, x=3))
    assert codec.content_hash({1: "a", 2: "b"}) == codec.content_hash({2: "b", 1: "a"})
    assert codec.content_hash({1: "a"}) != codec.content_hash({"1": "a"})
    assert codec.content_hash(Order) != codec.content_hash(Site)
    assert codec.content_hash(len) != codec.content_hash(max)


def test_function_hash_follows_code(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function's hash changes with its code, not with comments or docstrings."""
    monkeypatch.syspath_prepend(tmp_path)
    hashes = []
    for i, body in enumerate(['"""Doc."""\n    return 1', "return 1  # why", "return 2"]):
        (tmp_path / f"hashed{i}.py").write_text(f"def f():\n    {body}\n")
        f = importlib.import_module(f"hashed{i}").f
        f.__module__ = "hashed"
        hashes.append(codec.content_hash(f))

    assert hashes[0] == hashes[1] != hashes[2]


# ---------------------------------------------------------------- any value


atoms = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
    | st.binary(max_size=20) | st.decimals(allow_nan=False) | st.uuids() | st.dates() | st.times()
    | st.datetimes(timezones=st.none() | st.just(dt.UTC) | st.timezones()) | st.timedeltas() | st.complex_numbers(allow_nan=False)
    | st.sampled_from([Colour.RED, Colour.BLUE, Level.LOW, Rights.READ])
)  # fmt: skip
keys = st.text(max_size=5) | st.sampled_from(["$loom", "v", "blob", "class"])
nested = st.recursive(
    atoms,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
        | st.builds(Pair, inner, inner)
        | st.builds(Fixed, inner)
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("value", [{"$loom": None, "blob": ""}, {"$loom": "json", "blob": "a" * 64, "v": {"$loom": 1}}])
def test_a_persons_own_keys_name_no_blob(value: Any) -> None:
    """Whatever they are called: a dict that looks like one of our forms is a dict."""
    assert back(value) == value
    assert back([value, {"x": value}]) == [value, {"x": value}]


@settings(max_examples=200, deadline=None)
@given(nested)
def test_any_nested_value(value: Any) -> None:
    """Whatever is nested in whatever comes back equal, with the same hash and exactly the same types."""
    read = back(value)

    assert value == read
    assert repr(value) == repr(read)
    assert codec.encode(value) == codec.encode(read)


@settings(max_examples=100, deadline=None)
@given(nested, st.randoms())
def test_any_hash_ignores_key_order(value: Any, random: Any) -> None:
    """Shuffling the keys of every dict leaves the hash as it is."""

    def shuffled(v: Any) -> Any:
        if type(v) is dict:
            items = [(k, shuffled(x)) for k, x in v.items()]
            random.shuffle(items)
            return dict(items)
        return [shuffled(x) for x in v] if type(v) is list else v

    assert codec.content_hash(value) == codec.content_hash(shuffled(value))


@settings(max_examples=100, deadline=None)
@given(nested)
def test_any_preview_is_bounded(value: Any) -> None:
    """A preview is JSON within its limit, whatever the value."""
    raw = codec.preview(value, limit=200)

    json.loads(raw)
    assert len(raw) <= 200


# ---------------------------------------------------------------- previews


def test_preview_never_raises() -> None:
    """Circles, hostile objects, connections and endless text have a preview too."""

    class Hostile:
        def __repr__(self) -> str:
            raise AssertionError("must not run")

        __str__ = __len__ = __iter__ = __repr__  # type: ignore[assignment]

    for value in (
        circle(),
        Hostile(),
        {"a": Hostile(), "b": sqlite3.connect(":memory:")},
        ["x" * 10**6] * 100,
        {i: i for i in range(10**4)},
    ):
        raw = codec.preview(value)
        json.loads(raw)
        assert len(raw) <= 2_000


def test_preview_is_for_people() -> None:
    """A preview says what a value is in few words."""
    value = {
        "when": dt.date(2026, 1, 2),
        "colour": Colour.RED,
        "who": Pair("a", b"123"),
        "path": pathlib.Path("x"),
        "n": math.nan,
    }

    assert json.loads(codec.preview(value)) == {
        "when": "2026-01-02",
        "colour": "Colour.RED",
        "who": {"left": "a", "right": "bytes (3 bytes)"},
        "path": "x",
        "n": "nan",
    }


# ---------------------------------------------------------------- exceptions


def raised(exc: BaseException) -> BaseException:
    try:
        raise exc
    except BaseException as caught:
        return caught


def reborn(exc: BaseException) -> BaseException:
    """An exception as it comes back from an event."""
    record = codec.encode_error(raised(exc))
    stored = msgspec.json.decode(msgspec.json.encode(record), type=events.ErrorRecord)
    return codec.decode_error(stored, step="fetch", namespace=None)


def os_error() -> OSError:
    try:
        os.stat("/nowhere/at/all")
    except OSError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(
    "exc",
    [
        ValueError("no", 3, (1, 2)), KeyError("k"), ZeroDivisionError(), os_error(), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        ImportError("m", name="n", path="p"), RetryableError("later", retry_after_s=5), StepFailed("s", "k", "m"), StopIteration(4),
        SystemExit(3), Slotted("x"), TimeoutError(), asyncio.CancelledError(), json.JSONDecodeError("bad", "{", 1),
    ],
    ids=lambda e: type(e).__name__,
)  # fmt: skip
def test_exception_round_trip(exc: BaseException) -> None:
    """An exception comes back as the same class with the same arguments, attributes and text."""
    read = reborn(exc)

    assert codec.rebuildable(exc)
    assert (type(exc), exc.args, str(exc)) == (type(read), read.args, str(read))
    for name in ("errno", "filename", "name", "retry_after_s", "value", "code", "start", "pos", "lineno"):
        assert getattr(exc, name, None) == getattr(read, name, None)


def test_exception_without_its_init() -> None:
    """A class whose ``__init__`` wants something else is rebuilt all the same; what could not be kept says so."""
    read = reborn(HttpProblem(sqlite3.connect(":memory:"), status=404))

    assert isinstance(read, HttpProblem)
    assert (str(read), read.status) == ("HTTP 404", 404)
    with pytest.raises(AttributeError, match=r"this sqlite3\.Connection belonged to the exception"):
        _ = read.response.text


def test_exception_not_rebuildable() -> None:
    """A class that cannot be found again is StepFailed with its name and text; ``rebuildable`` says so beforehand."""

    class Inner(Exception):
        pass

    read = reborn(Inner("why"))

    assert not codec.rebuildable(Inner("why"))
    assert isinstance(read, StepFailed)
    assert "step 'fetch' failed with" in str(read) and "why" in str(read)


def test_exception_cause_notes_and_group() -> None:
    """Causes, notes and the members of a group come back."""
    exc = ExceptionGroup("several", [ValueError(1), HttpProblem(None, status=500)])
    exc.add_note("look here")
    exc.__cause__ = KeyError("k")
    read = reborn(exc)

    assert isinstance(read, ExceptionGroup)
    assert [ValueError, HttpProblem] == [type(e) for e in read.exceptions]
    assert (["look here"], KeyError) == (read.__notes__, type(read.__cause__))


class Both(KeyError, AttributeError):
    pass


class Checked(pydantic.BaseModel):
    n: int
    word: str = "a"

    @pydantic.field_validator("word")
    @classmethod
    def known(cls, word: str) -> str:
        if word == "custom":
            raise PydanticCustomError("mine", "not {word}", {"word": word})
        if word != "a":
            raise ValueError("unknown word")
        return word


@pytest.mark.parametrize("fields", [{"n": "x"}, {}, {"n": object(), "word": "b"}, {"n": 1, "word": "custom"}])
def test_validation_error(fields: dict[str, Any]) -> None:
    """pydantic's own error comes back as itself, with its problems."""
    with pytest.raises(pydantic.ValidationError) as caught:
        Checked(**fields)
    read = reborn(caught.value)

    assert codec.rebuildable(caught.value)
    assert isinstance(read, pydantic.ValidationError)
    assert [(e["type"], e["loc"], e["msg"]) for e in caught.value.errors()] == [
        (e["type"], e["loc"], e["msg"]) for e in read.errors()
    ]


def test_rebuildable_tells_the_truth() -> None:
    """What ``rebuildable`` promises is what reading gives, whatever an exception holds."""

    class Inner(Exception):
        pass

    awkward: list[BaseException] = [
        Both("k"),
        ExceptionGroup("local member", [Inner("x")]),
        ExceptionGroup("large", [ValueError("x" * 50_000) for _ in range(5)]),
        ExceptionGroup("connection", [ValueError(sqlite3.connect(":memory:"))]),
        ValueError(Inner("x")),
        subprocess.CalledProcessError(3, ["ls"], b"out", b"err"),
        sqlite3.OperationalError("no such table"),
        Inner("x"),
    ]
    for exc in awkward:
        read = reborn(exc)
        assert codec.rebuildable(exc) == (type(read) is type(exc)), exc
        assert str(exc) in str(read)


def test_exception_in_a_circle() -> None:
    """An exception that holds itself, or is its own cause's cause, is written without end or error."""
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    first.me = [first]  # type: ignore[attr-defined]

    assert str(reborn(first).__cause__) == "b"


def test_exception_as_a_value() -> None:
    """``gather(return_exceptions=True)`` gives values that hold exceptions; they are values too."""
    read = codec.decode_now(codec.encode([1, ValueError("no")]).json)

    assert (1, ValueError, ("no",)) == (read[0], type(read[1]), read[1].args)


def test_exception_told_on() -> None:
    """A rebuilt exception that is raised again keeps the lines where it was first raised."""
    record = codec.encode_error(raised(ValueError("x")))

    assert record == codec.encode_error(raised(codec.decode_error(record, step="s", namespace=None)))


def test_frames_are_the_persons_own() -> None:
    """Frames of libraries and of the standard library are left out; cells are called cells."""
    source = "import json\ndef load(text):\n    return json.loads(text)\n"
    code = compile(source, "/tmp/ipykernel_123/456.py", "exec")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(code, namespace)
    try:
        namespace["load"]("{")
    except ValueError as error:
        record = codec.encode_error(error)

    assert [(f.file, f.line, f.name) for f in record.frames if f.name == "load"] == [("cell", 3, "load")]
    assert not [f for f in record.frames if "json" in f.file]


def test_frames_where_there_are_none_of_the_persons() -> None:
    """A failure with no line of the person's shows the last ones there are."""
    with pytest.raises(ValueError) as caught:
        json.loads("{")
    caught.value.__traceback__ = caught.tb.tb_next
    record = codec.encode_error(caught.value)

    assert record.frames and record.frames[-1].file.endswith(".py")


def test_named_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """The notebook may say which cell a code file is."""
    from loom_kernel import cells

    monkeypatch.setattr(cells, "_name", lambda file: "cell [3]" if file.endswith("test_codec.py") else None)

    assert codec.encode_error(raised(ValueError())).frames[-1].file == "cell [3]"


def test_exceptions_that_misbehave() -> None:
    """An exception whose text cannot be made, or that holds half a megabyte, is still recorded."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert "Mute" in codec.encode_error(Mute()).message
    record = codec.encode_error(ValueError("x" * 500_000))
    assert len(msgspec.json.encode(record)) < codec.BLOB_BYTES
    assert isinstance(codec.decode_error(record, step="s", namespace=None), ValueError)


# ---------------------------------------------------------------- figures and pictures


def test_figures_come_back_as_pictures() -> None:
    """Of a matplotlib figure, an axes or a picture what was drawn is kept; it shows itself, and has a size."""
    pytest.importorskip("matplotlib")
    pil = pytest.importorskip("PIL.Image")
    from matplotlib.figure import Figure

    figure = Figure()
    axes = figure.subplots()
    axes.plot([1, 4, 9])
    for value in (figure, axes, pil.new("RGB", (40, 30)), pil.new("CMYK", (4, 3))):
        encoded = codec.encode({"deep": [value]})
        assert encoded.stands_in
        [back] = codec.decode_now(encoded.json, dict(encoded.blobs).__getitem__)["deep"]
        assert isinstance(back, codec.Image) and back._repr_png_().startswith(b"\x89PNG") and back.width and back.height
        again = codec.encode(back)
        assert not again.stands_in, "a picture is a value like any other"
        assert codec.decode_now(again.json, dict(again.blobs).__getitem__) == back
        assert codec.content_hash(back) == codec.content_hash(codec.decode_now(again.json))


def test_a_figure_drawn_twice_is_the_same_picture() -> None:
    """Equal figures give equal bytes, so that a picture can be compared and kept once."""
    figures = pytest.importorskip("matplotlib.figure")

    def drawn() -> bytes:
        figure = figures.Figure()
        figure.subplots().bar([1, 2], [3, 4])
        return codec.encode(figure).json

    assert drawn() == drawn()


def test_figures_of_plotly_and_altair_keep_their_json() -> None:
    """What the library itself can read again is kept beside the picture; never HTML."""
    go = pytest.importorskip("plotly.graph_objects")
    alt = pytest.importorskip("altair")
    chart = alt.Chart(alt.Data(values=[{"a": 1}])).mark_bar().encode(x="a:Q")
    for value, media in ((go.Figure(go.Bar(y=[1, 2])), "plotly"), (chart, "vegalite")):
        encoded = codec.encode(value)
        back = codec.decode_now(encoded.json, dict(encoded.blobs).__getitem__)
        bundle = back._repr_mimebundle_()
        assert media in back.media_type and isinstance(bundle[back.media_type], dict)
        assert "text/html" not in bundle


def test_what_a_picture_lacks_is_said() -> None:
    """Using the picture as the figure it was says what to do; a part of a figure cannot be kept; a figure has no hash."""
    figures = pytest.importorskip("matplotlib.figure")
    figure = figures.Figure()
    axes = figure.subplots()
    axes.plot([1, 2])
    with pytest.raises(AttributeError, match="draw in the step"):
        codec.decode_now(codec.encode(figure).json).axes
    with pytest.raises(ValueNotStorableError, match=r"result\[0\] is a matplotlib.Line2D"):
        codec.encode([axes.lines[0]])
    with pytest.raises(UnhashableValue, match="drawn from"):
        codec.content_hash(figure)


def test_large_pictures_are_shown_small() -> None:
    """A picture beside a step is bounded, whatever its size."""
    pil = pytest.importorskip("PIL.Image")
    encoded = codec.encode(pil.effect_noise((1600, 1200), 80))
    [picture] = [codec.decode_now(encoded.json, dict(encoded.blobs).__getitem__)]
    small = picture.small(40_000)
    assert len(picture.data) > 1_000_000 and small is not None and len(small) <= 40_000
