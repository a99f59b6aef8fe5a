"""Every kind of value through a killed kernel: it comes back from the journal as it was, in type, dtype, index, zone, order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.notebook.kernel import Kernel

pytestmark = pytest.mark.timeout(180)

SETUP = '''%load_ext loom_kernel
import collections, dataclasses, datetime as dt, decimal, enum, fractions, ipaddress, math, pathlib, re, uuid, zoneinfo
import numpy as np, pandas as pd, polars as pl, pyarrow as pa, pydantic
from loom_kernel import codec, step, workflow

class Colour(enum.Enum):
    RED = "r"

class Mode(enum.Flag):
    READ = 1
    WRITE = 2

@dataclasses.dataclass
class Point:
    x: float
    tags: tuple[str, ...]

class Order(pydantic.BaseModel):
    id: uuid.UUID
    price: decimal.Decimal
    at: dt.datetime

class Pair(collections.namedtuple("Pair", "left right")):
    pass

Berlin = zoneinfo.ZoneInfo("Europe/Berlin")
TIMES = pd.date_range("2026-03-28 22:00", periods=5, freq="h", tz="Europe/Berlin")

def values():
    frame = pd.DataFrame(
        {
            "z": [3, 1, 2, 5, 4],
            "a": [1.5, np.nan, -0.0, np.inf, 2.0],
            "text": ["é", None, "", "x", "y"],
            "when": TIMES,
            "kind": pd.Categorical(["b", "a", "b", None, "a"], categories=["b", "a", "c"], ordered=True),
            "maybe": pd.array([1, None, 3, 4, 5], dtype="Int64"),
            "yes": pd.array([True, None, False, True, None], dtype="boolean"),
            "took": pd.to_timedelta([1, 2, 3, 4, 5], unit="s"),
            "month": pd.period_range("2026-01", periods=5, freq="M"),
            "small": np.array([1, 2, 3, 4, 5], dtype="int8"),
        },
        index=pd.MultiIndex.from_tuples([("b", 2), ("b", 1), ("a", 9), ("a", 1), ("c", 0)], names=["group", None]),
    )
    return {
        "none": None, "true": True, "int": 2**200, "float": -0.0, "nan": math.nan, "inf": -math.inf,
        "text": "é\\U0001f600\\x00", "lone": "\\ud800", "bytes": b"\\x00\\xff", "large bytes": bytes(range(256)) * 1_000,
        "bytearray": bytearray(b"ab"), "complex": 1 - 2j, "range": range(1, 9, 3),
        "list": [1, [2, (3, {"k": None})]], "dict order": {"z": 1, "a": {"$loom": "x"}, "m": 2}, "tuple": ((), (1,)),
        "set": {1, "a", (2, 3)}, "frozenset": frozenset({1}), "ordered": collections.OrderedDict(b=1, a=2),
        "counter": collections.Counter("aab"), "deque": collections.deque([1, 2], 5),
        "naive": dt.datetime(2026, 1, 2, 3, 4, 5, 6), "utc": dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
        "berlin": dt.datetime(2026, 10, 25, 2, 30, tzinfo=Berlin, fold=1),
        "offset": dt.datetime(2026, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=45))),
        "date": dt.date(2026, 1, 2), "time": dt.time(3, 4, tzinfo=dt.UTC), "delta": dt.timedelta(days=-1, microseconds=7),
        "decimal": decimal.Decimal("1.100"), "fraction": fractions.Fraction(1, 3), "uuid": uuid.UUID(int=7),
        "enum": Colour.RED, "flag": Mode.READ | Mode.WRITE, "path": pathlib.Path("a/b"),
        "windows": pathlib.PureWindowsPath("c:/x"), "ip": ipaddress.ip_address("::1"), "pattern": re.compile("a.", re.I),
        "dataclass": Point(1.5, ("a", "b")), "named": Pair(1, Point(0.0, ())),
        "model": Order(id=uuid.UUID(int=1), price=decimal.Decimal("2.50"), at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
        "frame": frame, "by time": pd.DataFrame({"v": range(5)}, index=TIMES.rename("at")),
        "columns": pd.DataFrame([[1, 2]], columns=pd.Index(["b", "a"], name="letters")),
        "empty": pd.DataFrame({"a": pd.Series([], dtype="datetime64[ms, UTC]")}),
        "series": pd.Series([1.0, None], index=["y", "x"], name="s"), "index": pd.Index([3, 1, 2], name="i"),
        "timestamp": pd.Timestamp("2026-01-02 03:04", tz="Asia/Kathmandu"),
        "polars": pl.DataFrame({
            "b": [1, None, 3], "a": ["x", "", None], "c": pl.Series([b"1", None, b""]),
            "d": pl.Series([[1], [], None], dtype=pl.List(pl.Int16)),
            "e": pl.Series([dt.datetime(2026, 1, 1)] * 3, dtype=pl.Datetime("ms", "Europe/Berlin")),
            "f": pl.Series(["u", "v", "u"], dtype=pl.Categorical), "g": pl.Series([1, 2, 3], dtype=pl.UInt8),
        }),
        "pl series": pl.Series("s", [dt.date(2026, 1, 1), None]),
        "arrow": pa.table({"b": pa.array([1, None], pa.int16()), "a": pa.array([{"k": [1.0]}, None]),
                           "t": pa.array([1, 2], pa.timestamp("us", "Asia/Tokyo"))},
                          metadata={"made": "here"}),
        "batch": pa.RecordBatch.from_pydict({"a": ["x", None]}),
        "array": np.arange(6, dtype=">i4").reshape(2, 3), "fortran": np.asfortranarray(np.ones((2, 3), dtype="float32")),
        "zero": np.array(5, dtype="uint8"), "dates": np.array(["2026-01-01", "NaT"], dtype="datetime64[D]"),
        "structured": np.array([(1, 2.0)], dtype=[("n", "i2"), ("x", "f8")]), "scalar": np.float32(0.1),
        "deep": {"a": [frame.head(2), (np.zeros(3), {"p": pl.DataFrame({"x": [1]})})]},
    }

def same(a, b, at=""):
    """Where the two differ, in words."""
    if type(a) is not type(b):
        return [f"{at}: {type(a).__name__} is not {type(b).__name__}"]
    if isinstance(a, (pd.DataFrame, pd.Series, pd.Index)):
        check = {pd.DataFrame: pd.testing.assert_frame_equal, pd.Series: pd.testing.assert_series_equal}
        try:
            check.get(type(a), pd.testing.assert_index_equal)(a, b, check_exact=True)
        except AssertionError as error:
            return [f"{at}: {error}"]
        if isinstance(a, pd.DataFrame):
            return [f"{at}: {c}" for c in a if a[c].dtype != b[c].dtype] + same(list(a.columns), list(b.columns), at)
        return []
    if isinstance(a, np.ndarray):
        ok = a.dtype == b.dtype and a.shape == b.shape and a.flags["F_CONTIGUOUS"] == b.flags["F_CONTIGUOUS"]
        return [] if ok and a.tobytes("A") == b.tobytes("A") else [f"{at}: {a.dtype} {b.dtype} {a!r} {b!r}"]
    if isinstance(a, (pl.DataFrame, pl.Series)):
        return [] if a.equals(b) and (a.schema == b.schema if isinstance(a, pl.DataFrame) else a.dtype == b.dtype) else [f"{at}: {a} {b}"]
    if isinstance(a, (pa.Table, pa.RecordBatch)):
        return [] if a.equals(b) and a.schema.equals(b.schema, check_metadata=True) else [f"{at}: {a.schema} {b.schema}"]
    if isinstance(a, dict):
        return same(list(a), list(b), at) or [d for k in a for d in same(a[k], b[k], f"{at}[{k!r}]")]
    if isinstance(a, (list, tuple)) and not isinstance(a, Pair):
        return [] if len(a) == len(b) == 0 else [d for n, (x, y) in enumerate(zip(a, b, strict=True)) for d in same(x, y, f"{at}[{n}]")]
    if isinstance(a, (float, np.floating)):
        return [] if np.array(a).tobytes() == np.array(b).tobytes() else [f"{at}: {a} {b}"]
    if isinstance(a, dt.datetime):
        return [] if (a, a.fold, str(a.tzinfo), a.isoformat()) == (b, b.fold, str(b.tzinfo), b.isoformat()) else [f"{at}: {a} {b}"]
    return [] if a == b and repr(a) == repr(b) else [f"{at}: {a!r} {b!r}"]

@step
def give(name):
    with open("effects.txt", "a") as file:
        file.write(name + "\\n")
    return values()[name]

@step
def draw():
    import matplotlib.pyplot as plt
    import PIL.Image
    with open("effects.txt", "a") as file:
        file.write("draw\\n")
    plt.plot([1, 3, 2])
    return {"figure": plt.gcf(), "picture": PIL.Image.new("RGB", (30, 20), "red")}

@workflow
async def trip(ctx) -> dict:
    found = {name: await give(name) for name in values()}
    await ctx.put("everything", found)
    drawn = await draw()
    first = same(found, values()) + same(ctx.get("everything"), values(), "put")
    before = [codec.content_hash(drawn[k]) for k in drawn]
    hashes = {k: codec.content_hash(found[k]) for k in found}
    globals()["seen"] = (before, hashes)
    await ctx.ui.confirm("Go on?", name="go")
    return {"different": first, "kinds": [type(drawn[k]).__name__ for k in drawn], "sizes": [drawn["picture"].width]}
'''
START = "r = trip.start()"


def test_every_kind_of_value_comes_back_as_it_was(project: Path) -> None:
    """The kernel is killed; the new one runs no step again, and every value equals one made anew."""
    for library in ("numpy", "pandas", "polars", "pyarrow", "matplotlib", "PIL"):
        pytest.importorskip(library)
    effects = project / "effects.txt"
    with Kernel(project) as kernel:
        kernel.ok(SETUP, cell_id="a")
        kernel.ok(START, cell_id="b")
        kernel.question()
        seen = kernel.ok("seen").text
        kernel.kill()
    once = effects.read_text()
    assert len(once.splitlines()) > 55 and len(set(once.splitlines())) == len(once.splitlines())
    with Kernel(project) as kernel:
        kernel.ok(SETUP, cell_id="a")
        assert "resumed the run of" in kernel.ok(START, cell_id="b").text
        kernel.question()
        kernel.answer("yes")
        kernel.ok("found = (await r).result")
        assert kernel.ok("seen").text == seen, "pictures and identities are the same"
        assert kernel.ok("found['different']").text.splitlines()[-1] == "[]"
        assert kernel.ok("found['kinds'], found['sizes']").text.splitlines()[-1] == "(['Image', 'Image'], [30])"
        assert kernel.ok("same(await r['give#42'].value_async(), values()[list(values())[41]])").text.endswith("[]")
    assert effects.read_text() == once, "no step ran again"


def test_an_unsupported_value_fails_at_once_with_its_place(project: Path) -> None:
    """On its first execution, not at a restart: the path of the culprit, and what to do instead."""
    with Kernel(project) as kernel:
        kernel.ok("%load_ext loom_kernel\nfrom loom_kernel import step, workflow")
        kernel.ok("@step\ndef bad():\n    return {'rows': [1, {'file': open('/dev/null')}]}")
        kernel.ok("@workflow\nasync def w(ctx):\n    return await bad()")
        cell = kernel.run("await w.start()")
        assert cell.error is not None
        assert "result['rows'][1]['file'] is a" in cell.error and "return its path or its contents" in cell.error
        assert kernel.ok("%loomsql select status, error from runs").text.splitlines()[-1].startswith("failed")
