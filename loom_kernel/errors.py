"""Every error of the package: one root, one class a situation, a sentence that says what to do next.

Errors keep their arguments in ``args`` so that they survive pickling and the journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


class LoomError(Exception):
    """Root of all errors raised by loom-kernel."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: our sentence, without the frames of our own package."""
        lines = str(self).splitlines() or [""]
        return [f"{type(self).__name__}: {lines[0]}", *lines[1:]]


def _a(kind: str) -> str:
    """A type's name with its article."""
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"


# ---------------------------------------------------------------- defining and calling


class DefinitionError(LoomError, TypeError):
    """A workflow or step is written in a way that cannot work."""


class InputError(LoomError, ValueError):
    """Inputs do not fit a workflow; every problem is listed, one a line."""

    def __init__(self, workflow: str, problems: Sequence[str]) -> None:
        super().__init__(workflow, list(problems))
        self.workflow, self.problems = workflow, list(problems)

    def __str__(self) -> str:
        n = len(self.problems)
        head = f"workflow {self.workflow!r}: {n} problem{'s' if n != 1 else ''} with the inputs"
        return "\n".join([head, *(f"  - {p}" for p in self.problems)])


class OutputError(LoomError, ValueError):
    """What a workflow body returned does not fit its declared outputs."""

    def __init__(self, workflow: str, problems: Sequence[str]) -> None:
        super().__init__(workflow, list(problems))
        self.workflow, self.problems = workflow, list(problems)

    def __str__(self) -> str:
        return "\n".join([f"workflow {self.workflow!r}: its output does not fit", *(f"  - {p}" for p in self.problems)])


class UnknownWorkflowError(LoomError, LookupError):
    """No workflow of that name is defined in this process."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name, self.known = name, sorted(known)
        super().__init__(name, self.known)

    def __str__(self) -> str:
        known = ", ".join(self.known) if self.known else "none yet; run the cell that defines it"
        return f"no workflow named {self.name!r} here. Known: {known}"


class ValueNotStorableError(LoomError, TypeError):
    """A value cannot be kept in the journal.

    Args:
        path: where in the value, e.g. ``"result['rows'][3].conn"``.
        kind: the type's name.
        hint: what to do.
    """

    def __init__(self, path: str, kind: str, hint: str) -> None:
        super().__init__(path, kind, hint)
        self.path, self.kind, self.hint = path, kind, hint

    def __str__(self) -> str:
        return f"{self.path} is {_a(self.kind)}, which the journal cannot keep. {self.hint}"


class UnhashableValue(LoomError, TypeError):
    """A value has no content to identify it by; the engine names the parameter in ``UnhashableArgumentError``.

    Args:
        path: where in the value, e.g. ``"argument['conn']"``.
        kind: the type's name.
        hint: what to do, where there is more to say than "leave it out".
    """

    def __init__(self, path: str, kind: str, hint: str = "") -> None:
        super().__init__(path, kind, hint)
        self.path, self.kind, self.hint = path, kind, hint

    def __str__(self) -> str:
        return f"{self.path} is {_a(self.kind)}, which has no content to identify it by. {self.hint}".rstrip()


class UnknownClassError(LoomError, LookupError):
    """A stored value's class cannot be found here, or is not a class of plain data any more.

    Args:
        name: the class, as ``module:QualName``.
        why: the second half of the sentence.
    """

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)
        self.name, self.why = name, why

    def __str__(self) -> str:
        return f"a stored value is {_a(self.name.replace('__main__:', '').replace(':', '.'))}, {self.why}"


class UnhashableArgumentError(LoomError, TypeError):
    """A step's argument has no content that identifies it."""

    def __init__(self, step: str, parameter: str, kind: str) -> None:
        super().__init__(step, parameter, kind)
        self.step, self.parameter, self.kind = step, parameter, kind

    def __str__(self) -> str:
        return (
            f"step {self.step!r}: argument {self.parameter!r} is {_a(self.kind)}, which has no content to identify the call by. "
            f'Leave it out with @step(ignore=("{self.parameter}",)), or give an identity with @step(key=lambda {self.parameter}, **_: ...).'
        )


class MutatedArgumentError(LoomError):
    """A step changed one of its arguments in place."""

    def __init__(self, step: str, parameter: str) -> None:
        super().__init__(step, parameter)
        self.step, self.parameter = step, parameter

    def __str__(self) -> str:
        return (
            f"step {self.step!r} changed its argument {self.parameter!r} in place; after a restart that change would be missing. "
            "Return the changed value instead, or allow it with @step(mutates=True)."
        )


# ---------------------------------------------------------------- inside a run


class FatalError(LoomError):
    """Raised by a step to say that trying again is of no use."""


class RetryableError(LoomError):
    """Raised by a step to ask for another try.

    Args:
        retry_after_s: seconds to wait before it; ``None`` leaves it to the policy.
    """

    def __init__(self, *args: Any, retry_after_s: float | None = None) -> None:
        super().__init__(*args)
        self.retry_after_s = retry_after_s


class StepTimeout(LoomError, TimeoutError):
    """An attempt took longer than its ``timeout_s``."""

    def __init__(self, step: str, timeout_s: float) -> None:
        super().__init__(step, timeout_s)
        self.step, self.timeout_s = step, timeout_s

    def __str__(self) -> str:
        return f"step {self.step!r} took longer than {self.timeout_s:g} s"


class StepInterrupted(LoomError):
    """An attempt was under way when its worker died, and the step says that it may not simply run again."""

    def __init__(self, step: str) -> None:
        super().__init__(step)
        self.step = step

    def __str__(self) -> str:
        return (
            f"step {self.step!r} was interrupted in the middle of an attempt, and nobody knows how far it came. "
            'Look at what it did and resume the run, or let it run again with @step(on_unknown="retry").'
        )


class NodeAborted(LoomError):
    """Somebody aborted this one call (``r.abort(node)``). It is never recorded as its result: on resume it runs again."""

    def __init__(self, step: str, by: str = "") -> None:
        super().__init__(step, by)
        self.step, self.by = step, by

    def __str__(self) -> str:
        return f"{self.step!r} was aborted{f' by {self.by}' if self.by else ''}; resume the run to do it again"


class PromptTimeout(LoomError, TimeoutError):
    """A question was not answered in its ``timeout_s`` and has no ``default``."""

    def __init__(self, prompt: str, timeout_s: float) -> None:
        super().__init__(prompt, timeout_s)
        self.prompt, self.timeout_s = prompt, timeout_s

    def __str__(self) -> str:
        return f"question {self.prompt!r} was not answered within {self.timeout_s:g} s; give it a default= to go on without"


class CycleError(LoomError, ValueError):
    """An edge would make the graph go round in a circle."""

    def __init__(self, parent: str, child: str) -> None:
        super().__init__(parent, child)
        self.parent, self.child = parent, child

    def __str__(self) -> str:
        return f"{self.child!r} cannot come after {self.parent!r}: {self.parent!r} comes after it already"


class StepFailed(LoomError):
    """A step failed with an error that cannot be rebuilt here; the same class is raised live and replayed.

    Args:
        step: its name.
        kind: the original exception's class, as ``module.Name``.
        message: its text.
    """

    def __init__(self, step: str, kind: str, message: str) -> None:
        super().__init__(step, kind, message)
        self.step, self.kind, self.message = step, kind, message

    def __str__(self) -> str:
        return f"step {self.step!r} failed with {self.kind}: {self.message}"


class ChildWorkflowError(LoomError):
    """A child workflow failed, was killed or was cancelled from outside."""

    def __init__(self, workflow: str, status: str, message: str) -> None:
        super().__init__(workflow, status, message)
        self.workflow, self.status, self.message = workflow, status, message

    def __str__(self) -> str:
        return f"child workflow {self.workflow!r} {self.status}: {self.message}"


class ParallelFailure(LoomError):
    """Some branches of ``ctx.parallel(..., fail_fast=False)`` failed.

    Args:
        errors: the branches' exceptions, in branch order.
        partial_results: one entry a branch, ``None`` where it failed.
    """

    def __init__(self, errors: Sequence[BaseException], partial_results: Sequence[Any]) -> None:
        super().__init__(list(errors), list(partial_results))
        self.errors, self.partial_results = list(errors), list(partial_results)

    def __str__(self) -> str:
        first = self.errors[0]
        return f"{len(self.errors)} of {len(self.partial_results)} branches failed; the first with {type(first).__name__}: {first}"


class StageFailed(LoomError):
    """A model stage could not do its task.

    Args:
        stage: its name.
        code: what went wrong last: login_required, missing_api_key, invalid_api_key, rate_limited, quota_limited,
            provider_unavailable, timeout, forbidden_config, unknown_model, refused, ..., or unknown.
        message: one sentence, and what to do.
        disposition: what becomes of a run that ends by it: ``active_blocked`` (it can be resumed when the provider is
            there again), ``terminal_killed`` (it cannot), ``terminal_failed`` (it failed, and can be resumed).
        retry_after_s: how long the provider asks to wait.
    """

    def __init__(
        self,
        stage: str,
        code: str,
        message: str,
        disposition: str = "terminal_failed",
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(stage, code, message, disposition, retry_after_s)
        self.stage, self.code, self.message = stage, code, message
        self.disposition, self.retry_after_s = disposition, retry_after_s

    def __str__(self) -> str:
        return f"stage {self.stage!r}: {self.message}"


class WorkflowBudgetExceededError(LoomError):
    """The run has spent what it may: it ends as blocked, whatever the body does about this, and can be resumed."""

    def __init__(self, dimension: str, reading: float, ceiling: float, frontier: str = "") -> None:
        super().__init__(dimension, reading, ceiling, frontier)
        self.dimension, self.reading, self.ceiling, self.frontier = dimension, reading, ceiling, frontier

    def __str__(self) -> str:
        spent = (
            f"${self.reading:.2f} of ${self.ceiling:.2f}" if self.dimension == "cost"
            else f"{self.reading:,.0f} of {self.ceiling:,.0f} tokens" if self.dimension == "tokens"
            else f"{self.reading:.1f} of {self.ceiling:.1f} seconds"
        )  # fmt: skip
        at = f" at {self.frontier!r}" if self.frontier else ""
        return f"the budget is spent{at}: {spent}. Resume the run with a larger one to go on from here."


class WorkflowExit(BaseException):
    """``ctx.exit`` on its way out of the body. Not an ``Exception``, so that ``except Exception`` lets it pass."""


# ---------------------------------------------------------------- waiting for a run


class RunError(LoomError):
    """A run did not end well. ``result`` is its :class:`~loom_kernel.RunResult` where there is one."""

    def __init__(self, message: str, result: Any = None) -> None:
        super().__init__(message, result)
        self.message, self.result = message, result

    def __str__(self) -> str:
        return self.message


class RunFailed(RunError):
    """The run failed or is blocked."""


class RunStopped(RunError):
    """The run was paused, or cancelled or killed from outside."""


class NeedsAnswer(RunError):
    """A question is open and nobody is there to answer it; the run goes on waiting."""


class WouldBlock(LoomError, RuntimeError):
    """A blocking call on the thread that runs workflows; the awaitable twin is named."""

    def __init__(self, name: str, twin: str) -> None:
        super().__init__(name, twin)
        self.name, self.twin = name, twin

    def __str__(self) -> str:
        return f"{self.name} would block the thread that runs all workflows; use `await {self.twin}` here"


class UnknownRunError(LoomError, LookupError):
    """No run with that id, or several that begin with it."""

    def __init__(self, run_id: str, candidates: Iterable[str] = ()) -> None:
        self.run_id, self.candidates = run_id, list(candidates)
        super().__init__(run_id, self.candidates)

    def __str__(self) -> str:
        if self.candidates:
            return f"{self.run_id!r} begins {len(self.candidates)} run ids: {', '.join(self.candidates[:5])}. Write more of it."
        return f"no run {self.run_id!r} in this project's journal; `%loom runs` lists them"


class AnswerError(LoomError, ValueError):
    """An answer does not fit its question, or the question is not open."""


class ResumeError(LoomError):
    """A run cannot be resumed as asked; the sentence says why and what can be done."""


class InsufficientStateError(ResumeError):
    """A run cannot be continued: it does not say at what it failed, and nobody said from where to go on.

    Attributes:
        code: the reference's spelling: insufficient_state.
    """

    code = "insufficient_state"


class ForkError(LoomError):
    """A run cannot be forked as asked; the sentence says why and what can be done."""


# ---------------------------------------------------------------- magics and commands


class CommandError(LoomError, ValueError):
    """A magic or a command was given something that it does not understand.

    Args:
        command: how the person called it, e.g. ``"%loom run"``.
        problem: what is wrong with what was given.
        hint: what to do; by default where its help is.
    """

    def __init__(self, command: str, problem: str, hint: str | None = None) -> None:
        super().__init__(command, problem, hint)
        self.command, self.problem, self.hint = command, problem, hint

    def __str__(self) -> str:
        return f"{self.command}: {self.problem}. {self.hint or f'`{self.command} --help` explains it.'}"


class CellSyntaxError(DefinitionError):
    """The body of a ``%%workflow`` cell is not Python; the message points to the place in the cell.

    Args:
        cell: what people call the cell, e.g. ``"Cell In[3]"``.
        line: line in the cell, from 1, the magic's own line included.
        column: column in that line, from 1; 0 when it is not known.
        text: that line.
        message: what Python says.
    """

    def __init__(self, cell: str, line: int, column: int, text: str, message: str) -> None:
        super().__init__(cell, line, column, text, message)
        self.cell, self.line, self.column, self.text, self.message = cell, line, column, text, message

    def __str__(self) -> str:
        return f"{self.message} ({self.cell}, line {self.line})"

    def _render_traceback_(self) -> list[str]:
        text = self.text.rstrip()
        lines = [f"{self.cell}, line {self.line}"]
        if text:
            indent = len(text) - len(text.lstrip())
            lines.append(f"    {text.lstrip()}")
            if self.column:
                lines.append("    " + " " * max(0, self.column - 1 - indent) + "^")
        return [*lines, f"SyntaxError: {self.message}"]


# ---------------------------------------------------------------- settings


class SettingsError(LoomError, ValueError):
    """A setting has an unknown name or a value of the wrong kind; the sentence says where it was set."""


# ---------------------------------------------------------------- storage


class JournalError(LoomError):
    """Base of what can go wrong with the journal; catch this for all of it."""


class StorageConfigError(JournalError, ValueError):
    """The journal's settings are wrong."""


class WorkflowInfrastructureError(LoomError):
    """The machinery around a run failed, not its own code: the same may succeed when it is asked for again.

    Attributes:
        retryable: True.
        code: which fault, in the reference's spelling: storage_unavailable or stale_work_lease.
    """

    retryable = True
    code = ""


class StorageUnavailableError(JournalError, WorkflowInfrastructureError):
    """The journal cannot be read or written now. Never answered by switching to memory.

    Args:
        message: what happened and what to do.
        location: the folder or address.
    """

    code = "storage_unavailable"

    def __init__(self, message: str, location: str | None = None) -> None:
        super().__init__(message, location)
        self.message, self.location = message, location

    def __str__(self) -> str:
        return self.message


class StaleLeaseError(JournalError, WorkflowInfrastructureError):
    """Another worker holds the run now; this one's write was not kept."""

    code = "stale_work_lease"

    def __init__(self, run_id: str, holder: str | None = None) -> None:
        super().__init__(run_id, holder)
        self.run_id, self.holder = run_id, holder

    def __str__(self) -> str:
        return f"run {self.run_id} is held by {self.holder or 'another worker'} now; nothing was written"


class RunOverError(JournalError):
    """Something was posted to a run that has ended; nothing was written."""

    def __init__(self, run_id: str, status: str) -> None:
        super().__init__(run_id, status)
        self.run_id, self.status = run_id, status

    def __str__(self) -> str:
        return f"run {self.run_id} has ended ({self.status}); nothing was written"


class JournalCasConflictError(JournalError):
    """``expect_seq`` did not match; nothing was written."""

    def __init__(self, run_id: str, expected: int, actual: int) -> None:
        super().__init__(run_id, expected, actual)
        self.run_id, self.expected, self.actual = run_id, expected, actual

    def __str__(self) -> str:
        return f"run {self.run_id}: expected its latest event to be {self.expected}, it is {self.actual}; nothing was written"


class StorageRejectedError(LoomError, ValueError):
    """``ctx.storage`` refused what was asked; nothing was changed.

    Attributes:
        code: the reference's spelling: INVALID_REQUEST, NOT_FOUND or CONFLICT.
    """

    code = "INVALID_REQUEST"


class StorageNotFoundError(StorageRejectedError, LookupError):
    """What is to be replaced or removed is not there."""

    code = "NOT_FOUND"


class StorageConflictError(StorageRejectedError):
    """An id or place is taken, or the revision is another by now: read it again and decide anew."""

    code = "CONFLICT"


class SqlError(LoomError, ValueError):
    """A query was refused or failed; the sentence says which tables there are when a name is wrong."""


def is_retryable_workflow_error(error: BaseException | None) -> bool:
    """Whether the error, or any that it came from, is a :class:`WorkflowInfrastructureError`.

    Errors of a workflow's own code are not, nor is what a step raised.
    """
    seen: set[int] = set()
    todo = [error]
    while todo:
        found = todo.pop()
        if found is None or id(found) in seen:
            continue
        if isinstance(found, WorkflowInfrastructureError):
            return True
        seen.add(id(found))
        todo += [found.__cause__, found.__context__]
    return False
