"""For tests of workflows, and for tests of journals: ``await run(defn, inputs, answers={...})``, ``replay(history, defn)``
and the conformance suite.

Names are loaded when used: running a workflow in a test needs no pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loom_kernel.agents.scripted import Script, script, set_script
    from loom_kernel.clock import VirtualClock
    from loom_kernel.human.script import Answers
    from loom_kernel.testing.fake_openai import FakeOpenAI
    from loom_kernel.testing.journal_conformance import RunJournalConformance
    from loom_kernel.testing.plugin import loom_replay
    from loom_kernel.testing.replays import Replay, ReplayDiverged, replay, save_history
    from loom_kernel.testing.run import run

__all__ = [
    "Answers",
    "FakeOpenAI",
    "Replay",
    "ReplayDiverged",
    "RunJournalConformance",
    "Script",
    "VirtualClock",
    "loom_replay",
    "nbval_sanitize",
    "replay",
    "run",
    "save_history",
    "script",
    "set_script",
]

_HOMES = {
    "Answers": "loom_kernel.human.script",
    "FakeOpenAI": "loom_kernel.testing.fake_openai",
    "RunJournalConformance": "loom_kernel.testing.journal_conformance",
    "VirtualClock": "loom_kernel.clock",
    "Replay": "loom_kernel.testing.replays",
    "ReplayDiverged": "loom_kernel.testing.replays",
    "loom_replay": "loom_kernel.testing.plugin",
    "replay": "loom_kernel.testing.replays",
    "run": "loom_kernel.testing.run",
    "save_history": "loom_kernel.testing.replays",
    "Script": "loom_kernel.agents.scripted",
    "script": "loom_kernel.agents.scripted",
    "set_script": "loom_kernel.agents.scripted",
}


def nbval_sanitize() -> str:
    """The path of the sanitize file for nbval: ``pytest --nbval --nbval-sanitize-with $(...)``."""
    from importlib.resources import files

    return str(files(__name__) / "nbval_sanitize.cfg")


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value  # for `run`, the function instead of the module of that name
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
