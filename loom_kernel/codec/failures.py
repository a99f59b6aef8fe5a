"""Exceptions as records and back: the same class live and replayed, with the person's own lines of code."""

from __future__ import annotations

import linecache
import sysconfig
import types
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from loom_kernel.cells import cell_name
from loom_kernel.codec import classes
from loom_kernel.codec.forms import BLOB_BYTES, TAG, Unkept
from loom_kernel.codec.reading import READ, Reader, missing
from loom_kernel.codec.writing import WRITE_BY_TEST, Writer
from loom_kernel.codec_tables.refusal import Refused, type_name
from loom_kernel.errors import StepFailed
from loom_kernel.events import NULL, ErrorRecord, Frame

MESSAGE_CHARACTERS = 10_000
FRAMES = 20
CAUSES = 5

_RECORD = "_loom_record"  # a rebuilt exception keeps its record, so that telling it on loses nothing

_LIBRARIES = tuple(
    {path for name in ("stdlib", "platstdlib", "purelib", "platlib") if (path := sysconfig.get_paths().get(name))}
)


# ---------------------------------------------------------------- writing


def encode_error(exc: BaseException, *, hide: tuple[str, ...] = ("loom_kernel",)) -> ErrorRecord:
    """An exception as the journal keeps it. Never raises.

    Args:
        exc: what was raised.
        hide: packages whose frames are not the person's.

    What its arguments and attributes hold is kept where it can be; the rest is replaced by a note of what it was.
    """
    return _record(exc, hide, CAUSES, set())


def _record(exc: BaseException, hide: tuple[str, ...], depth: int, seen: set[int]) -> ErrorRecord:
    kept = vars(exc).get(_RECORD)
    frames = _frames(exc, hide)
    if isinstance(kept, ErrorRecord):
        return kept
    seen = seen | {id(exc)}
    args, state = _parts(exc, seen)
    cause = exc.__cause__
    return ErrorRecord(
        type=classes.class_name(type(exc)),
        message=_message(exc),
        args=_raw([_one(item, seen) for item in args]),
        state=_raw({name: _one(item, seen) for name, item in state.items()}) if state else NULL,
        frames=frames,
        notes=[str(note) for note in getattr(exc, "__notes__", ())],
        cause=_record(cause, hide, depth - 1, seen)
        if cause is not None and depth > 0 and id(cause) not in seen
        else None,
    )


def _message(exc: BaseException) -> str:
    try:
        text = str(exc)
    except Exception:
        text = f"<{type(exc).__name__} whose text cannot be made>"
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= MESSAGE_CHARACTERS else text[: MESSAGE_CHARACTERS - 1] + "…"


def _builtin_base(cls: type) -> type[BaseException]:
    """The built-in class whose memory layout ``cls`` has: only its ``__new__`` may make an instance."""
    while cls.__module__ != "builtins":
        cls = cls.__base__  # type: ignore[assignment]
    return cls


def _parts(exc: BaseException, inside: set[int]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments for the built-in base's constructor, and the instance's own attributes."""
    if _is_validation_error(type(exc)):
        return (exc.title, [_problem(error, inside) for error in exc.errors(include_url=False)]), {}  # type: ignore[attr-defined]
    try:
        reduced: Any = _builtin_base(type(exc)).__reduce__(exc)
        args = reduced[1]
        state = dict(reduced[2] or {}) if len(reduced) > 2 else {}
    except Exception:
        args, state = exc.args, dict(vars(exc))
    for name in ("__notes__", _RECORD):
        state.pop(name, None)
    return tuple(args), state


def _one(value: Any, inside: set[int]) -> Any:
    writer = _PartWriter(inline=True, inside=inside)
    try:
        tree = writer.tree(value)
        if len(msgspec.json.encode(tree)) <= BLOB_BYTES // 2:
            return tree
    except (Refused, RecursionError, ValueError, TypeError):
        pass
    try:
        text = repr(value)[:200]
    except Exception:
        text = ""
    return {TAG: "unkept", "kind": type_name(value), "text": text.encode("utf-8", "replace").decode()}


class _PartWriter(Writer):
    """Writes what an exception holds. Exceptions in it may be of any class: those come back as ``StepFailed``."""


def _raw(tree: Any) -> Raw:
    data = msgspec.json.encode(tree)
    return Raw(data) if len(data) <= BLOB_BYTES else NULL


def _frames(exc: BaseException, hide: tuple[str, ...]) -> list[Frame]:
    """The person's own lines, outermost first; other people's only if there are none of the person's."""
    own: list[Frame] = []
    foreign: list[Frame] = []
    tb: types.TracebackType | None = exc.__traceback__
    while tb is not None:
        code, line = tb.tb_frame.f_code, tb.tb_lineno
        module = tb.tb_frame.f_globals.get("__name__") or ""
        if module.split(".")[0] not in hide:
            (own if _is_own(code.co_filename) else foreign).append(_frame(code, line))
        tb = tb.tb_next
    if not own:
        return foreign[-3:]
    return own if len(own) <= FRAMES else [*own[: FRAMES // 2], *own[-FRAMES // 2 :]]


def _frame(code: types.CodeType, line: int) -> Frame:
    filename = code.co_filename
    text = linecache.getline(filename, line).strip()
    return Frame(
        file=cell_name(filename) or ("cell" if is_cell(filename) else filename),
        line=line,
        name=code.co_name,
        text=text[:300],
    )


def is_cell(filename: str) -> bool:
    """Whether a code file name stands for a notebook cell: ipykernel's and IPython's forms, and our own."""
    name = filename.replace("\\", "/").rsplit("/", 1)[-1]
    parent = filename.replace("\\", "/").rsplit("/", 2)[-2] if "/" in filename else ""
    return parent.startswith("ipykernel_") or name.startswith(("<ipython-input-", "<cell", "<workflow", "cell ["))


def _is_own(filename: str) -> bool:
    if is_cell(filename):
        return True
    if filename.startswith("<frozen") or "site-packages" in filename or "dist-packages" in filename:
        return False
    return not filename.startswith(_LIBRARIES)


# ---------------------------------------------------------------- reading


def rebuildable(exc: BaseException, namespace: Mapping[str, Any] | None = None) -> bool:
    """Whether :func:`decode_error` would give an exception of the same class.

    False for classes defined inside functions, or not found under their own name; those are raised as ``StepFailed``,
    live too, so that a body sees the same whether it runs or replays.
    """
    cls = type(exc)
    if "<locals>" in cls.__qualname__:
        return False
    try:
        found = classes.find_class(classes.class_name(cls), "error", namespace)
        if (
            found is not cls and found.__module__ != "__main__"
        ):  # a cell that was run again made a new class of that name
            return False
        return type(_rebuild(found, encode_error(exc), Reader(missing, namespace))) is found
    except Exception:
        return False


def decode_error(record: ErrorRecord, *, step: str, namespace: Mapping[str, Any] | None = None) -> BaseException:
    """The exception of a record, rebuilt without its class's ``__init__``; never raises.

    Args:
        record: as :func:`encode_error` gave it.
        step: the failed step's name, for the ``StepFailed`` that stands in for a class that is not here.
        namespace: where classes of the notebook are found.
    """
    try:
        cls = classes.find_class(record.type, "error", namespace)
        exc = _rebuild(cls, record, Reader(missing, namespace, step))
    except Exception:
        kind = record.type.replace("__main__:", "").replace("builtins:", "").replace(":", ".")
        exc = StepFailed(step, kind, record.message)
    for note in record.notes:
        exc.add_note(note)
    if record.cause is not None:
        exc.__cause__ = decode_error(record.cause, step=step, namespace=namespace)
        exc.__suppress_context__ = True
    try:
        vars(exc)[_RECORD] = record
    except TypeError:
        pass  # an exception with __slots__ only
    return exc


def _rebuild(cls: type, record: ErrorRecord, reader: Reader) -> BaseException:
    nodes = msgspec.json.decode(record.args)
    args: list[Any] = [record.message] if nodes is None else [_value(reader, node) for node in nodes]
    state = msgspec.json.decode(record.state) or {}
    if _is_validation_error(cls):
        return _validation_error(cls, *args)
    base = _builtin_base(cls)
    try:
        exc: BaseException = base.__new__(cls, *args)
    except TypeError:
        if not issubclass(base, BaseExceptionGroup):
            raise
        text, _, count = record.message.rpartition(" (")
        lost = StepFailed(reader.step, "exceptions", "this member of the group was not kept")
        args = [text, [lost] * min(max(int(count.partition(" ")[0]), 1), 100)]
        exc = base.__new__(cls, *args)
    try:
        base.__init__(exc, *args)
    except Exception:
        exc.args = tuple(args)
    for name, node in state.items():
        try:
            object.__setattr__(exc, name, _value(reader, node))
        except (AttributeError, TypeError):
            continue
    return exc


def _value(reader: Reader, node: Any) -> Any:
    try:
        return reader.value(node)
    except Exception:
        return Unkept(str(node.get("class", "value")) if isinstance(node, dict) else "value", "")


# ---------------------------------------------------------------- pydantic's validation errors, which have a way of their own


def _is_validation_error(cls: type) -> bool:
    return cls.__name__ == "ValidationError" and cls.__module__.startswith("pydantic_core")


def _problem(error: dict[str, Any], inside: set[int]) -> dict[str, Any]:
    kept: dict[str, Any] = {name: error[name] for name in ("type", "loc", "msg") if name in error}
    if _is_kept(error.get("ctx"), inside):
        kept["ctx"] = error.get("ctx") or {}
    value = error.get("input")
    kept["input"] = value if _is_kept(value, inside) else Unkept(type_name(value), "")
    return kept


def _is_kept(value: Any, inside: set[int]) -> bool:
    tree = _one(value, inside)
    return not (isinstance(tree, dict) and tree.get(TAG) == "unkept")


def _validation_error(cls: Any, title: str, problems: list[dict[str, Any]]) -> BaseException:
    from pydantic_core import PydanticCustomError

    details: list[Any] = []
    for problem in problems:
        detail = {name: problem[name] for name in ("type", "loc", "ctx", "input") if name in problem}
        try:
            cls.from_exception_data(title, [detail])
        except (KeyError, TypeError, ValueError):  # a type of the person's own
            detail["type"] = PydanticCustomError(problem["type"], problem["msg"].replace("{", "(").replace("}", ")"))
            detail.pop("ctx", None)
        details.append(detail)
    exc: BaseException = cls.from_exception_data(title, details)
    return exc


# ---------------------------------------------------------------- exceptions as values


def _write(w: Writer, value: BaseException) -> Any:
    if not isinstance(w, _PartWriter):
        w.named(value, "error")
    record = w.container(value, lambda: _record(value, ("loom_kernel",), CAUSES, w.inside))
    return {TAG: "error", "v": msgspec.json.decode(msgspec.json.encode(record))}


def _read(r: Reader, node: Any) -> BaseException:
    record = msgspec.json.decode(msgspec.json.encode(node["v"]), type=ErrorRecord)
    return decode_error(record, step=r.step, namespace=r.namespace)


WRITE_BY_TEST.insert(0, (classes.KINDS["error"], _write))  # errors hold values, and values hold errors
READ["error"] = _read
