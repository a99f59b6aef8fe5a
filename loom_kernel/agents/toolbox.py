"""Which tools a stage has. Built-in ones only where it names them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from loom_kernel.agents.builtin import asking, files, python, shell
from loom_kernel.agents.builtin.python import ScratchKernel
from loom_kernel.agents.spec import Spec
from loom_kernel.agents.structured import TOOL as VALUE
from loom_kernel.agents.tools import Tool, as_tool
from loom_kernel.errors import DefinitionError

GROUPS: dict[str, tuple[str, ...]] = {
    "files": ("read", "list", "search"),
    "edits": ("read", "list", "search", "write", "edit"),
}
"""Names that stand for several."""

NAMES = (
    "read", "list", "search", "write", "edit", "bash", "python", "notebook", "sql", "ask_user_question", "subagent",
    "intercom",
)  # fmt: skip


def builtin(plugs: Mapping[str, Any], kernel: ScratchKernel) -> dict[str, Tool]:
    """All that come with us, on what the process plugs in."""
    tools = [
        files.READ, files.LIST, files.SEARCH, files.WRITE, files.EDIT, shell.BASH, asking.ASK,
        python.scratch(kernel), python.notebook(plugs.get("notebook")), asking.sql(plugs.get("sql")),
        asking.subagent(plugs.get("delegate")),
    ]  # fmt: skip
    return {tool.name: tool for tool in tools}


def resolve(
    what: str, spec: Spec, known: Mapping[str, Tool], served: Iterable[Tool] = (), *, interactive: bool = True
) -> dict[str, Tool]:
    """The stage's tools by name.

    Args:
        known: built-in ones.
        served: those of MCP servers.
        interactive: whether somebody is there; ``ask_user_question`` goes where nobody is.

    Raises:
        DefinitionError: a name that no tool has, or two tools of one name. What was meant to be taken away, or asked for,
            is not left to a typing error.
    """
    found: dict[str, Tool] = {}
    if spec.no_tools == "all":
        return found

    def add(tool: Tool) -> None:
        if tool.name in found and found[tool.name] is not tool:
            raise DefinitionError(f"{what}: two tools are named {tool.name!r}")
        found[tool.name] = tool

    custom = [as_tool(one) for one in spec.custom_tools]
    custom += [as_tool(one) for one in spec.tools or () if not isinstance(one, str)]
    served = list(served)
    named = {tool.name: tool for tool in [*known.values(), *served, *custom]}

    def known_name(option: str, name: str, others: Iterable[str] = ()) -> None:
        if name in named or name in others:
            return
        names = [*named, *GROUPS]
        near = get_close_matches(name, names, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"There are: {', '.join(sorted(names))}"
        raise DefinitionError(f"{what}: {option} there is no tool named {name!r}. {hint}")

    for name in _spread(one for one in spec.tools or () if isinstance(one, str)):
        if name == VALUE:
            continue  # a schema brings it
        known_name("in tools=", name)
        if spec.no_tools == "builtin" and named[name].source == "builtin":
            continue
        add(named[name])
    for tool in custom:
        add(tool)
    if spec.tools is None:
        for tool in served:  # of the servers that its scope lets in
            add(tool)
    elsewhere = [n for n in (*spec.excluded_tools, *_policies(spec)) if "__" in n]  # of servers that it may not have
    for name in _spread(spec.excluded_tools):
        known_name("in excluded_tools=", name, (VALUE, *elsewhere))
        found.pop(name, None)
    for name in _policies(spec):
        known_name("in approval=", name, (*GROUPS, *elsewhere))
    if not interactive:
        found.pop("ask_user_question", None)
    return found


def servers(spec: Spec, names: Iterable[str]) -> list[str]:
    """The MCP servers of which the stage may use a tool; the others need not be started."""
    if spec.no_tools == "all":
        return []
    if spec.tools is None:
        return list(names)
    wanted = [one for one in spec.tools if isinstance(one, str)]
    return [name for name in names if any(one.startswith(f"{name}__") for one in wanted)]


def _spread(names: Iterable[str]) -> list[str]:
    """Groups as their tools."""
    return [n for one in names for n in GROUPS.get(one, (one,))]


def _policies(spec: Spec) -> list[str]:
    return list(spec.approval) if isinstance(spec.approval, Mapping) else []
