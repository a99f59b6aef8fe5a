"""Types of inputs and outputs: strict checks, sentences for what is wrong, JSON Schema.

pydantic is imported when a value is first checked, not when a workflow is defined.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import sys
import typing
import warnings
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import TypeAdapter

EMPTY: Any = inspect.Parameter.empty


class Inputs(Mapping[str, Any]):
    """Validated inputs, read only: ``ctx.inputs.url`` or ``ctx.inputs["url"]``."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_values", dict(values))

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Any:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __getattr__(self, name: str) -> Any:
        try:
            return object.__getattribute__(self, "_values")[name]
        except KeyError:
            raise AttributeError(f"no input named {name!r}; there are {', '.join(self._values) or 'none'}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("inputs are read only")

    def __repr__(self) -> str:
        return f"Inputs({', '.join(f'{k}={v!r}' for k, v in self._values.items())})"


class ValueType:
    """A type annotation that values are checked against. Unresolvable ones accept anything, with one warning."""

    def __init__(self, annotation: Any, resolve: Callable[[Any], Any], *, label: str) -> None:
        self._raw = annotation
        self._resolve = resolve
        self._label = label
        self._adapter: TypeAdapter[Any] | None = None
        self._annotation: Any = EMPTY

    @property
    def annotation(self) -> Any:
        """The annotation as a type; ``Any`` where there is none."""
        if self._annotation is EMPTY:
            self._annotation = Any if self._raw is EMPTY else self._resolved()
        return self._annotation

    def _resolved(self) -> Any:
        try:
            return self._resolve(self._raw)
        except Exception as error:
            # A name under TYPE_CHECKING, or of a cell not run yet. Not kept, so that a later use may find it.
            warnings.warn(
                f"{self._label}: its annotation {self._raw!r} cannot be read ({error}); any value is taken for now",
                stacklevel=2,
            )
            return Any

    @property
    def adapter(self) -> TypeAdapter[Any]:
        """pydantic's adapter for it."""
        if self._adapter is None:
            from pydantic import ConfigDict, PydanticUserError, TypeAdapter

            annotation = self.annotation
            try:
                self._adapter = TypeAdapter(annotation, config=ConfigDict(arbitrary_types_allowed=True))
            except PydanticUserError:  # models bring their own configuration
                self._adapter = TypeAdapter(annotation)
        return self._adapter

    @property
    def is_any(self) -> bool:
        """Whether every value fits."""
        return self.annotation is Any

    @property
    def secret(self) -> bool:
        """Whether a secret type stands anywhere in it."""
        if self._raw is EMPTY or (isinstance(self._raw, type) and "Secret" not in self._raw.__name__):
            return False
        return _holds_secret(self.annotation)

    def describe(self) -> str:
        """The type in a few characters, for sentences."""
        if isinstance(self._raw, str):
            return self._raw
        annotation = self.annotation
        if isinstance(annotation, type) and not typing.get_args(annotation):
            return annotation.__name__
        return str(annotation).replace("typing.", "")

    def check(self, value: Any, path: str, *, strict: bool = True) -> tuple[Any, list[str]]:
        """The checked value and what is wrong with it; ``strict`` forbids every conversion but int to float."""
        if self.is_any:
            return value, []
        from pydantic import ValidationError

        try:
            return self.adapter.validate_python(value, strict=strict), []
        except ValidationError as error:
            return value, list(problems(error, path, secret=self.secret))

    def parse(self, text: str) -> Any:
        """The value that a person means by ``text``; the text itself where nothing else fits (the check will say so)."""
        from pydantic import ValidationError

        if self.annotation is str:
            return text
        if self.is_any:
            try:
                return json.loads(text)
            except ValueError:
                return text
        for form in (text, _LITERALS.get(text.strip().lower(), text), json.dumps(text)):
            try:
                return self.adapter.validate_json(form, strict=True)
            except (ValidationError, ValueError):
                continue
        return text

    def json_schema(self) -> dict[str, Any]:
        """JSON Schema; ``{}`` for what JSON Schema cannot say (tables, arrays)."""
        from pydantic.errors import PydanticInvalidForJsonSchema

        if self.is_any:
            return {}
        try:
            return self.adapter.json_schema()
        except PydanticInvalidForJsonSchema:
            return {}


_LITERALS = {"true": "true", "yes": "true", "false": "false", "no": "false", "none": "null", "null": "null"}


class InputField:
    """One input: a name, a type, perhaps a default."""

    def __init__(self, name: str, type_: ValueType, default: Any = EMPTY) -> None:
        self.name, self.type, self._default = name, type_, default

    @property
    def required(self) -> bool:
        return self._default is EMPTY

    @property
    def default(self) -> Any:
        """A copy of it, so that no body can change it for the next run."""
        return copy.deepcopy(self._default)


def resolver(fn: Callable[..., Any]) -> Callable[[Any], Any]:
    """What turns the annotations of ``fn`` into types: strings are looked up where the function was written."""

    def resolve(annotation: Any) -> Any:
        closure = inspect.getclosurevars(fn).nonlocals if fn.__closure__ else {}
        holder = type("_", (), {"__annotations__": {"value": annotation}})
        names = {**getattr(fn, "__globals__", {}), **closure}
        module = sys.modules.get(fn.__module__)
        return typing.get_type_hints(
            holder, globalns=names, localns=vars(module) if module else None, include_extras=True
        )["value"]

    return resolve


def fields_of(annotation: Any) -> dict[str, Any]:
    """The types of a model's, dataclass's or typed dict's fields by name; none where it has none, or they cannot be read."""
    try:
        model_fields = getattr(annotation, "model_fields", None)
        if model_fields is not None:
            return {field.alias or name: field.rebuild_annotation() for name, field in model_fields.items()}
        if typing.is_typeddict(annotation) or dataclasses.is_dataclass(annotation):
            return typing.get_type_hints(annotation, include_extras=False)
    except Exception:  # a name that cannot be resolved: what is not known is not checked
        pass
    return {}


def problems(error: Any, path: str, *, secret: bool = False) -> Iterable[str]:
    """Sentences for a pydantic ``ValidationError``, each beginning with the path of the value it is about."""
    for detail in error.errors(include_url=False, include_context=False):
        where = path + "".join(f"[{p!r}]" if isinstance(p, int) else f".{p}" for p in detail["loc"])
        message = detail["msg"]
        message = message[0].lower() + message[1:] if message else "does not fit"
        given = detail.get("input")
        if secret or detail["type"] in ("missing", "extra_forbidden"):
            yield f"{where}: {message}"
        else:
            yield f"{where}: {message}, got {short(given)} ({type(given).__name__})"


def unknown_input(name: str, known: Iterable[str]) -> str:
    """The sentence for an input that the workflow does not have."""
    known = list(known)
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}" if known else "it takes none"
    return f"{name}: unknown; {hint}"


def short(value: Any, limit: int = 60) -> str:
    """``repr`` on one line, at most ``limit`` characters."""
    try:
        text = " ".join(repr(value).split())
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _holds_secret(annotation: Any) -> bool:
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return annotation.__module__.startswith("pydantic") and annotation.__name__ in (
            "Secret",
            "SecretStr",
            "SecretBytes",
        )
    origin = typing.get_origin(annotation)
    if getattr(origin, "__name__", "") == "Secret":
        return True
    return any(_holds_secret(a) for a in typing.get_args(annotation))
