"""A person's leave for a tool's call: asked in the run's view, with what would be done, and kept in the journal as an answer."""

from __future__ import annotations

import json
from typing import Any, cast

from loom_kernel.agents.spec import Spec
from loom_kernel.agents.toolbox import GROUPS
from loom_kernel.agents.tools import Approval, Tool
from loom_kernel.authoring.people import Question
from loom_kernel.engine.stages import Turn
from loom_kernel.errors import AnswerError

ONCE, STAGE, REFUSE = "Allow", "Allow all of this tool in this stage", "Refuse"

STRICTER = ("never", "ask", "always")

REFUSED = "The person refused this call. Do not try it again in another form; go on without it, or say what you need."


def policy(spec: Spec, tool: Tool) -> Approval:
    """When a call must be allowed: as the stage says, else as the tool does. The person's notebook is always asked for."""
    if tool.name == "notebook":
        return "always"
    said = spec.approval
    if isinstance(said, str):
        return cast(Approval, said)
    if said is None:
        return tool.approval
    if tool.name in said:
        return cast(Approval, said[tool.name])
    of_groups = [said[group] for group, names in GROUPS.items() if group in said and tool.name in names]
    return cast(Approval, max(of_groups, key=STRICTER.index, default=tool.approval))


async def allowed(
    spec: Spec, tool: Tool, arguments: dict[str, Any], turn: Turn, call_id: str, approved: set[str]
) -> bool | str:
    """Whether the call may be made: True, or what the model is told.

    Args:
        approved: tools that were allowed for the whole stage; it grows. What this turn was told before a crash counts, too.
    """
    when = policy(spec, tool)
    if when == "never":
        return True
    name = f"{turn.stage_name}-{tool.name}"
    if when == "ask":
        if tool.name not in approved and STAGE in await turn.answers(name):
            approved.add(tool.name)
        if tool.name in approved:
            return True
    options = (ONCE, STAGE, REFUSE) if when == "ask" else (ONCE, REFUSE)

    def parse(value: Any) -> str:
        if value not in options:
            raise AnswerError(f"one of {', '.join(options)} is needed")
        return str(value)

    shown = tool.show(arguments) if tool.show is not None else json.dumps(arguments, indent=1, ensure_ascii=False)
    answer = await turn.ask(
        Question(
            kind="select",
            message=f"{turn.stage_name}: may it call {tool.name}?",
            name=name,
            parse=parse,
            options=options,
            schema={"enum": list(options)},
            show=shown,
            identity=call_id,
        )
    )
    if answer == STAGE:
        approved.add(tool.name)
    return True if answer != REFUSE else REFUSED
