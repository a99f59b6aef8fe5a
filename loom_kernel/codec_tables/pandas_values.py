"""pandas: frames, series and indexes as Parquet with a description of everything that Parquet does not say.

Columns are written one by one under readable names, so that SQL can read the file; the description (in the file's
metadata, key ``loom``) holds dtypes, labels, the index and its names, and gives the same frame back.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from loom_kernel.codec_tables import Digest, Kind, PartReader, PartWriter, Rows
from loom_kernel.codec_tables.refusal import Refused
from loom_kernel.codec_tables.zones import read_zone, zone

_NEEDS_ARROW = "Install the extra that tables need: `pip install 'loom-kernel[tables]'`."


def kind_of(cls: type) -> Kind:
    if cls is pd.DataFrame:
        return _table("pd.DataFrame", lambda v: v)
    if cls is pd.Series:
        return _table("pd.Series", lambda v: v)
    if issubclass(cls, pd.Index):
        return _table("pd.Index", lambda v: pd.DataFrame(index=v))
    if issubclass(cls, pd.api.extensions.ExtensionArray):
        return _table("pd.array", pd.Series)
    if issubclass(cls, pd.Timestamp):
        return Kind(_write_timestamp)
    if issubclass(cls, pd.Timedelta):
        return Kind(lambda v, w: {"$loom": "pd.Timedelta", "v": int(v._value), "unit": v.unit})
    if cls is type(pd.NaT):
        return Kind(lambda v, w: {"$loom": "pd.NaT"})
    if cls is type(pd.NA):
        return Kind(lambda v, w: {"$loom": "pd.NA"})
    if issubclass(cls, pd.Period):
        return Kind(lambda v, w: {"$loom": "pd.Period", "v": v.ordinal, "freq": v.freqstr})
    if issubclass(cls, pd.Interval):
        return Kind(lambda v, w: {"$loom": "pd.Interval", "v": [w.tree(v.left), w.tree(v.right)], "closed": v.closed})
    if issubclass(cls, pd.DataFrame | pd.Series):
        raise Refused(f"{cls.__name__} (a subclass of pandas.{'DataFrame' if issubclass(cls, pd.DataFrame) else 'Series'})",
                      f"Return pd.{'DataFrame' if issubclass(cls, pd.DataFrame) else 'Series'}(...) of it.")  # fmt: skip
    raise Refused(f"pandas.{cls.__name__}", "Return a DataFrame or Series.")


def _table(tag: str, frame: Any) -> Kind:
    def write(value: Any, writer: PartWriter) -> Any:
        arrow = _arrow()
        table = frame(value)
        columns, about = _describe(table, writer)
        names = _unique([name for name, _ in columns])
        meta = {b"loom": msgspec.json.encode(about)}
        data = (
            arrow.to_parquet(arrow.pa.table([a for _, a in columns], names).replace_schema_metadata(meta))
            if columns
            else None
        )
        shape = list(value.shape)
        if data is None:
            return {"$loom": tag, "about": about, "shape": shape}
        return writer.data(tag, data, shape=shape)

    def feed(value: Any, digest: Digest, writer: PartWriter) -> None:
        arrow = _arrow()
        columns, about = _describe(frame(value), writer, hashing=True)
        digest.update(msgspec.json.encode(about, order="deterministic"))
        for _, column in columns:
            arrow.feed(column, digest, writer)

    return Kind(write, feed)


def _arrow() -> Any:
    try:
        from loom_kernel.codec_tables import arrow_values
    except ImportError:
        raise Refused("pandas table, and pyarrow is not installed", _NEEDS_ARROW) from None
    return arrow_values


def _unique(names: list[str]) -> list[str]:
    seen: dict[str, int] = {}
    out = []
    for name in names:
        n = seen[name] = seen.get(name, 0) + 1
        while n > 1 and f"{name}.{n}" in seen:
            n += 1
        out.append(name if n == 1 else f"{name}.{n}")
        seen.setdefault(out[-1], 1)
    return out


# ---------------------------------------------------------------- describing


def _describe(value: Any, writer: PartWriter, *, hashing: bool = False) -> tuple[list[tuple[str, Any]], dict[str, Any]]:
    """The Arrow columns of a frame or series, and everything else about it as JSON."""
    columns: list[tuple[str, Any]] = []
    about: dict[str, Any] = {"v": 1, "rows": len(value)}
    if isinstance(value, pd.Series):
        array, meta = _column(value, writer, hashing, "")
        columns.append(("values" if value.name is None else str(value.name), array))
        about |= {"series": meta, "name": writer.part(value.name)}
    else:
        metas = []
        for i, label in enumerate(value.columns):
            array, meta = _column(value.iloc[:, i], writer, hashing, f"[{label!r}]")
            columns.append((str(label), array))
            metas.append(meta)
        about["columns"] = metas
        about["labels"] = _labels(value.columns, writer, hashing)
    index, parts = _index(value.index, writer, hashing)
    about["index"] = index
    columns.extend((f"__index_{i}__", part) for i, part in enumerate(parts))
    if value.attrs and not hashing:
        try:
            about["attrs"] = writer.part(value.attrs)
        except Refused as refused:
            raise refused.at(".attrs") from None
    return columns, about


def _labels(labels: Any, writer: PartWriter, hashing: bool) -> dict[str, Any]:
    """The column index: its names where they are plain text, else a small table of its own."""
    plain = isinstance(labels.dtype, pd.StringDtype) or labels.dtype.kind == "O"
    if type(labels) is pd.Index and plain and len(labels) and all(type(label) is str for label in labels):
        _, meta = _column(pd.Series(labels), writer, True, "")
        return {"text": list(labels), "dtype": meta, "name": writer.part(labels.name)}
    index, parts = _index(labels, writer, hashing)
    if not parts:
        return {"index": index}
    arrow = _arrow()
    if hashing:
        digest = hashlib.blake2b(digest_size=16)
        for part in parts:
            arrow.feed(part, digest, writer)
        return {"index": index, "hash": digest.hexdigest()}
    data = arrow.to_parquet(arrow.pa.table(parts, [str(i) for i in range(len(parts))]))
    return {"index": index, "parquet": base64.b64encode(data).decode()}


def _index(index: Any, writer: PartWriter, hashing: bool) -> tuple[dict[str, Any], list[Any]]:
    if hashing and (even := _evenly(index)) is not None:
        return {"even": even, "name": writer.part(index.name)}, []
    if isinstance(index, pd.RangeIndex):
        return {"range": [index.start, index.stop, index.step], "name": writer.part(index.name)}, []
    if isinstance(index, pd.MultiIndex):
        parts, metas = [], []
        for i in range(index.nlevels):
            array, meta = _column(pd.Series(index.get_level_values(i)), writer, hashing, ".index")
            parts.append(array)
            metas.append(meta)
        return {"levels": metas, "names": [writer.part(name) for name in index.names]}, parts
    array, meta = _column(pd.Series(index), writer, hashing, ".index")
    out: dict[str, Any] = {"values": meta, "name": writer.part(index.name)}
    freq = getattr(index, "freqstr", None) if isinstance(index, pd.DatetimeIndex | pd.TimedeltaIndex) else None
    if freq is not None and not hashing:
        out["freq"] = freq
    return out, [array]


def _evenly(index: Any) -> list[int] | None:
    """Start, step and length of whole numbers in even steps: a range and its written-out form are the same content."""
    if index.dtype != np.int64 or isinstance(index, pd.MultiIndex):
        return None
    if len(index) < 2:
        return [int(index[0]) if len(index) else 0, 1, len(index)]
    if isinstance(index, pd.RangeIndex):
        return [index.start, index.step, len(index)]
    values = index.to_numpy()
    step = values[1] - values[0]
    return [int(values[0]), int(step), len(index)] if (np.diff(values) == step).all() else None


# ---------------------------------------------------------------- one column


def _column(series: Any, writer: PartWriter, hashing: bool, path: str) -> tuple[Any, dict[str, Any]]:
    """One column as an Arrow array, and what its dtype was."""
    try:
        return _to_arrow(series, writer, hashing)
    except Refused as refused:
        raise (refused.at(path) if path else refused) from None


def _to_arrow(series: Any, writer: PartWriter, hashing: bool) -> tuple[Any, dict[str, Any]]:
    pa = _arrow().pa
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return _categories(series, writer, hashing)
    if isinstance(dtype, pd.SparseDtype):
        array, meta = _to_arrow(pd.Series(np.asarray(series.array, dtype.subtype)), writer, hashing)
        return array, {
            "dtype": "sparse",
            "of": meta,
            "subtype": str(dtype.subtype),
            "fill": writer.part(dtype.fill_value),
        }
    if isinstance(dtype, pd.DatetimeTZDtype):
        values = pa.array(series.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy()).cast(
            pa.timestamp(dtype.unit, "UTC")
        )
        return values, {"dtype": "datetimetz", "unit": dtype.unit, "tz": zone(dtype.tz)}
    if isinstance(dtype, pd.StringDtype):
        na = "nan" if dtype.na_value is np.nan else "NA"
        return _chunk(pa.array(series.array, pa.large_string())), {
            "dtype": "string",
            "storage": dtype.storage,
            "na": na,
        }
    if isinstance(dtype, np.dtype) and dtype.hasobject:
        return _objects(series, writer, hashing)
    if isinstance(dtype, np.dtype):
        if dtype.kind in "mM":
            return pa.array(series.to_numpy()), {"dtype": dtype.str}
        if dtype.kind in "biuf" and dtype.itemsize <= 8:
            return pa.array(series.to_numpy(), from_pandas=True), {"dtype": dtype.str}
        return _cells(series, writer, hashing, {"dtype": dtype.str})
    if hasattr(dtype, "__from_arrow__"):
        return _chunk(pa.array(series.array)), {"dtype": "arrow" if isinstance(dtype, pd.ArrowDtype) else str(dtype)}
    raise Refused(f"pandas column of dtype {dtype}", "Convert it with .astype(...) to a dtype of pandas itself.")


def _chunk(array: Any) -> Any:
    return array.combine_chunks() if hasattr(array, "combine_chunks") else array


def _objects(series: Any, writer: PartWriter, hashing: bool) -> tuple[Any, dict[str, Any]]:
    """An object column: as text where it holds only that (and one kind of null), else each cell as its own JSON."""
    pa = _arrow().pa
    values = series.to_numpy()
    kinds = set(map(type, values))
    rest = kinds - {str}
    if str in kinds and len(rest) <= 1:
        null = next(iter(rest), None)
        word = _NULLS.get(null) if null is not None else "none"
        if word is not None and (word != "nan" or all(v != v for v in values if type(v) is float)):
            try:
                return pa.array(values, pa.large_string(), from_pandas=True), {"dtype": "object", "null": word}
            except (pa.ArrowInvalid, UnicodeEncodeError):
                pass
    return _cells(series, writer, hashing, {"dtype": "object"})


_NULLS: dict[type, str] = {type(None): "none", float: "nan", type(pd.NA): "NA", type(pd.NaT): "NaT"}
_NULL_VALUES: dict[str, Any] = {"none": None, "nan": np.nan, "NA": pd.NA, "NaT": pd.NaT}


def _cells(series: Any, writer: PartWriter, hashing: bool, meta: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    pa = _arrow().pa
    out = []
    for i, value in enumerate(series.to_numpy()):
        try:
            out.append(msgspec.json.encode(writer.part(value), order="deterministic" if hashing else None).decode())
        except Refused as refused:
            raise refused.at(f"[{i}]") from None
    return pa.array(out, pa.large_string()), {**meta, "cells": True}


def _categories(series: Any, writer: PartWriter, hashing: bool) -> tuple[Any, dict[str, Any]]:
    """A categorical: its values where they are text (SQL can read them), else its codes; the categories beside."""
    pa = _arrow().pa
    dtype = series.dtype
    codes = np.asarray(series.cat.codes, "i8")
    array = pa.array(codes, mask=codes < 0)
    meta: dict[str, Any] = {
        "dtype": "category",
        "ordered": bool(dtype.ordered),
        "categories": _labels(dtype.categories, writer, hashing),
    }
    if "text" in meta["categories"] and len(dtype.categories):
        array = pa.array(list(dtype.categories), pa.large_string()).take(array)
        meta["values"] = True
    return array, meta


# ---------------------------------------------------------------- reading


def _read(node: Any, reader: PartReader) -> tuple[Any, list[Any]]:
    if "about" in node:
        return node["about"], []
    from loom_kernel.codec_tables import arrow_values

    table = arrow_values.read_parquet(reader.data(node))
    return msgspec.json.decode(table.schema.metadata[b"loom"]), [column.combine_chunks() for column in table.columns]


def _read_frame(node: Any, reader: PartReader) -> Any:
    about, columns = _read(node, reader)
    width = len(about["columns"])
    index = _read_index(about["index"], columns[width:], reader)
    parts = [_series(a, meta, reader, index) for a, meta in zip(columns[:width], about["columns"], strict=True)]
    frame = pd.DataFrame(dict(enumerate(parts)), index=index)
    frame.columns = _read_labels(about["labels"], reader)
    if "attrs" in about:
        frame.attrs = reader.value(about["attrs"])
    return frame


def _read_series(node: Any, reader: PartReader) -> Any:
    about, columns = _read(node, reader)
    index = _read_index(about["index"], columns[1:], reader)
    series = _series(columns[0], about["series"], reader, index)
    series.name = reader.value(about["name"])
    if "attrs" in about:
        series.attrs = reader.value(about["attrs"])
    return series


def _series(array: Any, meta: Any, reader: PartReader, index: Any = None) -> Any:
    values, dtype = _values(array, meta, reader)
    return pd.Series(values, dtype=dtype, index=index, copy=False)


def _values(array: Any, meta: Any, reader: PartReader) -> tuple[Any, Any]:
    """The values of a column, and the dtype to insist on."""
    pa = _arrow().pa
    name = meta["dtype"]
    dtype: Any
    if meta.get("cells"):
        values = np.empty(len(array), object)
        for i, text in enumerate(array.to_pylist()):
            values[i] = reader.value(msgspec.json.decode(text))
        dtype = np.dtype(name)
        return (values if dtype.hasobject else np.array(list(values), dtype)), dtype
    if name == "object":
        null = _NULL_VALUES[meta["null"]]
        values = np.empty(len(array), object)
        values[:] = [null if text is None else text for text in array.to_pylist()]
        return values, object
    if name == "string":
        dtype = pd.StringDtype(meta["storage"], na_value=np.nan if meta["na"] == "nan" else pd.NA)
        return dtype.__from_arrow__(array), dtype
    if name == "category":
        categories = _read_labels(meta["categories"], reader)
        dtype = pd.CategoricalDtype(categories, meta["ordered"])
        if meta.get("values"):
            return pd.Categorical(array.to_pandas(), dtype=dtype), dtype
        codes = array.fill_null(-1).to_numpy(zero_copy_only=False)
        return pd.Categorical.from_codes(codes, dtype=dtype), dtype
    if name == "sparse":
        values, _ = _values(array, meta["of"], reader)
        dtype = pd.SparseDtype(meta["subtype"], reader.value(meta["fill"]))
        return pd.arrays.SparseArray(values, fill_value=dtype.fill_value, dtype=dtype), dtype
    if name == "datetimetz":
        naive = _integers(array, f"M8[{meta['unit']}]")
        return pd.DatetimeIndex(naive).tz_localize("UTC").tz_convert(read_zone(meta["tz"])).array, None
    if name == "arrow":
        dtype = pd.ArrowDtype(array.type)
        return dtype.__from_arrow__(array), dtype
    if not name.startswith(("<", ">", "|", "=")):
        dtype = pd.api.types.pandas_dtype(name)
        return dtype.__from_arrow__(array), dtype
    dtype = np.dtype(name)
    if dtype.kind in "mM":
        return _integers(array, dtype), dtype
    if dtype.kind == "f" and array.null_count:
        array = array.fill_null(pa.scalar(float("nan"), pa.float64()).cast(array.type))
    return array.to_numpy(zero_copy_only=False).astype(dtype, copy=False), dtype


def _integers(array: Any, dtype: Any) -> Any:
    """Times of an Arrow array as numpy's, in the unit of ``dtype`` (Parquet keeps seconds as milliseconds)."""
    pa, dtype = _arrow().pa, np.dtype(dtype)
    unit = np.datetime_data(dtype)[0]
    array = array.cast(pa.timestamp(unit) if dtype.kind == "M" else pa.duration(unit))
    return array.cast(pa.int64()).fill_null(np.iinfo("i8").min).to_numpy(zero_copy_only=False).view(dtype)


def _read_index(meta: Any, columns: list[Any], reader: PartReader) -> Any:
    if "range" in meta:
        start, stop, step = meta["range"]
        return pd.RangeIndex(start, stop, step, name=reader.value(meta["name"]))
    if "levels" in meta:
        parts = [pd.Index(_series(a, m, reader)) for a, m in zip(columns, meta["levels"], strict=True)]
        return pd.MultiIndex.from_arrays(parts, names=[reader.value(name) for name in meta["names"]])
    values, dtype = _values(columns[0], meta["values"], reader)
    index = pd.Index(values, dtype=dtype, name=reader.value(meta["name"]), copy=False)
    if "freq" in meta:
        index = type(index)(index, freq=meta["freq"])
    return index


def _read_labels(meta: Any, reader: PartReader) -> Any:
    if "text" in meta:
        dtype = meta["dtype"]
        kind = (
            object
            if dtype["dtype"] == "object"
            else pd.StringDtype(dtype["storage"], na_value=np.nan if dtype["na"] == "nan" else pd.NA)
        )
        return pd.Index(meta["text"], dtype=kind, name=reader.value(meta["name"]))
    if "parquet" not in meta:
        return _read_index(meta["index"], [], reader)
    from loom_kernel.codec_tables.arrow_values import read_parquet

    table = read_parquet(base64.b64decode(meta["parquet"]))
    return _read_index(meta["index"], [column.combine_chunks() for column in table.columns], reader)


# ---------------------------------------------------------------- scalars


def _write_timestamp(value: Any, writer: PartWriter) -> Any:
    node = {"$loom": "pd.Timestamp", "v": int(value._value), "unit": value.unit, "text": value.isoformat()}
    return node if value.tzinfo is None else {**node, "tz": zone(value.tzinfo)}


def _read_timestamp(node: Any, reader: PartReader) -> Any:
    value = pd.Timestamp(np.datetime64(node["v"], node["unit"]))
    return value if "tz" not in node else value.tz_localize("UTC").tz_convert(read_zone(node["tz"]))


READ = {
    "pd.DataFrame": _read_frame,
    "pd.Series": _read_series,
    "pd.Index": lambda node, reader: _read_index_value(node, reader),
    "pd.array": lambda node, reader: _read_series(node, reader).array,
    "pd.Timestamp": _read_timestamp,
    "pd.Timedelta": lambda node, reader: pd.Timedelta(np.timedelta64(node["v"], node["unit"])),
    "pd.NaT": lambda node, reader: pd.NaT,
    "pd.NA": lambda node, reader: pd.NA,
    "pd.Period": lambda node, reader: pd.Period(ordinal=node["v"], freq=node["freq"]),
    "pd.Interval": lambda node, reader: pd.Interval(
        reader.value(node["v"][0]), reader.value(node["v"][1]), node["closed"]
    ),
}


def _read_index_value(node: Any, reader: PartReader) -> Any:
    about, columns = _read(node, reader)
    return _read_index(about["index"], columns, reader)


def for_sql(frame: Any) -> Any:
    """The frame with its named index as columns."""
    if not isinstance(frame, pd.DataFrame):
        return frame
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    return frame.set_axis([str(name) for name in frame.columns], axis=1)


def begin(value: Any, rows: int, columns: int) -> Rows | None:
    """The first rows of a frame or series; the index stands in front unless it only counts."""
    value = getattr(value, "data", value) if type(value).__name__ == "Styler" else value
    if isinstance(value, pd.Index):
        value = value.to_frame(index=False)
    if isinstance(value, pd.Series):
        value = value.to_frame("value" if value.name is None else value.name)
    if not isinstance(value, pd.DataFrame):
        return None
    counted = isinstance(value.index, pd.RangeIndex) and value.index.name is None
    top = value.iloc[:rows, :columns]
    names = [_label(label) for label in top.columns]
    cells = [list(row) for row in top.itertuples(index=False, name=None)]
    if not counted:
        levels = value.index.nlevels
        front = ["" if name is None else str(name) for name in value.index.names]
        keys = [list(key) if levels > 1 else [key] for key in top.index]
        names, cells = front + names, [key + row for key, row in zip(keys, cells, strict=True)]
    return Rows(names, cells, (len(value), value.shape[1] + (0 if counted else value.index.nlevels)))


def _label(label: Any) -> str:
    return " / ".join(map(str, label)) if isinstance(label, tuple) else str(label)
