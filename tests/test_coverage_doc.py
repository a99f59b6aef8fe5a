"""docs/coverage.md has every name of Atomic's workflow reference: shown by a test, or explained in words.

The list is kept here, in Python's spelling, since the reference is not part of this project.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "coverage.md").read_text()

NAMES = {
    "agents": """
        ctx.task ctx.chain ctx.stage ctx.models current_model list_models Step StageHandle
        prompt= task= previous= context= fork_from_session_id= group= model= fallback_models= model_constraints=
        ModelConstraints RouterSelection router_model scoped_models= model:level tools= no_tools= excluded_tools=
        custom_tools= stage(mcp=) McpScope schema= structured_output schema_timeout_ms= output= output_mode= max_output= MaxOutput
        reads= artifacts= session_dir= cwd= agent_dir= chain_dir= images= Image worktree= git_worktree_dir= base_branch=
        expand_prompt_templates= preflight_result= source= streaming_behavior=
        name is_streaming messages model agent prompt complete send steer follow_up subscribe events session_id session_file
        set_model set_thinking_level cycle_model cycle_thinking_level thinking_level navigate_tree compact abort_compaction abort
        TaskResult ModelAttempt ModelUsage Artifact StageAdapters StageExecutionMeta StageSessionRuntime
        WorkflowControlEvent WorkflowIntercomSummary StageFailed.code intercom
    """,
    "the definition": """
        workflow WorkflowDefinition.name WorkflowDefinition.normalized_name WorkflowDefinition.description
        WorkflowDefinition.auto_attach WorkflowDefinition.heartbeat_interval_minutes WorkflowDefinition.budget
        WorkflowDefinition.inputs WorkflowDefinition.outputs WorkflowDefinition.fn worktree_from_inputs input_bindings
        Budget.max_duration_s Budget.max_duration_ms Budget.max_tokens Budget.max_cost Budget.warn_at_percent
        max_concurrency status max_depth resume default_concurrency persist_runs status_file notifications notify_on
    """,
    "the context": """
        ctx.inputs ctx.run_id ctx.cwd ctx.cancelled ctx.signal ctx.models
        ctx.parallel ctx.parallel(concurrency=) ctx.parallel(fail_fast=) ctx.parallel(possible_stage_names=)
        ctx.workflow ctx.workflow(inputs=) ctx.workflow(stage_name=) ctx.workflow(budget=)
        ctx.ui.input ctx.ui.confirm ctx.ui.select ctx.ui.editor ctx.ui.custom
        ctx.ui.custom(label=) ctx.ui.custom(replay_identity=) overlay overlay_options on_handle signal
        ctx.tool ctx.tool(failure_mode=) ctx.tool(retries_allowed=) ctx.tool(max_attempts=) ctx.tool(interval_s=)
        ctx.tool(interval_ms=) ctx.tool(backoff_rate=) ctx.tool(timeout_s=) ctx.tool(timeout_ms=) current_step
        ok value error attempts cached
        error["name"] error["message"] error["exit_code"] error["stdout"] error["stderr"]
        ctx.exit ctx.exit(status=) ctx.exit(reason=) ctx.exit(resumable=) ctx.exit(outputs=)
    """,
    "results": """
        RunResult.run_id RunResult.status RunResult.result RunResult.error RunResult.exited RunResult.exit_reason
        RunResult.stages RunResult.workflow RunResult.outputs WorkflowDetails
        stages[n]["id"] stages[n]["name"] stages[n]["status"] stages[n]["parent_ids"] stages[n]["execution_order"]
        stages[n]["started_at"] stages[n]["ended_at"] stages[n]["duration_s"] stages[n]["error"] stages[n]["result"] r[name].value
        StageSnapshot.model StageSnapshot.router_selection
    """,
    "registry, running, tracking": """
        create_registry Registry.register Registry.get Registry.has Registry.names Registry.all Registry.remove
        Registry.merge normalize_workflow_name workflow_names_equal resolve_inputs run
        GraphFrontierTracker.on_spawn GraphFrontierTracker.on_settle GraphFrontierTracker.current_parents
        GraphFrontierTracker.replace_parents GraphFrontierTracker.get_nodes GraphFrontierTracker.get_parents
        GraphFrontierTracker.reset StageNode
        run(cwd=) run(ui=) run(execution_mode=) run(signal=) run(defer_workflow_start=) run(cancellation=) run(config=)
        run(journal=) run(registry=) run(depth=) run(run_id=) run(continuation=) run(parent_run=) run(store=)
        use_prompt_nodes_for_ui persistence stage_control_registry mcp run(models=) run(confirm_stage_readiness=)
        INTERACTIVE_POLICY NON_INTERACTIVE_POLICY ExecutionPolicy ExecutionMode RuntimeConfig Continuation ParentRun
        CancellationRegistry.register CancellationRegistry.register_child CancellationRegistry.abort
        CancellationRegistry.abort_all CancellationRegistry.unregister CancellationRegistry.is_aborted CancelScope
        InsufficientStateError on_run_start on_stage_start on_stage_end on_run_end run(on_stage_session_event=)
    """,
    "the journal": """
        RunJournal create_run get_run list_runs acquire takeover takeover_expired lease_state renew release append read
        read_key delete_owned_run delete_run close LeaseAcquired LeaseHeld LeaseState AppendOutcome
        MemoryRunJournal DuckDBRunJournal open_duckdb_journal resolve_run_journal RunJournalConformance
        JournalDurableBackend SqliteDatabase prefix
    """,
    "errors": """
        JournalCasConflictError StaleLeaseError StorageUnavailableError StorageConfigError
        StorageUnavailableError.adapter WorkflowInfrastructureError WorkflowInfrastructureError.retryable
        WorkflowInfrastructureError.code is_retryable_workflow_error WorkflowBudgetExceededError ParallelFailure
        ParallelFailure.errors ParallelFailure.partial_results ChildWorkflowError CycleError
    """,
    "other exports": """
        load_worker_workflow setup_git_worktree create_agent_session_adapter keep_context Static TSchema
        WORKFLOW_ARTIFACT_RETENTION_MS local_workers admission run(adapters=)
        create_store store Store.runs Store.notices Store.active_run_id Store.record_run_start Store.record_stage_start
        Store.record_stage_end Store.record_tool_start Store.record_tool_end Store.record_run_end Store.remove_run
        Store.record_notice Store.ack_notice Store.snapshot Store.graph_snapshot Store.subscribe RunSnapshot
        StoreSnapshot WorkflowNotice ToolEvent create_cancellation_registry cancellation_registry
        adversarial_verification classify_and_act fan_out_and_synthesize generate_and_filter goal loop_until_done
        open_claude_design ralph tournament
    """,
}

ITEMS = {*range(1, 61)} - {49, 50}
"""Of the list of failures: 49 and 50 are heartbeats'."""


def shown() -> list[tuple[str, str, str]]:
    """Rows: what they say, and the file and the name of the test."""
    found = []
    for line in PAGE.splitlines():
        test = re.search(r"`([\w/]+\.py)::(\w+)` \|$", line)
        if line.startswith("| ") and test:
            found.append((line[: test.start()], test[1], test[2]))
    return found


def explained() -> str:
    """The points that say in words why a name has no effect, or comes later."""
    section = PAGE[PAGE.index("### No effect here, or not yet") :]
    lines = section[: section.index("\n## ")].splitlines()
    points = "\n".join(lines[1:]).split("\n- ")[1:]
    assert all(re.search(r":\s+\S+\s+\S+", point) for point in points), "a point gives its reason"
    return "\n".join(point.partition(":")[0] for point in points)


ROWS, WORDS = shown(), explained()


def says(text: str, name: str) -> bool:
    """Whether the name stands there as code, by itself or with arguments or members after it."""
    return re.search(rf"`(?:loom_kernel\.(?:\w+\.)?)?{re.escape(name)}(?![\w\]])", text) is not None


def explains(name: str) -> bool:
    """Whether a point is about that very name."""
    return f"`{name}`" in WORDS


@pytest.mark.parametrize("name", [name for names in NAMES.values() for name in names.split()])
def test_a_name_is_shown_or_explained(name: str) -> None:
    """By a row whose test is there, or by words."""
    rows = [(path, test) for text, path, test in ROWS if says(text, name)]
    for path, test in rows:
        source = (ROOT / path).read_text()
        assert re.search(rf"^\s*(?:async )?def {test}\(|^class {test}\(", source, re.MULTILINE), f"{path} has no {test}"
    assert rows or explains(name), f"{name} is neither shown nor explained in docs/coverage.md"


def test_no_name_is_both_shown_and_called_without_effect() -> None:
    """One of the two would be untrue."""
    names = {name for names in NAMES.values() for name in names.split()}
    alike = {"signal", "status", "prefix"}  # also a member of something else
    assert [n for n in sorted(names - alike) if explains(n) and any(says(text, n) for text, _, _ in ROWS)] == []


@pytest.mark.parametrize("item", sorted(ITEMS))
def test_an_item_of_the_failures_has_its_test(item: int) -> None:
    """By its number, and where the test names an item, it is that one."""
    rows = [(path, test) for text, path, test in ROWS if re.match(rf"\| (?:\d+, )*{item}(?:, \d+)* \|", text)]
    assert rows, f"item {item} has no row"
    for path, test in rows:
        source = (ROOT / path).read_text()
        doc = re.search(rf"def {test}\(.*?\"\"\"(.*?)\"\"\"", source, re.DOTALL)
        assert doc is not None, f"{path} has no {test}"
        named = re.search(r"Spec 5\.(\d+):", doc[1])
        assert named is None or int(named[1]) == item, f"{test} is of item {named and named[1]}"
