"""Tables and arrays are values: the same kind comes back, equal in type, dtype, index, time zone and order."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal, assert_series_equal

from loom_kernel import codec, codec_tables
from loom_kernel.errors import LoomError, UnhashableValue, ValueNotStorableError


def back(value: Any) -> Any:
    """A value, written and read; its hash must survive."""
    encoded = codec.encode(value)
    blobs = {blob.sha256: blob.data for blob in encoded.blobs}
    read = codec.decode_now(encoded.json, blobs.__getitem__)

    assert type(value) is type(read)
    assert codec.content_hash(value) == codec.content_hash(read)
    return read


def wide_frame(n: int = 5) -> pd.DataFrame:
    """A frame with a column of every dtype."""
    index = pd.date_range("2020-03-27", periods=n, freq="D", tz="Europe/Berlin", name="when")
    columns: dict[str, Any] = {
        "int": range(n),
        "u8": np.arange(n, dtype="u1"),
        "float": [1.5, np.nan, np.inf, -0.0, 5e-324],
        "f16": np.arange(n, dtype="f2"),
        "f32": np.arange(n, dtype="f4"),
        "bool": [True, False] * 2 + [True],
        "complex": np.arange(n) + 1j,
        "text": ["a", "é", "", "x" * 100, "e"],
        "text and null": ["a", None, "c", None, "e"],
        "python text": pd.array(list("abcde"), dtype=pd.StringDtype("python")),
        "text na": pd.array(["a", pd.NA, "c", "d", "e"], dtype="string"),
        "Int64": pd.array([1, None, 3, 4, 5], "Int64"),
        "Float32": pd.array([1, None, 3, 4, 5], "Float32"),
        "boolean": pd.array([True, None, False, None, True], "boolean"),
        "arrow": pd.array([1, 2, None, 4, 5], "int64[pyarrow]"),
        "category": pd.Categorical([*"abaa", None], categories=["z", "a", "b"], ordered=True),
        "category of int": pd.Categorical([1, 2, 1, 2, None]),
        "cut": pd.cut(np.arange(n), 3),
        "period": pd.period_range("2020", periods=n, freq="M"),
        "tz": index,
        "utc": index.tz_convert("UTC"),
        "offset": index.tz_convert(dt.timezone(dt.timedelta(hours=2))),
        "naive": [*index.tz_localize(None)[:4], pd.NaT],
        "ms": index.tz_localize(None).as_unit("ms"),
        "s": index.tz_localize(None).as_unit("s"),
        "delta": pd.to_timedelta([0, 1, 2, None, 4], unit="s"),
        "sparse": pd.arrays.SparseArray([0, 0, 1, 0, 2]),
    }
    frame = pd.DataFrame(columns)
    for name, cells in OBJECTS.items():
        frame[name] = pd.Series(cells, dtype=object)
    return frame.set_index(index)


OBJECTS: dict[str, list[Any]] = {
    "objects": ["a", 1, None, np.nan, (1, 2)],
    "text or None": ["a", None, "b", "c", None],
    "text or nan": ["a", np.nan, "b", "c", np.nan],
    "text or NA": ["a", pd.NA, "b", "c", pd.NA],
    "lists": [[1], [2, 3], [], [None], [5]],
    "decimals": [decimal.Decimal("1.0"), decimal.Decimal("1.00"), None, decimal.Decimal(3), decimal.Decimal(4)],
    "dates": [dt.date(2020, 1, 1)] * 5,
    "numbers": [1, 2.0, True, np.int8(3), None],
}

WIDE = wide_frame()

FRAMES: dict[str, pd.DataFrame] = {
    "every dtype": WIDE,
    "empty": pd.DataFrame(),
    "no columns": pd.DataFrame(index=[3, 1]),
    "no rows": WIDE.iloc[:0],
    "same name twice": pd.DataFrame([[1, "x"]], columns=["a", "a"]),
    "names that collide": pd.DataFrame([[1, 2, 3]], columns=["a", "a", "a.2"]),
    "range columns": pd.DataFrame([[1, 2]]),
    "mixed names": pd.DataFrame([[1, 2, 3]], columns=[5, "x", None]),
    "levels of names": pd.DataFrame(
        [[1, 2]], columns=pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["x", None])
    ),
    "date names": pd.DataFrame([[1, 2]], columns=pd.date_range("2020", periods=2)),
    "named columns": pd.DataFrame({"a": [1]}).rename_axis(columns="what"),
    "levels of rows": WIDE.set_index(["int", "text", "category"])[["float"]],
    "levels, unnamed": pd.concat({"a": pd.DataFrame({"x": [1]}), "b": pd.DataFrame({"x": [2]})}),
    "some rows": WIDE[1:3],
    "every second row": WIDE[::2],
    "columns first": pd.DataFrame(np.asfortranarray(np.arange(12.0).reshape(3, 4))),
    "grouped": WIDE.groupby("text", observed=True)["float"].agg(["min", "max"]),
    "described": WIDE[["int", "f32", "naive"]].describe(),
    "crossed": pd.crosstab(WIDE["text"], WIDE["bool"]),
    "stepped range": pd.DataFrame({"a": [1, 2]}, index=pd.RangeIndex(10, 0, -5, name=("a", 1))),
    "index of text": pd.DataFrame({"a": [1, 2]}, index=["x", "y"]),
    "index of categories": pd.DataFrame({"a": [1, 2]}, index=pd.CategoricalIndex(list("ab"))),
    "index of intervals": pd.DataFrame({"a": [1, 2]}, index=pd.interval_range(0, 2, closed="left")),
    "index of periods": pd.DataFrame({"a": [1, 2]}, index=pd.period_range("2020", periods=2, freq="Q")),
    "same index twice": pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}, index=[7, 7]),
    "fixed offset": pd.DataFrame({"a": pd.to_datetime(["2020-01-01T00:00:00+02:00"])}),
    "big ints as objects": pd.DataFrame({"a": pd.Series([2**70, 1], dtype=object)}),
    "categories, none used": pd.DataFrame({"a": pd.Categorical([None, None], categories=["x"])}),
    "categories, none at all": pd.DataFrame({"a": pd.Categorical([None, None])}),
}


@pytest.mark.parametrize("name", FRAMES)
def test_pandas_frame(name: str) -> None:
    """A frame comes back with its dtypes, index, labels, frequencies and order."""
    frame = FRAMES[name]
    read = back(frame)

    pd.testing.assert_frame_equal(frame, read, check_freq=True, check_exact=True, check_column_type=True)
    assert frame.columns.dtype == read.columns.dtype
    assert list(frame.dtypes) == list(read.dtypes)
    assert type(frame.index) is type(read.index) and type(frame.columns) is type(read.columns)


def test_pandas_objects() -> None:
    """An object column gives back each cell as it was: text, numbers, lists, and which kind of nothing."""
    read = back(WIDE)

    for name, cells in OBJECTS.items():
        assert [type(cell) for cell in cells] == [type(cell) for cell in read[name]], name
        assert repr(cells) == repr(list(read[name])), name


def test_pandas_attrs_and_nesting() -> None:
    """A frame's attrs come back, and a frame may stand anywhere inside a value."""
    frame = pd.DataFrame({"a": [1]})
    frame.attrs["source"] = ("feed", 1)
    read = back({"tables": [(frame, frame["a"])]})["tables"][0]

    assert read[0].attrs == {"source": ("feed", 1)}
    pd.testing.assert_series_equal(frame["a"], read[1])


SERIES: dict[str, Any] = {
    "floats": WIDE["float"],
    "named by a tuple": pd.Series([1, 2], name=("a", 1)),
    "unnamed": pd.Series(list("ab")),
    "counted": WIDE["text"].value_counts(),
    "empty": pd.Series([], dtype="datetime64[ns]"),
    "objects": pd.Series([1, "a"], dtype=object, index=list("xy")),
}


@pytest.mark.parametrize("name", SERIES)
def test_pandas_series(name: str) -> None:
    """A series comes back with its name, dtype and index."""
    pd.testing.assert_series_equal(SERIES[name], back(SERIES[name]), check_freq=True)


INDEXES: dict[str, Any] = {
    "dates": WIDE.index,
    "range": pd.RangeIndex(3, name="n"),
    "levels": WIDE.set_index(["int", "text"]).index,
    "text": pd.Index(["a", "b"]),
    "objects": pd.Index([1, "b"], dtype=object),
    "categories": pd.CategoricalIndex(list("ab"), categories=["b", "a"]),
    "deltas": pd.timedelta_range(0, periods=3, freq="s"),
}


@pytest.mark.parametrize("name", INDEXES)
def test_pandas_index(name: str) -> None:
    """An index alone is a value too."""
    read = back(INDEXES[name])

    pd.testing.assert_index_equal(INDEXES[name], read)
    assert getattr(INDEXES[name], "freq", None) == getattr(read, "freq", None)


def test_pandas_scalars() -> None:
    """Timestamps, deltas, periods, intervals and missing values come back with unit and time zone."""
    for value in (
        pd.Timestamp("2020-01-01 00:00:00.123456789"),
        pd.Timestamp("2020-10-25 01:30", tz="UTC").tz_convert("Europe/Berlin"),
        pd.Timestamp("2020", tz="UTC").as_unit("s"),
        pd.Timedelta("1s"),
        pd.Timedelta(5, "ns"),
        pd.Period("2020-01", "M"),
        pd.Interval(1, 2, closed="left"),
        pd.Interval(pd.Timestamp("2020"), pd.Timestamp("2021")),
    ):
        read = back(value)
        assert value == read and str(value) == str(read)
        assert getattr(value, "unit", None) == getattr(read, "unit", None)
    assert back(pd.NaT) is pd.NaT and back(pd.NA) is pd.NA
    assert str(back(WIDE["cut"].array)) == str(WIDE["cut"].array)


def test_pandas_hash_is_content() -> None:
    """Equal contents have equal hashes however they lie in memory; any change of contents, dtype or labels shows."""
    frame = pd.DataFrame({"a": [1.0, 2.0, np.nan], "b": ["x", "y", "z"]})
    negative_nan = np.frombuffer(np.array([0xFFF8000000000000], "u8").tobytes(), "f8")[0]
    same = [
        frame.copy(),
        pd.concat([frame[:1], frame[1:]]),
        pd.concat([frame, frame])[:3],
        frame.assign(a=[1.0, 2.0, negative_nan]),
    ]
    other = [
        frame.assign(a=[1.0, 2.0, 3.0]),
        frame.assign(a=frame["a"].astype("f4")),
        frame.rename(columns={"a": "c"}),
        frame[["b", "a"]],
        frame[::-1],
        frame.set_index("b"),
        frame.set_axis([1, 2, 3]),
        frame.assign(b=frame["b"].astype("category")),
        frame.assign(b=frame["b"].astype(object)),
        frame[:2],
        frame["a"],
        pl.from_pandas(frame),
        pa.Table.from_pandas(frame),
    ]
    own = codec.content_hash(frame)

    assert {own} == {codec.content_hash(f) for f in same}
    assert len(other) == len({codec.content_hash(f) for f in other} - {own})


def test_pandas_hash_sees_categories() -> None:
    """Unused categories, their order and their type are content."""
    base = pd.Series(pd.Categorical(["a"], ["a", "b"]))
    others = [
        pd.Series(pd.Categorical(["a"], ["b", "a"])),
        pd.Series(pd.Categorical(["a"], ["a"])),
        pd.Series(pd.Categorical(["a"], ["a", "b"], ordered=True)),
        pd.Series(pd.Categorical([1], [1, 2])),
        pd.Series(pd.Categorical([1], [1, 3])),
    ]

    assert len({codec.content_hash(s) for s in [base, *others]}) == 6


def test_parquet_is_readable() -> None:
    """The Parquet of a frame has the frame's own names and plain types, for whoever reads it in place."""
    frame = pd.DataFrame({"city": pd.Categorical(["a", "b"] * 50_000), "t": np.random.default_rng(1).random(100_000)})
    (blob,) = codec.encode(frame).blobs
    table = pq.read_table(io.BytesIO(blob.data))

    assert table.column_names == ["city", "t"]
    assert (pa.large_string(), pa.float64()) == (table.schema.field(0).type, table.schema.field(1).type)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"d": pd.DataFrame({"a": [1, object()]})}, r"result\['d'\]\['a'\]\[1\] is an object"),
        (pd.DataFrame({"a": [1]}, index=pd.Index([object()], dtype=object)), r"result\.index\[0\] is an object"),
        (type("Frame", (pd.DataFrame,), {})({"a": [1]}), r"Return pd\.DataFrame\(...\) of it"),
        (pl.LazyFrame({"a": [1]}), r"Return \.collect\(\)"),
        (pl.DataFrame({"a": pl.Series([object()], dtype=pl.Object)}), r"result\['a'\] is a polars column of objects"),
        ([np.array([object()])], r"result\[0\] is a numpy array of objects"),
        (np.ma.array([1]), r"numpy.MaskedArray"),
        (np.random.default_rng(1), r"numpy.Generator"),
        (pa.scalar(1), r"Return \.as_py\(\)"),
    ],
    ids=lambda v: None if isinstance(v, str) else type(v).__name__,
)
def test_refused(value: Any, sentence: str) -> None:
    """What these libraries have and the journal cannot keep is refused with its path and a way out."""
    with pytest.raises(ValueNotStorableError, match=sentence):
        codec.encode(value)


def test_unhashable_cell() -> None:
    """A cell without content is named."""
    with pytest.raises(UnhashableValue, match=r"argument\['a'\]\[1\] is an object"):
        codec.content_hash(pd.DataFrame({"a": [1, object()]}))


# ---------------------------------------------------------------- numpy


ARRAYS = [
    np.arange(6).reshape(2, 3),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.arange(10)[::3],
    np.array(["a", "bcd", "é"]),
    np.array([b"a"]),
    np.array([1, 2], ">i4"),
    np.zeros((0, 3)),
    np.array(3),
    np.array([True, False]),
    np.array([1 + 2j]),
    np.array([1.5], "f2"),
    np.array(["2020", "NaT"], "M8[D]"),
    np.array([(1, 2.0, "x")], [("a", "i1"), ("b", "f8"), ("c", "U3")]),
    np.arange(100_000),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}-{a.shape}")
def test_numpy_array(array: Any) -> None:
    """An array comes back with dtype, byte order, shape and memory order."""
    read = back(array)

    np.testing.assert_array_equal(array, read)
    assert (array.dtype, array.shape) == (read.dtype, read.shape)
    assert array.flags.f_contiguous <= read.flags.f_contiguous


def test_numpy_scalars() -> None:
    """numpy's numbers come back as numpy's numbers."""
    for value in (
        np.float64(1.5), np.float32(0.1), np.float16(2), np.int64(3), np.uint64(2**64 - 1), np.bool_(True), np.str_("x"), np.bytes_(b"ab"),
        np.complex128(1 + 2j), np.longdouble("1.1"), np.datetime64("2020-01-01", "ns"), np.timedelta64(3, "s"), np.float64("-inf"),
    ):  # fmt: skip
        read = back({"v": value})["v"]
        assert (type(value), value.dtype) == (type(read), read.dtype)
        assert value == read
    assert np.isnan(back(np.float64("nan"))) and np.isnat(back(np.datetime64("NaT")))
    assert np.dtype("f4") == back(np.dtype("f4"))


def test_numpy_nan_at_a_json_boundary() -> None:
    """A numpy NaN is a NaN where JSON refuses them."""
    with pytest.raises(ValueNotStorableError, match="float that JSON does not have"):
        codec.encode(np.float64("nan"), allow_nan=False)


def test_numpy_hash_is_content() -> None:
    """Memory order and NaN patterns are not content; dtype and shape are."""
    a = np.arange(6.0).reshape(2, 3)

    assert (
        codec.content_hash(a)
        == codec.content_hash(np.asfortranarray(a))
        == codec.content_hash(np.arange(12.0)[:6].reshape(2, 3))
    )
    others = [
        a,
        a.astype("f4"),
        a.reshape(3, 2),
        a.ravel(),
        a + 1,
        a.tolist(),
        np.float64(1),
        np.float32(1),
        1.0,
        np.int64(1),
    ]
    assert len(others) == len({codec.content_hash(o) for o in others})


def test_numpy_padding_is_not_content() -> None:
    """What lies between the fields of a structured array does not count."""
    dtype = np.dtype([("a", "i1"), ("b", "f8")], align=True)
    one, two = (
        np.frombuffer(b"\x00" * 16, dtype).copy(),
        np.frombuffer(b"\x00" + b"\xff" * 7 + b"\x00" * 8, dtype).copy(),
    )

    assert codec.content_hash(one) == codec.content_hash(two)


# ---------------------------------------------------------------- polars and pyarrow


POLARS = pl.DataFrame(
    {
        "int": [1, None, 3],
        "text": ["x", None, "z"],
        "float": [1.0, float("nan"), None],
        "list": [[1], [], None],
        "nested": [[[1], []], [], None],
        "struct": [{"a": 1}, {"a": None}, None],
        "date": [dt.date(2020, 1, 1)] * 3,
        "datetime": [dt.datetime(2020, 1, 1)] * 3,
        "zone": pl.Series([dt.datetime(2020, 1, 1)] * 3).dt.replace_time_zone("Europe/Berlin"),
        "category": pl.Series(["a", "b", None], dtype=pl.Categorical),
        "enum": pl.Series(["a", "b", "a"], dtype=pl.Enum(["b", "a"])),
        "decimal": [decimal.Decimal("1.10")] * 3,
        "duration": [dt.timedelta(1)] * 3,
        "time": [dt.time(1)] * 3,
        "binary": [b"a", None, b""],
        "null": [None] * 3,
        "array": pl.Series([[1, 2]] * 3, dtype=pl.Array(pl.Int8, 2)),
        "bool": [True, None, False],
        "int128": pl.Series([1, 2, 3], dtype=pl.Int128),
        "u8": pl.Series([1, 2, 3], dtype=pl.UInt8),
    }
)


@pytest.mark.parametrize(
    "frame", [POLARS, POLARS.slice(1), POLARS.head(0), pl.DataFrame(), pl.concat([POLARS, POLARS], rechunk=False)], ids=["all", "sliced", "no rows", "empty", "chunks"]
)  # fmt: skip
def test_polars_frame(frame: pl.DataFrame) -> None:
    """A polars frame comes back with its schema, nulls and NaNs."""
    read = back(frame)

    assert_frame_equal(frame, read, check_exact=True)
    assert frame.schema == read.schema


@pytest.mark.parametrize("name", POLARS.columns)
def test_polars_series(name: str) -> None:
    """A polars series comes back with its name and dtype."""
    assert_series_equal(POLARS[name], back(POLARS[name]), check_exact=True)


def test_polars_hash_is_content() -> None:
    """Chunks and slices are not content; nulls, empty lists, names and dtypes are."""
    twice = pl.concat([POLARS, POLARS], rechunk=False)
    columns: list[Any] = [[[1], []], [[1], None], [[1], [None]], [[], [1]], [[1, None], []], [[None], [1]]]

    assert codec.content_hash(twice) == codec.content_hash(twice.rechunk())
    assert codec.content_hash(twice[3:]) == codec.content_hash(POLARS)
    assert len(columns) == len({codec.content_hash(pl.Series("a", c, dtype=pl.List(pl.Int64))) for c in columns})
    assert codec.content_hash(POLARS["int"]) != codec.content_hash(POLARS["int"].alias("x"))


ARROW = pa.table(
    {
        "int": [1, None, 3],
        "text": ["x", None, "z"],
        "dictionary": pa.array(["a", "b", "a"]).dictionary_encode(),
        "dictionary of int": pa.array([1, 2, 1]).dictionary_encode(),
        "list": [[1], [], None],
        "struct": [{"a": 1}, {"a": None}, None],
        "map": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int64())),
        "decimal": [decimal.Decimal("1.10")] * 3,
        "seconds": pa.array([1, 2, 3], pa.timestamp("s", "UTC")),
        "view": pa.array(["a", "b", None], pa.string_view()),
        "duration": pa.array([1, 2, None], pa.duration("ms")),
        "fixed": pa.array([b"ab"] * 3, pa.binary(2)),
        "fixed list": pa.array([[1, 2]] * 3, pa.list_(pa.int8(), 2)),
        "null": pa.nulls(3),
        "float": [1.0, float("nan"), None],
        "bool": [True, None, False],
        "texts": pa.array([["a"], ["b", "c"], None]),
        "large": pa.array(["a", "b", "c"], pa.large_string()),
    }
).replace_schema_metadata({"made": "here"})


@pytest.mark.parametrize(
    "table",
    [ARROW, ARROW.slice(1), ARROW.slice(0, 0), pa.table({}), pa.concat_tables([ARROW, ARROW]), ARROW.to_batches()[0], ARROW["text"], ARROW["list"].combine_chunks(), ARROW.select(["int", "text"])],
    ids=["all", "sliced", "no rows", "empty", "chunks", "batch", "chunked array", "array", "plain"],
)  # fmt: skip
def test_arrow(table: Any) -> None:
    """A table, batch or array comes back with its schema, metadata and contents."""
    read = back(table)

    assert repr(table.to_pylist()) == repr(read.to_pylist())
    if hasattr(table, "schema"):
        assert table.schema.equals(read.schema, check_metadata=True)
    else:
        assert table.type == read.type


def test_arrow_hash_is_content() -> None:
    """Chunks, offsets and what lies under nulls are not content; nulls and types are."""
    under = [
        pa.Array.from_buffers(pa.int64(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(np.array([1, junk], "i8"))])
        for junk in (0, 99)
    ]
    assert under[0].to_pylist() == under[1].to_pylist() == [1, None]

    assert codec.content_hash(under[0]) == codec.content_hash(under[1])
    for column in ARROW.column_names:
        part = ARROW.select([column])
        fresh = pa.concat_tables([part, part]).slice(2, 3)
        again = pa.Table.from_arrays([pa.concat_arrays(list(fresh[column].chunks))], [column])
        assert codec.content_hash(fresh) == codec.content_hash(again), column
    assert len(ARROW.column_names) == len({codec.content_hash(ARROW[c]) for c in ARROW.column_names})


# ---------------------------------------------------------------- any table


numbers = st.none() | st.floats() | st.integers(-(2**40), 2**40).map(float)
texts = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(numbers, texts, st.booleans()), max_size=8), st.integers(0, 7), st.integers(1, 3))
def test_any_frame(rows: list[Any], start: int, step: int) -> None:
    """Whatever rows a pandas, polars or Arrow table has, and however it is cut, they come back, hash and all."""
    data = {"n": [r[0] for r in rows], "t": [r[1] for r in rows], "b": [r[2] for r in rows]}
    frame = pd.DataFrame(
        {"n": pd.array(data["n"], "f8"), "t": pd.array(data["t"], "str"), "b": pd.array(data["b"], "bool")}
    )[start::step]
    polar = pl.DataFrame(data, schema={"n": pl.Float64, "t": pl.String, "b": pl.Boolean})[start:]
    arrow = pa.table(data, schema=pa.schema({"n": pa.float64(), "t": pa.string(), "b": pa.bool_()})).slice(
        min(start, len(rows))
    )

    pd.testing.assert_frame_equal(frame, back(frame), check_exact=True)
    assert_frame_equal(polar, back(polar), check_exact=True)
    assert repr(arrow.to_pylist()) == repr(back(arrow).to_pylist())


# ---------------------------------------------------------------- the door


def test_in_short() -> None:
    """A preview names a table by its kind and size."""
    value = {"f": WIDE, "p": POLARS, "t": ARROW, "a": np.zeros((2, 3)), "n": np.float64(1.5), "w": pd.Timestamp("2020")}
    text = json.loads(codec.preview(value))

    assert text["f"] == "DataFrame (5 × 35)"
    assert (text["p"], text["t"], text["a"]) == ("DataFrame (3 × 20)", "Table (3 × 18)", "ndarray (2 × 3, float64)")
    assert (str(text["n"]), text["w"]) == ("1.5", "2020-01-01 00:00:00")


@pytest.mark.parametrize(
    "make", [lambda f: f, pl.from_pandas, pa.Table.from_pandas], ids=["pandas", "polars", "pyarrow"]
)
def test_rows_of(make: Callable[[pd.DataFrame], Any]) -> None:
    """The beginning of a table, for people."""
    rows = codec_tables.rows_of(make(pd.DataFrame({"a": range(30), "b": ["x"] * 30})), 2, 5)

    assert codec_tables.Rows(["a", "b"], [[0, "x"], [1, "x"]], (30, 2)) == rows


def run(code: str) -> str:
    """What a fresh interpreter prints."""
    root = str(Path(__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=root, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_nothing_is_imported_early() -> None:
    """Plain values load none of the libraries, and a numpy value loads numpy alone."""
    code = """
import sys
from loom_kernel import codec
codec.encode({"a": (1, 2)}); codec.content_hash({1, 2}); codec.preview([object()])
print(sorted({"numpy", "pandas", "polars", "pyarrow", "pydantic", "IPython"} & set(sys.modules)))
import numpy
codec.encode(numpy.arange(3)); codec.content_hash(numpy.float64(1))
print(sorted({"pandas", "polars", "pyarrow"} & set(sys.modules)))
"""
    assert run(code) == "[]\n[]"


def test_pandas_without_pyarrow() -> None:
    """Without pyarrow a frame is refused with the extra to install; so is reading one."""
    frame = pd.DataFrame({"a": [1]})
    code = f"""
import sys
sys.modules["pyarrow"] = None
import pandas
from loom_kernel import codec
for act in (codec.encode, codec.content_hash, lambda f: codec.decode_now({codec.encode(frame).json!r})):
    try:
        act(pandas.DataFrame({{"a": [1]}}))
    except Exception as error:
        print(type(error).__name__, "loom-kernel[tables]" in str(error))
"""
    assert run(code) == "ValueNotStorableError True\nUnhashableValue True\nLoomError True"


def test_polars_without_pyarrow_and_numpy() -> None:
    """polars needs nothing beside itself."""
    code = """
import sys
sys.modules["pyarrow"] = sys.modules["numpy"] = sys.modules["pandas"] = None
import polars
from loom_kernel import codec
frame = polars.DataFrame({"a": [1, None], "b": ["x", "y"]})
print(codec.decode_now(codec.encode(frame).json).equals(frame), len(codec.content_hash(frame)))
"""
    assert run(code) == "True 32"


def test_library_that_is_gone() -> None:
    """Reading a value of a library that is not installed names the library."""
    code = f"""
import sys
sys.modules["polars"] = None
from loom_kernel import codec
try:
    codec.decode_now({codec.encode(pl.DataFrame({"a": [1]})).json!r})
except Exception as error:
    print(error)
"""
    assert run(code) == "reading a stored pl.DataFrame needs polars, which is not installed here: `pip install polars`"


def test_unreadable_table() -> None:
    """A damaged blob is an error, not a wrong table."""
    with pytest.raises((LoomError, ValueError, OSError)):
        codec.decode_now(b'{"$loom":"pd.DataFrame","v":"AAAA"}')
