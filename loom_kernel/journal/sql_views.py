"""The SQL surface: views with the documented, stable columns. More columns may be added; none is renamed or removed.

Timestamps are ``TIMESTAMPTZ``, durations seconds, structured values ``JSON``. Statuses are the stored ones; whether a
run is interrupted depends on who is alive and is known outside SQL only.

``prompts``, ``nodes`` and ``attempts`` are folds over events. What they show of a run that rests is kept in a table
(``store.folded_nodes`` and so on), made by the same SELECT in a quiet moment; only the runs in ``store.unfolded`` are
folded when somebody asks. A run that goes on after that is in there again until it is folded anew.
"""

from __future__ import annotations

import hashlib

from loom_kernel.journal import sql_times

COLUMNS: dict[str, tuple[str, ...]] = {
    "runs": (
        "run_id", "workflow", "definition_version", "key", "tags", "notebook", "status", "reason", "inputs", "result", "error",
        "parent_run_id", "forked_from", "created_at", "started_at", "ended_at", "duration_s", "waited_s", "tokens", "cost_usd",
    ),
    "nodes": (
        "run_id", "node_id", "name", "kind", "status", "parents", "attempts", "from_journal", "started_at", "ended_at",
        "duration_s", "waited_s", "error", "cached_from",
    ),
    "attempts": (
        "run_id", "node_id", "attempt", "status", "started_at", "ended_at", "duration_s", "error", "worker", "queued_s",
    ),
    "events": ("global_seq", "run_id", "seq", "key", "type", "node_id", "payload", "created_at"),
    "prompts": (
        "run_id", "node_id", "prompt", "kind", "message", "opened_at", "answered_at", "answered_by", "answer", "waited_s",
    ),
    "signals": ("global_seq", "run_id", "seq", "kind", "node_id", "name", "value", "posted_by", "created_at"),
    "artifacts": (
        "run_id", "name", "revision", "kind", "size_bytes", "sha256", "created_at", "removed_at", "media_type", "source",
        "node_id", "path", "preview", "global_seq",
    ),
    "records": (
        "id", "flow_name", "stage_name", "data", "kind", "size_bytes", "sha256", "run_id", "node_id", "created_at", "removed_at",
    ),
    "chunks": ("run_id", "seq", "namespace", "index", "value", "created_at"),
    "definitions": ("workflow", "version", "description", "source", "first_seen_at", "last_seen_at", "runs"),
    "uploads": ("upload_id", "name", "media_type", "size_bytes", "complete", "sha256", "created_at", "completed_at"),
    "model_calls": (
        "run_id", "node_id", "attempt", "model", "input_tokens", "output_tokens", "cached_tokens", "cost_usd", "started_at",
        "duration_s", "ok", "error", "level", "cache_write_tokens",
    ),
    "messages": (
        "run_id", "node_id", "session_id", "seq", "role", "text", "tool_calls", "kind", "parent", "model", "created_at",
    ),
    **sql_times.COLUMNS,
}  # fmt: skip
"""The documented views and their columns."""


def _between(start: str, end: str) -> str:
    return f"(epoch_us({end}) - epoch_us({start})) / 1e6"


_EVENTS = """
create or replace view events as
select global_seq, run_id, seq, case when not starts_with(key, 'unnamed:') then key end as key, type, node_id,
    payload::json as payload, make_timestamptz(created_at) as created_at
from store.events
"""

_UNFOLDED = """
create or replace view store.unfolded as
select run_id, created_seq from store.run_heads h where last_seq > 0
    and not exists (from store.folded_runs f where f.run_id = h.run_id and f.last_seq = h.last_seq)
"""

_PROMPTS = f"""
with opened as (
    select run_id, node_id, min(created_at) as opened_at, max(seq) as seq,
        arg_max(payload, seq) as payload
    from {{events}} where type = 'prompt.opened' group by run_id, node_id
), answered as (
    select run_id, node_id, max(seq) as seq, arg_max(created_at, seq) as created_at, arg_max(payload, seq) as payload
    from {{events}} where type = 'prompt.answered' group by run_id, node_id
), settled as (
    select run_id, node_id, max(seq) as seq, arg_max(created_at, seq) as created_at, arg_max(payload, seq) as payload
    from {{events}} where type = 'node.completed' and node_id like 'prompt:%' group by run_id, node_id
), joined as (
    select o.run_id, o.node_id, o.payload as question, make_timestamptz(o.opened_at) as opened_at,
        make_timestamptz(coalesce(a.created_at, s.created_at)) as answered_at,
        coalesce(a.payload->>'by', s.payload->>'answered_by') as answered_by,
        case when a.seq is not null then coalesce(a.payload::json->'value', 'null'::json)
             when s.seq is not null then coalesce(s.payload::json->'result', 'null'::json) end as answer
    from opened o
    left join answered a on a.run_id = o.run_id and a.node_id = o.node_id and a.seq > o.seq
    left join settled s on s.run_id = o.run_id and s.node_id = o.node_id and s.seq > o.seq
)
select run_id, node_id, question->>'prompt' as prompt, question->>'kind' as kind, question->>'message' as message,
    opened_at, answered_at, nullif(answered_by, '') as answered_by, answer,
    {_between("opened_at", "answered_at")} as waited_s
from joined
"""

_RUN_SPANS = """
select run_id, min(created_at) filter (type = 'run.started') as started_at,
    max(created_at) filter (type = 'run.ended') as ended_at, arg_max(payload, seq) filter (type = 'run.ended') as payload
from {events} where type in ('run.started', 'run.ended') group by run_id
"""

_RUNS = f"""
create or replace view runs as
with heads as (
    select run_id, unnest(arg_max({{{{status: status, reason: reason}}}}, global_seq)) from store.run_heads group by run_id
), waited as (
    select run_id, sum(waited_s) as waited_s from prompts group by run_id
), models as (
    select run_id, sum(greatest(0, input_tokens - cached_tokens) + output_tokens)::bigint as tokens, sum(cost_usd) as cost_usd
    from model_calls group by run_id
), joined as (
    select r.run_id, r.workflow, r.payload, r.key, r.tags, r.notebook, h.status, h.reason, r.parent_run_id,
        make_timestamptz(r.created_at) as created_at, make_timestamptz(s.started_at) as started_at,
        case when h.status in {{finished}} then make_timestamptz(s.ended_at) end as ended_at,
        case when h.status in {{finished}} then s.payload end as ending,
        coalesce(w.waited_s, 0.0) as waited_s, m.tokens, m.cost_usd
    from store.run_headers r
    join heads h using (run_id)
    left join run_spans s using (run_id)
    left join waited w using (run_id)
    left join models m using (run_id)
    where r.workflow <> ''  -- what the project keeps is a stream, too, and no run
)
select run_id, workflow, coalesce(payload->>'definition_version', '') as definition_version, key, tags, notebook, status,
    reason, coalesce(payload::json->'inputs', '{{{{}}}}'::json) as inputs,
    case when ending is not null then coalesce(ending::json->'result', 'null'::json) end as result,
    ending->>'$.error.message' as error, parent_run_id, payload->>'forked_from' as forked_from,
    created_at, started_at, ended_at, {_between("started_at", "ended_at")} as duration_s, waited_s,
    tokens, cost_usd
from joined
"""

_STEPS = """
select run_id, node_id, seq, type, payload, created_at from {events}
where node_id is not null and type in (
    'node.started', 'node.retrying', 'node.completed', 'node.failed', 'node.cancelled', 'prompt.opened', 'prompt.answered'
)
"""

_NODES = f"""
with steps as ({_STEPS}), resumed as (
    select run_id, max(seq) as seq from {{events}} where type = 'run.started' group by run_id
), forked as (
    select run_id, max(seq) as seq from {{events}} where type = 'run.forked' group by run_id
), recalled as (
    select run_id, node_id, payload from {{events}} where type = 'node.recalled'
), folded as (
    select run_id, node_id, min(seq) as first_seq,
        min(created_at) filter (type in ('node.started', 'prompt.opened')) as started_at,
        arg_max(created_at, seq) filter (type = 'node.started') as attempt_at,
        arg_max(payload, seq) filter (type in ('node.started', 'prompt.opened')) as opening,
        arg_max(type, seq) as last_type, arg_max(created_at, seq) as last_at, arg_max(payload, seq) as last_payload,
        max(seq) as last_seq, count(*) filter (type = 'node.started') as started
    from steps group by run_id, node_id
), told as (
    select *, split_part(node_id, ':', 1) = 'prompt' as is_prompt, coalesce(opening->>'kind', '') as told_kind,
        last_type in ('node.completed', 'node.failed', 'node.cancelled', 'prompt.answered') as is_over
    from folded
), timed as (
    select *, case when is_prompt then 'prompt' when told_kind = '' then split_part(node_id, ':', 1) else told_kind end as kind,
        make_timestamptz(started_at) as since, case when is_over then make_timestamptz(last_at) end as until
    from told
)
select t.run_id, t.node_id,
    coalesce(t.opening->>'prompt', t.opening->>'name', split_part(t.node_id, ':', 2)) as name, t.kind,
    case t.last_type
        when 'node.completed' then 'completed' when 'prompt.answered' then 'completed' when 'node.failed' then 'failed'
        when 'node.cancelled' then 'cancelled' when 'node.retrying' then 'retrying' when 'prompt.opened' then 'waiting'
        else case when t.kind in ('sleep', 'prompt') then 'waiting' else 'running' end
    end as status,
    coalesce((coalesce(c.payload, t.opening)::json->'parents')::varchar[], []) as parents,
    case when t.is_prompt then 1 else t.started end as attempts,
    coalesce(t.last_type = 'node.completed' and t.last_seq < r.seq, false) as from_journal,
    t.since as started_at, t.until as ended_at,
    case when t.is_over then coalesce(
        (t.last_payload->>'duration_s')::double, (t.last_at - coalesce(t.attempt_at, t.started_at)) / 1e6) end as duration_s,
    case when t.kind in ('sleep', 'prompt') and t.is_over then (t.last_at - t.started_at) / 1e6 else 0.0 end as waited_s,
    case when t.last_type in ('node.failed', 'node.retrying') then t.last_payload->>'$.error.message' end as error,
    case when t.last_type = 'node.completed' then nullif(t.last_payload->>'cached_from', '') end as cached_from
from timed t left join resumed r on r.run_id = t.run_id left join forked f on f.run_id = t.run_id
left join recalled c on c.run_id = t.run_id and c.node_id = t.node_id and t.last_seq < f.seq
where f.seq is null or t.last_seq > f.seq or c.run_id is not null  -- a copy that was not asked for is no part of the fork
"""

_ATTEMPTS = f"""
with steps as ({_STEPS}), followed as (
    select *, lead(type) over later as next_type, lead(created_at) over later as next_at,
        lead(payload) over later as next_payload
    from steps window later as (partition by run_id, node_id order by seq)
), leases as (
    select run_id, seq, payload from {{events}} where type = 'lease.taken'
), forked as (
    select run_id, max(seq) as seq from {{events}} where type = 'run.forked' group by run_id
)
select f.run_id, f.node_id, coalesce((f.payload->>'attempt')::integer, 1) as attempt,
    case f.next_type
        when 'node.completed' then 'completed' when 'node.failed' then 'failed' when 'node.retrying' then 'failed'
        when 'node.cancelled' then 'cancelled' when 'node.started' then 'interrupted' else 'running'
    end as status,
    make_timestamptz(f.created_at) as started_at,
    case when f.next_type <> 'node.started' then make_timestamptz(f.next_at) end as ended_at,
    case when f.next_type <> 'node.started' then coalesce(
        (f.next_payload->>'duration_s')::double, (f.next_at - f.created_at) / 1e6) end as duration_s,
    f.next_payload->>'$.error.message' as error,
    coalesce(nullif(l.payload->>'label', ''), l.payload->>'kind', 'script') || ' (pid ' || (l.payload->>'pid') || ')' as worker,
    case when f.payload->>'attempt' is null then coalesce((f.payload->>'queued_s')::double, 0) else 0 end
        + case when f.next_type <> 'node.started' and f.next_payload->>'duration_s' is not null
            then greatest(0, (f.next_at - f.created_at) / 1e6 - (f.next_payload->>'duration_s')::double) else 0 end as queued_s
from followed f asof left join leases l on f.run_id = l.run_id and f.seq >= l.seq
left join forked k on k.run_id = f.run_id
where f.type = 'node.started' and (k.seq is null or f.seq > k.seq)  -- a copy was tried in another run
"""

_SIGNALS = """
create or replace view signals as
select global_seq, run_id, seq, type as kind, node_id, coalesce(payload->>'name', payload->>'prompt') as name,
    coalesce(payload::json->'value', payload::json->'text') as value, nullif(payload->>'by', '') as posted_by, make_timestamptz(created_at) as created_at
from store.events
where type in (
    'prompt.answered', 'answer.kept', 'run.cancel_requested', 'run.stop_requested', 'node.abort_requested', 'run.wake_requested', 'message.posted',
    'run.noted'
)
"""

_WRITES = """
select global_seq, created_at, payload->>'run_id' as run_id, payload->>'node_id' as node_id,
    unnest(from_json(payload::json->'writes', '["json"]')) as write
from store.events where type = 'storage.committed'
"""

_REMOVED = """
select w.global_seq, w.write->>'id' as id, min(r.created_at) as removed_at
from writes w join writes r on r.write->>'id' = w.write->>'id' and r.global_seq > w.global_seq and r.write->>'op' = '{op}'
group by all
"""

_ARTIFACTS = f"""
create or replace view artifacts as
with writes as ({_WRITES}), removed as ({_REMOVED.format(op="remove_artifact")})
select run_id, payload->>'name' as name, (payload->>'revision')::bigint as revision, payload->>'kind' as kind,
    coalesce((payload->>'size_bytes')::bigint, 0) as size_bytes, coalesce(payload->>'sha256', '') as sha256,
    make_timestamptz(created_at) as created_at, null::timestamptz as removed_at,
    coalesce(payload->>'media_type', '') as media_type, payload->>'source' as source, node_id,
    coalesce(payload::json->'path', '[]'::json) as path, coalesce(payload::json->'preview', '[]'::json) as preview, global_seq
from store.events where type = 'artifact.kept'
union all by name
select w.run_id, concat(w.write->>'flow', '/', w.write->>'stage') as name, (w.write->>'revision')::bigint as revision,
    w.write->>'kind' as kind, coalesce((w.write->>'size_bytes')::bigint, 0) as size_bytes,
    coalesce(w.write->>'sha256', '') as sha256, make_timestamptz(w.created_at) as created_at,
    make_timestamptz(r.removed_at) as removed_at, coalesce(w.write->>'media_type', '') as media_type, 'storage' as source,
    nullif(w.node_id, '') as node_id, '[]'::json as path, '[]'::json as preview, w.global_seq
from writes w left join removed r on r.global_seq = w.global_seq and r.id = w.write->>'id'
where w.write->>'op' in ('create_artifact', 'replace_artifact')
"""

_RECORDS = f"""
create or replace view records as
with writes as ({_WRITES}), removed as ({_REMOVED.format(op="remove_record")})
select w.write->>'id' as id, w.write->>'flow' as flow_name, w.write->>'stage' as stage_name,
    coalesce(w.write->'data', 'null'::json) as data, w.write->>'kind' as kind,
    coalesce((w.write->>'size_bytes')::bigint, 0) as size_bytes, coalesce(w.write->>'sha256', '') as sha256,
    w.run_id, nullif(w.node_id, '') as node_id, make_timestamptz(w.created_at) as created_at,
    make_timestamptz(r.removed_at) as removed_at
from writes w left join removed r on r.global_seq = w.global_seq and r.id = w.write->>'id'
where w.write->>'op' = 'append_record'
"""

_CHUNKS = """
create or replace view chunks as
select run_id, seq, coalesce(payload->>'namespace', '') as namespace, coalesce((payload->>'index')::integer, 0) as index,
    coalesce(payload::json->'value', 'null'::json) as value, make_timestamptz(created_at) as created_at
from store.events where type = 'output.reported'
"""

_DEFINITIONS = """
create or replace view definitions as
with seen as (
    select run_id, workflow, payload->>'definition_version' as version, created_at, payload as header
    from store.run_headers where workflow <> ''
    union all
    select s.run_id, r.workflow, s.payload->>'definition_version', s.created_at, null
    from store.events s join store.run_headers r using (run_id)
    where s.type = 'run.started'
)
select workflow, version, coalesce(arg_max(header->>'description', created_at), '') as description,
    arg_max(header->>'source', created_at) as source, make_timestamptz(min(created_at)) as first_seen_at,
    make_timestamptz(max(created_at)) as last_seen_at, count(distinct run_id) as runs
from seen where version <> '' group by workflow, version
"""

_UPLOADS = """
create or replace view uploads as
select null::varchar as upload_id, null::varchar as name, null::varchar as media_type, null::bigint as size_bytes,
    null::boolean as complete, null::varchar as sha256, null::timestamptz as created_at, null::timestamptz as completed_at
where false
"""

_MODEL_CALLS = """
create or replace view model_calls as
select run_id, node_id, coalesce((payload->>'attempt')::integer, 1) as attempt, coalesce(payload->>'model', '') as model,
    coalesce((payload->>'input_tokens')::bigint, 0) as input_tokens,
    coalesce((payload->>'output_tokens')::bigint, 0) as output_tokens,
    coalesce((payload->>'cached_tokens')::bigint, 0) as cached_tokens,
    coalesce((payload->>'cost_usd')::double, 0.0) as cost_usd,
    coalesce(to_timestamp((payload->>'started_at')::double), make_timestamptz(created_at)) as started_at,
    coalesce((payload->>'duration_s')::double, 0.0) as duration_s, coalesce((payload->>'ok')::boolean, true) as ok,
    nullif(payload->>'error', '') as error, coalesce(payload->>'level', '') as level,
    coalesce((payload->>'cache_write_tokens')::bigint, 0) as cache_write_tokens
from store.events where type = 'model.called'
"""

_MESSAGES = """
create or replace view messages as
select run_id, node_id, run_id || '/' || (payload->>'session') as session_id, (payload->>'id')::integer as seq,
    payload->>'role' as role, coalesce(payload->>'text', '') as text, payload->'tool_calls' as tool_calls,
    coalesce(payload->>'kind', '') as kind, coalesce((payload->>'parent')::integer, 0) as parent,
    coalesce(payload->>'model', '') as model, make_timestamptz(created_at) as created_at
from store.events where type = 'message.recorded'
"""

_FINISHED = "('completed', 'skipped', 'cancelled', 'blocked', 'failed', 'killed')"

_FOLDS = {"prompts": _PROMPTS, "run_spans": _RUN_SPANS, "nodes": _NODES, "attempts": _ATTEMPTS}


def _of(runs: str) -> str:
    # Where the runs begin is said too: DuckDB then looks at no block of events from before.
    return f"(select e.* from {runs} r join store.events e on e.run_id = r.run_id and e.global_seq >= r.created_seq)"


def _folded(name: str) -> tuple[str, str]:
    select = _FOLDS[name]
    return (
        f"create or replace table store.folded_{name} as {select.format(events='(from store.events where false)')}",
        f"create or replace view {name} as select * from store.folded_{name} "
        f"where run_id not in (select run_id from store.unfolded) union all by name ({select.format(events=_of('store.unfolded'))})",
    )


FOLD: dict[str, str] = {
    f"store.folded_{name}": f"insert into store.folded_{name} {select.format(events=_of('folding'))}"
    for name, select in _FOLDS.items()
}
"""By table: what folds the runs of a temporary table ``folding`` into it. ``store.folded_runs`` says which were."""

STATEMENTS: tuple[str, ...] = (
    "create or replace table store.folded_runs (run_id varchar not null, last_seq integer not null)",
    _UNFOLDED,
    _EVENTS,
    *_folded("prompts"),
    *_folded("run_spans"),
    _MODEL_CALLS,
    _RUNS.format(finished=_FINISHED),
    *_folded("nodes"),
    *_folded("attempts"),
    _SIGNALS,
    _ARTIFACTS,
    _RECORDS,
    _CHUNKS,
    _DEFINITIONS,
    _UPLOADS,
    _MESSAGES,
    *sql_times.STATEMENTS,
)
"""Makes the views, whatever was there before, and with nothing folded yet."""

DIGEST = hashlib.sha256("\n".join(STATEMENTS).encode()).hexdigest()[:16]
"""Changes when a view does; the views are made anew then."""
