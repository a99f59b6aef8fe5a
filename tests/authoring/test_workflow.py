"""Workflows: definitions, strict inputs, outputs, versions, options."""

from __future__ import annotations

import asyncio
import datetime as dt
import enum
import linecache
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, SecretStr, model_validator

from loom_kernel.authoring.context import Context
from loom_kernel.authoring.registry import registry
from loom_kernel.authoring.workflow import WorkflowDefinition, define, resolve_inputs, workflow
from loom_kernel.errors import DefinitionError, InputError, OutputError
from loom_kernel.policies import Budget


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test defines is forgotten."""
    monkeypatch.setattr(registry, "_definitions", {})


async def digest(ctx: Context, url: str, limit: int = 10, ratio: float = 0.5) -> dict[str, int]:
    """Summarise a feed.

    At length.
    """
    return {"n": limit}


def test_with_and_without_parentheses() -> None:
    """Both spellings define and register the same."""
    plain, called, named = workflow(digest), workflow()(digest), workflow(name="Daily Digest")(digest)
    assert (plain.name, called.name, named.name) == ("digest", "digest", "Daily Digest")
    assert named.normalized_name == "daily-digest"
    assert plain.description == "Summarise a feed."
    assert registry.names() == ["Daily Digest", "digest"]
    assert registry.get("digest") is called
    assert workflow("short")(digest).name == "short"


def test_definitions_are_frozen() -> None:
    """A run that goes on cannot have its definition changed under it."""
    with pytest.raises(FrozenInstanceError):
        workflow(digest).name = "other"  # type: ignore[misc]


def test_what_a_definition_carries() -> None:
    """The compiled fields: the cadence resolved to a number, auto_attach only where it is literally True."""
    plain = define(digest)
    assert (plain.heartbeat_interval_minutes, plain.auto_attach, plain.budget) == (15.0, False, None)
    assert [define(digest, heartbeat_interval_minutes=m).heartbeat_interval_minutes for m in (0, 30, 0.5)] == [
        0,
        30,
        0.5,
    ]
    assert [define(digest, auto_attach=given).auto_attach for given in (True, 1, "yes")] == [True, False, False]  # type: ignore[arg-type]
    for wrong in (-1, float("nan"), float("inf"), True, "15", None):
        with pytest.raises(TypeError, match="heartbeat_interval_minutes"):
            define(digest, heartbeat_interval_minutes=wrong)  # type: ignore[arg-type]
    carried = workflow(heartbeat_interval_minutes=2, auto_attach=True)(digest).options(tags="x")
    assert (carried.heartbeat_interval_minutes, carried.auto_attach) == (2, True)


def test_what_cannot_be_a_body_is_refused() -> None:
    """Each with what to write instead."""

    def sync(ctx: Context) -> None: ...

    async def stream(ctx: Context) -> Any:
        yield 1

    async def many(ctx: Context, *urls: str) -> None: ...

    async def more(ctx: Context, **options: str) -> None: ...

    for fn, says in (
        (sync, "async def sync"),
        (stream, "generator"),
        (many, r"\*urls"),
        (more, r"\*\*options"),
    ):
        with pytest.raises(DefinitionError, match=says):
            workflow(fn)
    with pytest.raises(DefinitionError, match="no letter or digit"):
        define(digest, name="!!")
    with pytest.raises(DefinitionError, match="Budget"):
        define(digest, budget=3)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="description"):
        define(digest, description=3)  # type: ignore[arg-type]
    assert len(registry) == 0


def test_every_problem_with_the_inputs_is_in_one_error() -> None:
    """Unknown, missing and wrong-typed inputs are all listed, one a line, before anything runs."""
    with pytest.raises(InputError) as caught:
        define(digest).validate_inputs({"limti": 3, "limit": "3", "ratio": True})
    lines = str(caught.value).splitlines()
    assert lines[0] == "workflow 'digest': 4 problems with the inputs"
    assert "  - limti: unknown; did you mean 'limit'?" in lines
    assert "  - url: missing (str)" in lines
    assert "  - limit: input should be a valid integer, got '3' (str)" in lines
    assert any(line.startswith("  - ratio:") for line in lines)


def test_nothing_is_converted_but_whole_numbers_to_floats() -> None:
    """``"3"`` is not 3, True is not 1; 1 is 1.0."""
    values = define(digest).validate_inputs({"url": "a", "ratio": 1})
    assert values == {"url": "a", "limit": 10, "ratio": 1.0}
    assert type(values["ratio"]) is float
    for wrong in ({"limit": 3.0}, {"limit": "3"}, {"limit": True}, {"limit": None}, {"url": b"a"}):
        with pytest.raises(InputError):
            define(digest).validate_inputs({"url": "a", **wrong})


def test_defaults_are_copied() -> None:
    """A body that changes its default does not change the next run."""

    async def collect(ctx: Context, found: list[str] = []) -> None: ...  # noqa: B006

    definition = define(collect)
    definition.validate_inputs({})["found"].append("x")
    assert definition.validate_inputs({}) == {"found": []}


def test_none_may_be_a_default_of_anything() -> None:
    """``limit: int = None`` is common, and what it means is clear."""

    async def maybe(ctx: Context, limit: int = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013

    assert define(maybe).validate_inputs({}) == {"limit": None}


def test_a_context_without_annotation_is_a_context() -> None:
    """``ctx`` needs no annotation, and a body may do without it."""

    async def bare(ctx, x: int): ...  # type: ignore[no-untyped-def]

    async def without(x: int) -> int:
        return x

    async def other(c: Context, x: int) -> None: ...

    for fn in (bare, without, other):
        assert list(define(fn).fields) == ["x"]
    assert not define(without).takes_context

    async def call() -> int:
        return await define(without).call(None, {"x": 3})  # type: ignore[arg-type]

    assert asyncio.run(call()) == 3


class Order(BaseModel):
    """Inputs as a model with a rule over two fields."""

    item: str
    count: int = 1
    token: SecretStr | None = None

    @model_validator(mode="after")
    def few_of_gold(self) -> Order:
        if self.item == "gold" and self.count > 2:
            raise ValueError("at most two of gold")
        return self


def test_inputs_may_be_a_model() -> None:
    """``ctx.inputs`` is then an instance of it, and its own rules count."""

    @workflow(inputs=Order)
    async def buy(ctx: Context) -> None: ...

    values = buy.validate_inputs({"item": "gold"})
    assert values == {"item": "gold", "count": 1, "token": None}
    made = buy.inputs_object(values)
    assert isinstance(made, Order)
    assert made.item == "gold"
    assert buy.secret_inputs == {"token"}
    assert buy.input_schema()["properties"]["count"]["default"] == 1
    with pytest.raises(InputError, match="at most two of gold"):
        buy.validate_inputs({"item": "gold", "count": 3})
    with pytest.raises(InputError, match="2 problems"):
        buy.validate_inputs({"count": "x"})
    with pytest.raises(DefinitionError, match="no field of Order"):

        @workflow(inputs=Order)
        async def wrong(ctx: Context, price: float) -> None: ...


def test_inputs_read_like_attributes_and_stay_as_they_are() -> None:
    """Without a model ``ctx.inputs`` is a read-only mapping with attributes."""
    inputs = define(digest).inputs_object({"url": "a", "limit": 3})
    assert inputs.url == inputs["url"] == "a"
    assert dict(inputs) == {"url": "a", "limit": 3}
    assert repr(inputs) == "Inputs(url='a', limit=3)"
    with pytest.raises(AttributeError, match="read only"):
        inputs.url = "b"
    with pytest.raises(AttributeError, match="no input named 'ulr'"):
        _ = inputs.ulr


async def _log_in(ctx: Context, user: str, password: SecretStr) -> None: ...


def test_secrets_are_never_shown_and_asked_for_again() -> None:
    """A secret is not in the sentence about it, and a resume needs it again."""
    definition = define(_log_in)
    assert definition.secret_inputs == {"password"}
    with pytest.raises(InputError) as caught:
        definition.validate_inputs({"user": "a", "password": 12345})
    assert "12345" not in str(caught.value)
    values = definition.validate_inputs({"user": "a", "password": "hunter2"})
    assert "hunter2" not in repr(values)
    with pytest.raises(InputError, match="password: a secret, which is not stored; give it again"):
        definition.restore_inputs({"user": "a", "password": "digest"})
    restored = definition.restore_inputs({"user": "a", "password": "digest"}, {"password": "hunter2"})
    assert restored["password"].get_secret_value() == "hunter2"


def test_recorded_inputs_fit_a_workflow_that_has_changed() -> None:
    """Inputs that are gone are left out, new ones take their defaults."""
    assert define(digest).restore_inputs({"url": "a", "gone": 1}) == {"url": "a", "limit": 10, "ratio": 0.5}


class Colour(enum.Enum):
    RED = "red"


async def _typed(
    ctx: Context,
    n: int,
    on: bool,
    day: dt.date,
    path: Path,
    colour: Colour,
    sizes: list[float],
    mode: Literal["fast", "slow"],
    text: str,
    any: Any,
    maybe: int | None = None,
) -> None: ...


def test_text_becomes_the_type_that_the_input_has() -> None:
    """``key=value`` on a command line is read by each input's type."""
    definition = define(_typed)
    texts = {
        "n": "3", "on": "yes", "day": "2026-01-31", "path": "a/b.csv", "colour": "red", "sizes": "[1, 2.5]",
        "mode": "fast", "text": "3", "any": '{"a": 1}', "maybe": "none",
    }  # fmt: skip
    values = definition.validate_inputs(definition.parse_inputs(texts))
    assert values == {
        "n": 3, "on": True, "day": dt.date(2026, 1, 31), "path": Path("a/b.csv"), "colour": Colour.RED, "sizes": [1.0, 2.5],
        "mode": "fast", "text": "3", "any": {"a": 1}, "maybe": None,
    }  # fmt: skip
    with pytest.raises(InputError, match=r"n: input should be a valid integer, got 'three' \(str\)"):
        definition.validate_inputs({**values, **definition.parse_inputs({"n": "three"})})


def test_an_annotation_that_cannot_be_read_takes_anything_and_says_so() -> None:
    """A type of a cell that has not run yet does not stop the work."""

    async def early(ctx: Context, x: NotYet) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.warns(UserWarning, match="'NotYet' cannot be read"):
        assert define(early).validate_inputs({"x": object}) == {"x": object}


def test_annotations_of_the_enclosing_function_are_found() -> None:
    """A type that is local to a function counts, with postponed annotations too."""

    class Local(BaseModel):
        a: int

    async def nested(ctx: Context, x: list[int]) -> Local:
        return Local(a=len(x))

    assert define(nested).output_schema()["properties"] == {"a": {"title": "A", "type": "integer"}}


def test_outputs_are_checked_against_the_annotation() -> None:
    """What a body returns is held to what it says, with the path of what does not fit."""
    definition = define(digest)
    assert definition.check_output({"n": 1}) == {"n": 1}
    with pytest.raises(OutputError, match=r"output\.n: input should be a valid integer, got '1' \(str\)"):
        definition.check_output({"n": "1"})
    assert definition.output_schema() == {"additionalProperties": {"type": "integer"}, "type": "object"}


def test_outputs_may_be_a_model() -> None:
    """``outputs=`` names it; a dict of its fields is taken and becomes one."""

    @workflow(outputs=Order)
    async def order(ctx: Context): ...  # type: ignore[no-untyped-def]

    assert order.check_output({"item": "tin"}) == Order(item="tin")  # type: ignore[comparison-overlap]
    assert order.restore_output({"item": "tin", "count": 2}) == Order(item="tin", count=2)
    assert order.restore_output("something older") == "something older"


def test_options_are_apart_from_inputs() -> None:
    """An input may be called ``key``: options are set by ``options``."""
    definition = define(digest)
    made = definition.options(key="k", tags="one", fresh=True, budget=Budget(max_cost=1))
    assert (made.start_options.key, made.start_options.tags, made.start_options.fresh) == ("k", ("one",), True)
    assert definition.start_options.key is None
    with pytest.raises(TypeError, match="no option 'keys'"):
        definition.options(keys="k")


def test_positional_inputs_count_in_the_order_of_the_signature() -> None:
    """A definition is started like the function it was."""
    definition = define(digest)
    assert definition.bind("a", limit=3) == {"url": "a", "limit": 3}
    with pytest.raises(InputError, match="url: given twice"):
        definition.bind("a", url="b")
    with pytest.raises(InputError, match="4 values were given, it takes 3"):
        definition.bind(1, 2, 3, 4)
    assert resolve_inputs(definition, {"url": "a"}) == {"url": "a", "limit": 10, "ratio": 0.5}


def test_calling_a_definition_says_what_to_write() -> None:
    """A workflow is started, not called."""
    with pytest.raises(TypeError, match=r"digest.start\(...\)"):
        define(digest)(url="a")


def _compile(source: str, name: str = "<cell>") -> WorkflowDefinition[Any, Any]:
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    namespace: dict[str, Any] = {}
    exec(compile(source, name, "exec"), namespace)
    return define(namespace["job"])


def test_the_version_is_of_the_code_alone() -> None:
    """Comments, formatting and docstrings leave it; the body and the parameters change it."""
    first = _compile("async def job(ctx, x=1):\n    return x\n", "<a>")
    same = _compile('async def job(ctx, x = 1):\n    "Says."\n    # why\n    return (x)\n', "<b>")
    body = _compile("async def job(ctx, x=1):\n    return x + 1\n", "<c>")
    default = _compile("async def job(ctx, x=2):\n    return x\n", "<d>")
    assert first.version == same.version
    assert len({first.version, body.version, default.version}) == 3
    assert first.source.startswith("async def job")


def test_a_body_without_source_has_a_version_too() -> None:
    """Code made by ``exec`` is told apart by what it compiles to."""
    one: dict[str, Any] = {}
    two: dict[str, Any] = {}
    exec("async def job(ctx): return 1", one)
    exec("async def job(ctx): return 2", two)
    assert define(one["job"]).version != define(two["job"]).version
    assert define(one["job"]).source == ""
