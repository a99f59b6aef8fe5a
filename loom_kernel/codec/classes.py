"""Which classes a stored value may name, and how they are found again: data classes only, never anything callable.

A class is stored as ``module:QualName``. Reading one back imports that module (or looks into the notebook's namespace)
and accepts it only if it is a class of plain data: dataclass, pydantic model, enum, exception, named tuple, attrs class,
``msgspec.Struct`` or pydantic URL.
"""

from __future__ import annotations

import enum
import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from loom_kernel.errors import UnknownClassError


def is_model(cls: type) -> bool:
    """Whether ``cls`` is a pydantic model, without importing pydantic."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(cls, pydantic.BaseModel)


def is_url(cls: type) -> bool:
    """Whether ``cls`` is one of pydantic's URL types."""
    networks = sys.modules.get("pydantic.networks")
    if networks is None:
        return False
    bases = tuple(b for n in ("_BaseUrl", "_BaseMultiHostUrl") if isinstance(b := getattr(networks, n, None), type))
    return bool(bases) and issubclass(cls, bases)


def is_struct(cls: type) -> bool:
    return hasattr(cls, "__struct_fields__")


def is_namedtuple(cls: type) -> bool:
    return issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple)


KINDS: dict[str, Callable[[type], bool]] = {
    "dataclass": lambda cls: hasattr(cls, "__dataclass_fields__"),
    "model": is_model,
    "enum": lambda cls: issubclass(cls, enum.Enum),
    "error": lambda cls: issubclass(cls, BaseException),
    "namedtuple": is_namedtuple,
    "attrs": lambda cls: hasattr(cls, "__attrs_attrs__"),
    "struct": is_struct,
    "url": is_url,
}
"""The test that a found class must pass, by the tag of the value that names it."""


FILE_MODULE = "__loom"
"""Begins the names of the modules that files of workflows are loaded as."""


def module_of(thing: Any) -> str:
    """The module of a class or function.

    A file that the command line or a worker loads counts as the main script that it is when run by itself, so that the
    same class is the same wherever the run goes on.
    """
    module: str = thing.__module__
    return "__main__" if module is not None and module.startswith(FILE_MODULE) else module


def class_name(cls: type) -> str:
    """``module:QualName`` of a class."""
    return f"{module_of(cls)}:{cls.__qualname__}"


def why_not_findable(cls: type, kind: str) -> str | None:
    """None when :func:`find_class` will find ``cls`` (or a later definition of the same name), else the reason."""
    if "<locals>" in cls.__qualname__:
        return "Its class is defined inside a function, where it cannot be found again; define it at the top level of a cell or module."
    try:
        find_class(class_name(cls), kind, None)
    except UnknownClassError as error:
        return f"Its class cannot be found again: {error.why}."
    return None


def find_class(name: str, kind: str, namespace: Mapping[str, Any] | None) -> type:
    """The class that a stored value names.

    Args:
        name: ``module:QualName``.
        kind: a key of :data:`KINDS`.
        namespace: where classes of ``__main__`` (and of modules that are gone) are looked up first.

    Raises:
        UnknownClassError: it is not there, or not a class of that kind.
    """
    module_name, _, qualname = name.partition(":")
    first, *rest = qualname.split(".")
    found: Any = None
    main = module_name == "__main__"
    if main and namespace is not None:
        found = namespace.get(first)
    why = ""
    if found is None:
        module = sys.modules.get(module_name)
        if module is None:
            try:
                module = importlib.import_module(module_name)
            except Exception as error:
                why = f"whose module {module_name!r} cannot be imported here ({error})"
        if module is not None:
            found = vars(module).get(first)
        if found is None and not main and namespace is not None:
            found = namespace.get(first)
    for part in rest:
        found = vars(found).get(part) if isinstance(found, type) else None
    if found is None:
        place = "this notebook; run the cell that defines it" if main else f"{module_name}"
        raise UnknownClassError(name, why or f"which is not defined in {place}")
    if not isinstance(found, type) or not KINDS[kind](found):
        raise UnknownClassError(name, f"which is no longer a class of the same kind ({kind})")
    return found
