"""pyarrow: tables as Parquet (or Arrow IPC where Parquet would change a type), and the canonical hash of arrays."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from loom_kernel.codec_tables import Digest, Kind, PartReader, PartWriter, Rows
from loom_kernel.codec_tables.numpy_values import alike, feed_parts
from loom_kernel.codec_tables.refusal import Refused


def kind_of(cls: type) -> Kind:
    if issubclass(cls, pa.Table):
        return Kind(_write_table, _feed_table)
    if issubclass(cls, pa.RecordBatch):
        return Kind(
            lambda v, w: _write_table(pa.Table.from_batches([v]), w, "pa.RecordBatch"),
            lambda v, d, w: _feed_table(pa.Table.from_batches([v]), d, w),
        )
    if issubclass(cls, pa.Array | pa.ChunkedArray):
        tag = "pa.ChunkedArray" if issubclass(cls, pa.ChunkedArray) else "pa.Array"
        return Kind(lambda v, w: _write_table(pa.table({"values": v}), w, tag), lambda v, d, w: feed(v, d, w))
    if issubclass(cls, pa.Scalar):
        raise Refused(f"pyarrow.{cls.__name__}", "Return .as_py() of it.")
    raise Refused(f"pyarrow.{cls.__name__}", "Return a pyarrow.Table.")


def to_parquet(table: Any) -> memoryview:
    out = io.BytesIO()
    pq.write_table(table, out, compression="zstd", use_compliant_nested_type=False)  # keeps the names of list items
    return out.getbuffer()


def read_parquet(data: bytes) -> Any:
    return pq.read_table(pa.BufferReader(data), use_threads=False)


def _write_table(value: Any, writer: PartWriter, tag: str = "pa.Table") -> Any:
    shape = [value.num_rows, value.num_columns]
    try:
        data = to_parquet(value)
        same = str(pq.read_schema(pa.BufferReader(data)).remove_metadata()) == str(value.schema.remove_metadata())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        same = False
    if same and value.num_columns:
        return writer.data(tag, data, shape=shape)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, value.schema) as file:
        file.write_table(value)
    return writer.data(tag, memoryview(sink.getvalue()), shape=shape, format="arrow")


def _read_table(node: Any, reader: PartReader) -> Any:
    data = reader.data(node)
    return pa.ipc.open_file(pa.BufferReader(data)).read_all() if node.get("format") == "arrow" else read_parquet(data)


def _read_array(node: Any, reader: PartReader) -> Any:
    return _read_table(node, reader).column(0).combine_chunks()


READ = {
    "pa.Table": _read_table,
    "pa.RecordBatch": lambda node, reader: _read_batch(_read_table(node, reader)),
    "pa.ChunkedArray": lambda node, reader: _read_table(node, reader).column(0),
    "pa.Array": _read_array,
}


def _read_batch(table: Any) -> Any:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


# ---------------------------------------------------------------- hashing


def _feed_table(value: Any, digest: Digest, writer: PartWriter) -> None:
    digest.update(f"{value.num_rows}\0".encode())
    for name, column in zip(value.column_names, value.columns, strict=True):
        digest.update(f"{name}\0".encode())
        feed(column, digest, writer)


def feed(value: Any, digest: Digest, writer: PartWriter) -> None:
    """The contents of an array: type, nulls and values; not its chunks, offsets, or what lies under its nulls."""
    digest.update(f"{value.type}\0".encode())
    _feed(value, digest, writer)


def _feed(value: Any, digest: Digest, writer: PartWriter) -> None:
    kind = value.type
    if isinstance(value, pa.ChunkedArray):
        wide = _wide(kind)
        value = (value if wide is None else value.cast(wide)).combine_chunks()
        if isinstance(value, pa.ChunkedArray):  # still too large for one array
            value = pa.concat_arrays(value.chunks) if value.num_chunks else pa.array([], value.type)
    elif (wide := _wide(kind)) is not None:
        value = value.cast(wide)
    kind = value.type
    if isinstance(kind, pa.BaseExtensionType):
        _feed(value.storage, digest, writer)
        return
    if pa.types.is_dictionary(kind):
        _feed(value.dictionary_decode(), digest, writer)
        return
    digest.update(f"{len(value)},{value.null_count};".encode())
    if pa.types.is_null(kind):
        return
    if value.null_count:
        digest.update(np.packbits(value.is_valid().to_numpy(zero_copy_only=False)).data)
        value = value.drop_null()
    if pa.types.is_boolean(kind):
        digest.update(np.packbits(value.to_numpy(zero_copy_only=False)).data)
    elif pa.types.is_large_binary(kind):
        offsets = (
            np.frombuffer(value.buffers()[1], np.int64)[value.offset : value.offset + len(value) + 1]
            if len(value)
            else np.zeros(1, np.int64)
        )
        digest.update(np.diff(offsets).data)
        if value.buffers()[2] is not None:
            digest.update(memoryview(value.buffers()[2])[offsets[0] : offsets[-1]])
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        digest.update(pc.cast(pc.list_value_length(value), pa.int64()).to_numpy(zero_copy_only=False).data)
        _feed(value.flatten(), digest, writer)
    elif pa.types.is_struct(kind):
        for field, part in zip(kind, value.flatten(), strict=True):
            digest.update(f"{field.name}\0".encode())
            _feed(part, digest, writer)
    elif pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        _feed_fixed(value, digest)
    else:
        feed_parts(value.to_pylist(), digest, writer)


def _wide(kind: Any) -> Any:
    """The type under which contents are hashed, where it is another than the array's own."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind):
        return pa.large_binary()
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return pa.large_binary()
    return None


def _feed_fixed(value: Any, digest: Digest) -> None:
    width = value.type.bit_width // 8
    if not len(value):
        return
    raw = np.frombuffer(value.buffers()[1], np.uint8, len(value) * width, value.offset * width)
    if pa.types.is_floating(value.type):
        raw = alike(raw.view(f"f{width}")).view(np.uint8)
    digest.update(raw.data)


def for_sql(value: Any) -> Any:
    """A batch as a table."""
    return pa.Table.from_batches([value]) if isinstance(value, pa.RecordBatch) else value


def begin(value: Any, rows: int, columns: int) -> Rows | None:
    """The first rows of a table, batch or array."""
    if isinstance(value, pa.Array | pa.ChunkedArray):
        return Rows(["value"], [[item.as_py()] for item in value[:rows]], (len(value), 1))
    if not isinstance(value, pa.Table | pa.RecordBatch):
        return None
    names = list(value.schema.names)[:columns]
    parts = [value.column(i).slice(0, rows).to_pylist() for i in range(len(names))]
    return Rows(names, [list(row) for row in zip(*parts, strict=True)], (value.num_rows, value.num_columns))
