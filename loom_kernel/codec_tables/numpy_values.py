"""numpy: arrays as npy without pickle, scalars as their number and dtype."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from loom_kernel.codec_tables import Digest, Kind, PartReader, PartWriter, Rows
from loom_kernel.codec_tables.refusal import Refused


def kind_of(cls: type) -> Kind:
    if cls is np.ndarray:
        return Kind(_write_array, feed_array)
    if issubclass(cls, np.generic):
        return Kind(_write_scalar)
    if issubclass(cls, np.dtype):
        return Kind(_write_dtype)
    if issubclass(cls, np.ndarray):
        raise Refused(f"numpy.{cls.__name__}", "Return np.asarray(...) of it, and a mask as an array of its own.")
    raise Refused(f"numpy.{cls.__name__}", "Return an array or a number instead.")


def _write_array(value: Any, writer: PartWriter) -> Any:
    _check(value.dtype)
    out = io.BytesIO()
    np.lib.format.write_array(out, value, allow_pickle=False)
    return writer.data("np.ndarray", out.getbuffer(), shape=list(value.shape), dtype=str(value.dtype))


def _check(dtype: Any) -> None:
    if dtype.hasobject:
        raise Refused("numpy array of objects", "Give it a dtype (e.g. .astype(str)), or return .tolist().")
    if dtype.kind == "T":
        raise Refused("numpy array of StringDType", "Return .astype(str), or .tolist().")


def feed_array(value: Any, digest: Digest, writer: PartWriter) -> None:
    """The contents of an array: dtype, shape and elements in C order, NaNs all alike."""
    dtype = value.dtype
    if dtype.hasobject or dtype.kind == "T":
        digest.update(f"object{value.shape}".encode())
        feed_parts(value.ravel().tolist(), digest, writer)
        return
    digest.update(f"{dtype.descr if dtype.names else dtype.str}{value.shape}".encode())
    if dtype.names:
        for name in dtype.names:  # by field: what lies between fields is not content
            feed_array(np.ascontiguousarray(value[name]), digest, writer)
        return
    digest.update(alike(np.ascontiguousarray(value)).reshape(-1).view(np.uint8).data if value.size else b"")


def alike(value: Any) -> Any:
    """The same array with one single NaN pattern."""
    if value.dtype.kind not in "fc":
        return value
    nan = np.isnan(value)
    if not nan.any():
        return value
    value = value.copy()
    value[nan] = np.nan
    return value


def feed_parts(values: list[Any], digest: Digest, writer: PartWriter) -> None:
    """Any Python values, by what the codec's writer makes of them."""
    import msgspec

    digest.update(msgspec.json.encode(writer.part(values), order="deterministic"))


def _write_scalar(value: Any, writer: PartWriter) -> Any:
    dtype = value.dtype
    if dtype.kind in "mM":
        return {"$loom": "np.scalar", "dtype": dtype.str, "v": int(value.view("i8"))}
    if (dtype.kind in "biufcSU" and dtype.itemsize <= 8) or dtype.kind in "SU" or dtype == np.complex128:
        return {"$loom": "np.scalar", "dtype": dtype.str, "v": writer.tree(value.item())}
    _check(dtype)
    out = io.BytesIO()
    np.lib.format.write_array(out, np.asarray(value), allow_pickle=False)
    return writer.data("np.scalar", out.getbuffer(), npy=True)


def _read_scalar(node: Any, reader: PartReader) -> Any:
    if node.get("npy"):
        return _load(reader.data(node))[()]
    dtype = np.dtype(node["dtype"])
    if dtype.kind in "mM":
        return np.array(node["v"], "i8").view(dtype)[()]
    return np.array(reader.value(node["v"]), dtype)[()]


def _write_dtype(value: Any, writer: PartWriter) -> Any:
    _check(value)
    return {"$loom": "np.dtype", "v": writer.part(np.lib.format.dtype_to_descr(value))}


def _load(data: bytes) -> Any:
    return np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)


READ = {
    "np.ndarray": lambda node, reader: _load(reader.data(node)),
    "np.scalar": _read_scalar,
    "np.dtype": lambda node, reader: np.lib.format.descr_to_dtype(reader.value(node["v"])),
}


def begin(value: Any, rows: int, columns: int) -> Rows | None:
    """The first rows of an array of one or two dimensions."""
    if not isinstance(value, np.ndarray) or value.ndim not in (1, 2):
        return None
    if value.dtype.names:
        names = list(value.dtype.names)
        return Rows(names[:columns], [list(row)[:columns] for row in value[:rows].tolist()], (len(value), len(names)))
    table = value.reshape(len(value), -1)
    width = table.shape[1]
    names = [str(i) for i in range(width)] if value.ndim == 2 else ["value"]
    return Rows(names[:columns], table[:rows, :columns].tolist(), (len(value), width))
