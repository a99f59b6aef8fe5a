"""``ctx.task``, ``ctx.chain``, ``ctx.stage`` and ``ctx.models`` of one run: calls of a body become stages."""

from __future__ import annotations

import logging
import os
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loom_kernel.agents import handoff
from loom_kernel.agents.catalogue import Catalogue
from loom_kernel.agents.stage import Stage
from loom_kernel.authoring.agents import STAGE_OPTIONS, TASK_OPTIONS, Step, TaskResult, check_options
from loom_kernel.engine.stages import StagePort
from loom_kernel.errors import DefinitionError

if TYPE_CHECKING:
    from loom_kernel.agents.home import Agents

log = logging.getLogger("loom_kernel")


class RunModels:
    """The capability ``models``, for one run."""

    def __init__(self, home: Agents, port: StagePort) -> None:
        self.home, self.port = home, port
        port.when_over(self._over)

    def _over(self) -> None:
        """The run has ended: what was kept for its stages goes, and what nobody got is said once."""
        self.home.hooks.pop(self.port.root_run_id, None)
        for letter in self.home.bus.forget(self.port.root_run_id):
            log.warning(
                "run %s: nobody got the message of %s to %s", self.port.root_run_id, letter.sender, letter.wanted
            )

    @property
    def catalogue(self) -> Any:
        """``ctx.models``."""
        given = self.home.hooks_of(self.port.root_run_id).models
        return given if given is not None else Catalogue(self.home)

    def task(self, name: str, options: Mapping[str, Any], at: str) -> Coroutine[Any, Any, TaskResult]:
        """See ``Context.task``."""
        what = f"ctx.task({name!r})"
        options = check_options(what, options, TASK_OPTIONS)
        prompt = options.pop("prompt", None) or options.pop("task", None)
        options.pop("task", None)
        if not isinstance(prompt, str) or not prompt.strip():
            raise DefinitionError(f"{what}: prompt= is missing; it says what the model is to do")
        previous = handoff.contexts(what, options.pop("previous", None))
        return Stage(self.home, self.port, name, options, what).ask(handoff.compose(prompt, previous), at)

    def stage(self, name: str, options: Mapping[str, Any], at: str) -> Stage:
        """See ``Context.stage``."""
        what = f"ctx.stage({name!r})"
        return Stage(self.home, self.port, name, check_options(what, options, STAGE_OPTIONS), what)

    def branches(self, items: Sequence[Any], shared: Mapping[str, Any], at: str) -> list[Any]:
        """Model steps among the branches of ``ctx.parallel`` become calls; their keys are given in order."""
        shared = check_options("ctx.parallel", shared, TASK_OPTIONS)
        if shared.get("group") is True:
            shared["group"] = self.port.fresh("group")
        return [self.task(one.name, {**shared, **one.options}, at) if isinstance(one, Step) else one for one in items]

    async def chain(
        self,
        steps: Sequence[Step],
        task: str | None,
        chain_dir: str | os.PathLike[str] | None,
        shared: Mapping[str, Any],
        at: str,
    ) -> list[TaskResult]:
        """See ``Context.chain``."""
        shared = check_options("ctx.chain", shared, TASK_OPTIONS)
        for n, step in enumerate(steps, start=1):
            if not isinstance(step, Step):
                raise DefinitionError(
                    f"ctx.chain: item {n} is a {type(step).__name__}; give loom_kernel.Step(name, prompt)"
                )
        results: list[TaskResult] = []
        for step in steps:
            options = {**shared, **step.options}
            prompt = options.pop("prompt", None) or options.pop("task", None)
            if prompt is None:
                prompt = "{previous}" if results else (task or "{task}")
            if "{task}" in prompt:
                if task is None:
                    raise DefinitionError(f"ctx.chain: step {step.name!r} needs task=, or a prompt of its own")
                prompt = prompt.replace("{task}", task)
            if results and "previous" not in options:  # a prompt that does not ask for it gets nothing
                prompt = prompt.replace("{previous}", results[-1].text)
            if chain_dir is not None:
                options = _based(options, Path(chain_dir))
            results.append(await self.task(step.name, {**options, "prompt": prompt}, at))
        return results


def _based(options: dict[str, Any], base: Path) -> dict[str, Any]:
    """Relative reads and outputs of a chain, from its own folder."""
    if options.get("reads"):
        options["reads"] = [str(base / read) for read in options["reads"]]
    if options.get("output"):
        options["output"] = base / options["output"]
    return options
