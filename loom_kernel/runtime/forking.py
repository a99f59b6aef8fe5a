"""``r.fork(...)``: another run that begins with this one's records, up to a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec
from msgspec import Raw

from loom_kernel import codec, events
from loom_kernel.authoring.launcher import Options
from loom_kernel.engine import forking
from loom_kernel.engine.forking import Cut, Given
from loom_kernel.errors import ForkError, UnknownRunError
from loom_kernel.ids import RunId
from loom_kernel.runtime import look
from loom_kernel.runtime.core import encode_inputs
from loom_kernel.runtime.node import NodeRef, find_node
from loom_kernel.runtime.options import NOTHING, RunOptions
from loom_kernel.views.node import split_node_id
from loom_kernel.views.words import plural

if TYPE_CHECKING:
    from loom_kernel.authoring.workflow import WorkflowDefinition
    from loom_kernel.runtime.core import Runtime
    from loom_kernel.runtime.host import Place
    from loom_kernel.runtime.run import Run


class Fork(NamedTuple):
    """What :meth:`Run.fork` was given."""

    from_node: str | NodeRef | None = None
    inputs: Mapping[str, Any] | None = None
    answers: Mapping[str, Any] | None = None
    secrets: Mapping[str, Any] | None = None
    tags: tuple[str, ...] | None = None
    fresh: bool = False


async def fork(
    runtime: Runtime,
    source: Run[Any],
    place: Place,
    given: Fork,
    *,
    definition: WorkflowDefinition[..., Any] | None = None,
    options: Options | None = None,
    more: RunOptions = NOTHING,
) -> Run[Any]:
    """Make the fork and begin it; see :meth:`Run.fork`. On the loop thread.

    Args:
        definition: what it executes; the one of the source's name when left out.
        options: of its start; tags are those of ``given``.
        more: what else its start was told.
    """
    await source._load()
    definition = definition or runtime.definition_of(source.view.workflow, source._definition)
    options = options or Options()
    values = await _inputs(runtime, source, definition, dict(given.inputs or {}), dict(given.secrets or {}))
    path = given.from_node or ""
    if not isinstance(path, str):
        path = path.path
    cut = Cut(at=path, unseen_again=bool(given.inputs))
    if path:
        _, node_id, inner = await _find(runtime, source, path, cut)
        inner.points.add(node_id)
    hashes: dict[str, str] = {}
    for name, value in (given.answers or {}).items():
        answer = await _answer(runtime, source, name, value, cut, place.label)
        hashes[name] = codec.content_hash(msgspec.json.decode(answer.value))

    encoded, blobs = encode_inputs(values)
    labels = tuple(source.view.tags) if given.tags is None else given.tags
    created = msgspec.structs.replace(
        runtime._created(definition, encoded, replace(options, tags=labels), place, more),
        forked_from=source.id,
        forked_at=path,
        fork_answers=hashes,
    )
    if not given.fresh:
        found = await look.find(runtime, runtime.journal, created, looks=runtime._looks(Options(), place))
        if found is not None:
            attached, how = await runtime._continue(found, definition, values, Options())
            attached.how = how
            return attached
    new_id = RunId(more.run_id) if more.run_id is not None else await runtime._new_id(runtime.journal)
    family = await forking.plan(runtime.journal, source.id, new_id, cut)
    if blobs:
        await runtime.journal.put_blobs(blobs)
    if options.answers:
        runtime.attendant.script(new_id, options.answers)
    run = await runtime.begin(definition, values, created, new_id, more, family=family)
    run.how = sentence(source, path, family)
    return run


def sentence(source: Run[Any], path: str, family: forking.Family) -> str:
    """``forked from the run of 14:02 at fetch: 3 steps kept, 2 run again``."""
    kept = len(family.root.kept) + sum(len(theirs.kept) for _, _, theirs in family.children)
    again = len(family.root.again) + sum(len(theirs.again) for _, _, theirs in family.children)
    at = f" at {split_node_id(path).name}" if path else ""
    more = f", {again:,} run again" if again else ""
    return f"forked from the run of {look.clock(source.view.created_at)}{at}: {plural(kept, 'record')} kept{more}"


async def _inputs(
    runtime: Runtime,
    source: Run[Any],
    definition: WorkflowDefinition[..., Any],
    changed: dict[str, Any],
    secrets: dict[str, Any],
) -> dict[str, Any]:
    """The inputs of the source but for the changed ones; its secret ones must be given again.

    Raises:
        InputError: lists the missing secrets and what does not fit.
    """
    stored = cast("dict[str, Any]", await runtime.decode(source.view.inputs))
    secret = definition.secret_inputs
    given = {**secrets, **{name: value for name, value in changed.items() if name in secret}}
    rest = {name: value for name, value in stored.items() if name in secret or name not in changed}
    new = {name: value for name, value in changed.items() if name not in secret}
    if not new:
        return definition.restore_inputs(rest, given)
    # What is required may be among the changed ones, so that both are looked at together.
    restored = definition.restore_inputs({**rest, **new}, given)
    return definition.validate_inputs({**restored, **new})


async def _find(
    runtime: Runtime, run: Run[Any], path: str, cut: Cut, kind: str | None = None
) -> tuple[Run[Any], str, Cut]:
    """The run and the id of a node by its path, and the cut of that run, made on the way.

    Raises:
        ForkError: there is none, or several.
    """
    await run._load()
    try:
        node = find_node(run.view, path, kind=kind)
        head, _, rest = path.partition("/")
        parent = find_node(run.view, head) if node is None and rest else None
    except KeyError as several:
        raise ForkError(f"the fork needs one node: {several.args[0]}") from None
    if node is not None:
        return run, node.node_id, cut
    if parent is not None and parent.child_run_id is not None:
        child = runtime.run_object(parent.child_run_id)
        try:
            inner = cut.children.setdefault(parent.node_id, Cut(at=rest))
            return await _find(runtime, child, rest, inner, kind)
        except UnknownRunError:
            raise ForkError(f"the child run behind {head!r} was removed, so it cannot be forked") from None
    names = list(dict.fromkeys(n.name for n in run.view.nodes.values() if kind in (None, n.kind)))
    raise ForkError(f"no node named {path!r}; there are {', '.join(names) or 'none yet'}")


async def _answer(runtime: Runtime, run: Run[Any], path: str, value: Any, cut: Cut, by: str) -> Given:
    """Another answer to a question that was asked, or one to a question that will be.

    Raises:
        AnswerError: it does not fit the question.
    """
    from loom_kernel.human.answer import encode_answer

    try:
        owner, node_id, inner = await _find(runtime, run, path, cut, "prompt")
    except ForkError:
        if "/" in path:
            raise
        raw = Raw(codec.encode(value, path=f"the answer to {path!r}").json)
        cut.early[path] = Given(raw, by)
        return cut.early[path]
    opened = await _question(runtime, owner, node_id)
    given = Given(encode_answer(opened, value), by)
    inner.answers[node_id] = given
    return given


async def _question(runtime: Runtime, run: Run[Any], node_id: str) -> events.PromptOpened:
    found: events.PromptOpened | None = None
    async for entry in runtime.journal.read(run._id):
        if entry.node_id == node_id and entry.type == events.PromptOpened.type:
            found = cast(events.PromptOpened, entry.event)
    if found is None:
        raise ForkError(f"{run.view.nodes[node_id].name!r} is no question")
    return found
