"""A tool that runs a command through the shell."""

from __future__ import annotations

from typing import Any

from loom_kernel.agents.builtin.python import tail
from loom_kernel.agents.tools import Tool, ToolTurn
from loom_kernel.project.access import MAX_TIMEOUT_S, TIMEOUT_S, ProjectAccess


async def _run(arguments: dict[str, Any], turn: ToolTurn) -> str:
    timeout_s = float(arguments.get("timeout_s", TIMEOUT_S))
    done = await ProjectAccess(turn.cwd).run(["/bin/sh", "-c", arguments["command"]], timeout_s=timeout_s)
    said = [
        f"killed after {timeout_s:g} s" if done.timed_out else f"exit code {done.exit_code}",
        *(f"{name}:\n{tail(text)}" for name, text in (("stdout", done.stdout), ("stderr", done.stderr)) if text),
    ]
    return "\n".join(said)


BASH = Tool(
    name="bash",
    description="Run a command in the project's folder through the shell. It has nothing to read and ends with its time.",
    parameters={
        "type": "object",
        "properties": {
            "command": {"type": "string", "minLength": 1},
            "timeout_s": {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_TIMEOUT_S},
        },
        "required": ["command"],
        "additionalProperties": False,
    },
    run=_run,
    approval="ask",
    source="builtin",
    show=lambda arguments: f"$ {arguments.get('command')}",
)
