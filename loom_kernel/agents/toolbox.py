"""Which tools a stage has. Built-in ones only where it names them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from loom_kernel.agents.builtin import asking, files, python, shell
from loom_kernel.agents.builtin.python import ScratchKernel
from loom_kernel.agents.spec import Spec
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
        DefinitionError: a name that no tool has, or two tools of one name.
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
    wanted = [n for one in spec.tools or () if isinstance(one, str) for n in GROUPS.get(one, (one,))]
    for name in wanted:
        if name == "structured_output":
            continue  # a schema brings it
        if name not in named:
            near = get_close_matches(name, [*named, *GROUPS], 1)
            hint = f"did you mean {near[0]!r}?" if near else f"There are: {', '.join(sorted([*named, *GROUPS]))}"
            raise DefinitionError(f"{what}: there is no tool named {name!r}. {hint}")
        if spec.no_tools == "builtin" and named[name].source == "builtin":
            continue
        add(named[name])
    for tool in custom:
        add(tool)
    if spec.tools is None:
        for tool in served:  # of the servers that its scope lets in
            add(tool)
    for name in spec.excluded_tools:
        found.pop(name, None)
    if not interactive:
        found.pop("ask_user_question", None)
    return found
