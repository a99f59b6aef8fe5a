"""polars: frames and series as Parquet (or Arrow IPC where Parquet would change a type), without pyarrow."""

from __future__ import annotations

import array
import io
from typing import Any

import msgspec
import polars as pl

from loom_kernel.codec_tables import Digest, Kind, PartReader, PartWriter, Rows
from loom_kernel.codec_tables.refusal import Refused


def kind_of(cls: type) -> Kind:
    if cls is pl.DataFrame:
        return Kind(_write_frame, _feed_frame)
    if cls is pl.Series:
        return Kind(
            lambda v, w: _write_frame(v.to_frame(), w, "pl.Series"),
            lambda v, d, w: _feed_frame(v.to_frame(), d, w),
        )
    if issubclass(cls, pl.LazyFrame):
        raise Refused("polars.LazyFrame", "Return .collect() of it.")
    if issubclass(cls, pl.DataFrame):
        raise Refused(cls.__name__, "Return pl.DataFrame(...) of it.")
    raise Refused(f"polars.{cls.__name__}", "Return a polars.DataFrame.")


def _write_frame(value: Any, writer: PartWriter, tag: str = "pl.DataFrame") -> Any:
    for name, dtype in value.schema.items():
        if dtype == pl.Object:
            raise Refused("polars column of objects", "Give the column a dtype.").at(f"[{name!r}]")
    out = io.BytesIO()
    shape = list(value.shape)
    try:
        value.write_parquet(out)
        if pl.read_parquet_schema(io.BytesIO(out.getvalue())) == value.schema and value.width:
            return writer.data(tag, out.getbuffer(), shape=shape)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        pass
    out = io.BytesIO()
    value.write_ipc(out)
    return writer.data(tag, out.getbuffer(), shape=shape, format="arrow")


def _read_frame(node: Any, reader: PartReader) -> Any:
    data = io.BytesIO(reader.data(node))
    return pl.read_ipc(data) if node.get("format") == "arrow" else pl.read_parquet(data)


READ = {
    "pl.DataFrame": _read_frame,
    "pl.Series": lambda node, reader: _read_frame(node, reader).to_series(),
}


def _feed_frame(value: Any, digest: Digest, writer: PartWriter) -> None:
    for column in value.get_columns():
        digest.update(f"{column.name}\0{column.dtype!r}\0".encode())
        _feed(column, digest, writer)


def _feed(value: Any, digest: Digest, writer: PartWriter) -> None:
    """Nulls and values of a series; not its chunks, or what lies under its nulls."""
    dtype, nulls = value.dtype, value.null_count()
    digest.update(f"{len(value)},{nulls};".encode())
    if dtype == pl.Null:
        return
    if nulls:
        digest.update(bytes(value.is_null().to_list()))
        value = value.drop_nulls()
    if dtype in (pl.Categorical, pl.Enum):
        value = value.cast(pl.String)
        dtype = pl.String
    if dtype == pl.String:
        digest.update(array.array("q", value.str.len_bytes().to_list()))
        digest.update("".join(value.to_list()).encode())
    elif dtype == pl.Binary:
        parts = value.to_list()
        digest.update(array.array("q", map(len, parts)))
        digest.update(b"".join(parts))
    elif dtype == pl.Boolean:
        digest.update(bytes(value.to_list()))
    elif dtype.is_float():
        nan = value.is_nan()
        if nan.any():
            digest.update(bytes(nan.to_list()))
            value = value.filter(~nan)
        digest.update(array.array("d", value.to_list()))
    elif dtype in (pl.List, pl.Array):
        lengths = value.list.len() if dtype == pl.List else None
        if lengths is not None:
            digest.update(array.array("q", lengths.to_list()))
            value = value.filter(lengths > 0)
        _feed(value.explode(), digest, writer)
    elif dtype == pl.Struct:
        for field in dtype.fields:
            digest.update(f"{field.name}\0".encode())
            _feed(value.struct.field(field.name), digest, writer)
    elif dtype == pl.Object:
        raise Refused("polars column of objects", "Give the column a dtype.")
    else:
        digest.update(msgspec.json.encode(value.to_physical().to_list()))


def begin(value: Any, rows: int, columns: int) -> Rows | None:
    """The first rows of a frame or series."""
    if isinstance(value, pl.Series):
        value = value.to_frame()
    if not isinstance(value, pl.DataFrame):
        return None
    top = value[:rows, :columns]
    return Rows(list(top.columns), [list(row) for row in top.rows()], (value.height, value.width))
