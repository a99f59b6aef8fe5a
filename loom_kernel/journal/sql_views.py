"""The SQL surface: views with the documented, stable columns. More columns may be added; none is renamed or removed.

Timestamps are ``TIMESTAMPTZ``, durations seconds, structured values ``JSON``. Statuses are the stored ones; whether a
run is interrupted depends on who is alive and is known outside SQL only.
"""

from __future__ import annotations

import hashlib

COLUMNS: dict[str, tuple[str, ...]] = {
    "runs": (
        "run_id", "workflow", "definition_version", "key", "tags", "notebook", "status", "reason", "inputs", "result", "error",
        "parent_run_id", "forked_from", "created_at", "started_at", "ended_at", "duration_s", "waited_s", "tokens", "cost_usd",
    ),
    "nodes": (
        "run_id", "node_id", "name", "kind", "status", "parents", "attempts", "from_journal", "started_at", "ended_at",
        "duration_s", "waited_s", "error",
    ),
    "attempts": (
        "run_id", "node_id", "attempt", "status", "started_at", "ended_at", "duration_s", "error", "worker",
    ),
    "events": ("global_seq", "run_id", "seq", "key", "type", "node_id", "payload", "created_at"),
    "prompts": (
        "run_id", "node_id", "prompt", "kind", "message", "opened_at", "answered_at", "answered_by", "answer", "waited_s",
    ),
    "signals": ("global_seq", "run_id", "seq", "kind", "node_id", "name", "value", "posted_by", "created_at"),
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

_PROMPTS = f"""
create or replace view prompts as
with opened as (
    select run_id, node_id, min(created_at) as opened_at, max(seq) as seq,
        arg_max(payload, seq) as payload
    from store.events where type = 'prompt.opened' group by run_id, node_id
), answered as (
    select run_id, node_id, max(seq) as seq, arg_max(created_at, seq) as created_at, arg_max(payload, seq) as payload
    from store.events where type = 'prompt.answered' group by run_id, node_id
), settled as (
    select run_id, node_id, max(seq) as seq, arg_max(created_at, seq) as created_at, arg_max(payload, seq) as payload
    from store.events where type = 'node.completed' and node_id like 'prompt:%' group by run_id, node_id
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

_RUNS = f"""
create or replace view runs as
with heads as (
    select run_id, unnest(arg_max({{{{status: status, reason: reason}}}}, global_seq)) from store.run_heads group by run_id
), started as (
    select run_id, min(created_at) as started_at from store.events where type = 'run.started' group by run_id
), ended as (
    select run_id, max(created_at) as ended_at, arg_max(payload, seq) as payload
    from store.events where type = 'run.ended' group by run_id
), waited as (
    select run_id, sum(waited_s) as waited_s from prompts group by run_id
), joined as (
    select r.run_id, r.workflow, r.payload, r.key, r.tags, r.notebook, h.status, h.reason, r.parent_run_id,
        make_timestamptz(r.created_at) as created_at, make_timestamptz(s.started_at) as started_at,
        case when h.status in {{finished}} then make_timestamptz(e.ended_at) end as ended_at,
        case when h.status in {{finished}} then e.payload end as ending,
        coalesce(w.waited_s, 0.0) as waited_s
    from store.run_headers r
    join heads h using (run_id)
    left join started s using (run_id)
    left join ended e using (run_id)
    left join waited w using (run_id)
)
select run_id, workflow, coalesce(payload->>'definition_version', '') as definition_version, key, tags, notebook, status,
    reason, coalesce(payload::json->'inputs', '{{{{}}}}'::json) as inputs,
    case when ending is not null then coalesce(ending::json->'result', 'null'::json) end as result,
    ending->>'$.error.message' as error, parent_run_id, payload->>'forked_from' as forked_from,
    created_at, started_at, ended_at, {_between("started_at", "ended_at")} as duration_s, waited_s,
    null::bigint as tokens, null::double as cost_usd
from joined
"""

_STEPS = """
select run_id, node_id, seq, type, payload, created_at from store.events
where node_id is not null and type in (
    'node.started', 'node.retrying', 'node.completed', 'node.failed', 'node.cancelled', 'prompt.opened', 'prompt.answered'
)
"""

_NODES = f"""
create or replace view nodes as
with steps as ({_STEPS}), resumed as (
    select run_id, max(seq) as seq from store.events where type = 'run.started' group by run_id
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
    coalesce((t.opening::json->'parents')::varchar[], []) as parents,
    case when t.is_prompt then 1 else t.started end as attempts,
    coalesce(t.last_type = 'node.completed' and t.last_seq < r.seq, false) as from_journal,
    t.since as started_at, t.until as ended_at,
    case when t.is_over then coalesce(
        (t.last_payload->>'duration_s')::double, (t.last_at - coalesce(t.attempt_at, t.started_at)) / 1e6) end as duration_s,
    case when t.kind in ('sleep', 'prompt') and t.is_over then (t.last_at - t.started_at) / 1e6 else 0.0 end as waited_s,
    case when t.last_type in ('node.failed', 'node.retrying') then t.last_payload->>'$.error.message' end as error
from timed t left join resumed r on r.run_id = t.run_id
"""

_ATTEMPTS = f"""
create or replace view attempts as
with steps as ({_STEPS}), followed as (
    select *, lead(type) over later as next_type, lead(created_at) over later as next_at,
        lead(payload) over later as next_payload
    from steps window later as (partition by run_id, node_id order by seq)
), leases as (
    select run_id, seq, payload from store.events where type = 'lease.taken'
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
    coalesce(nullif(l.payload->>'label', ''), l.payload->>'kind', 'script') || ' (pid ' || (l.payload->>'pid') || ')' as worker
from followed f asof left join leases l on f.run_id = l.run_id and f.seq >= l.seq
where f.type = 'node.started'
"""

_SIGNALS = """
create or replace view signals as
select global_seq, run_id, seq, type as kind, node_id, coalesce(payload->>'name', payload->>'prompt') as name,
    payload::json->'value' as value, nullif(payload->>'by', '') as posted_by, make_timestamptz(created_at) as created_at
from store.events
where type in (
    'prompt.answered', 'answer.kept', 'run.cancel_requested', 'run.stop_requested', 'run.wake_requested', 'message.posted'
)
"""

_FINISHED = "('completed', 'skipped', 'cancelled', 'blocked', 'failed', 'killed')"

STATEMENTS: tuple[str, ...] = (
    _EVENTS,
    _PROMPTS,
    _RUNS.format(finished=_FINISHED),
    _NODES,
    _ATTEMPTS,
    _SIGNALS,
)
"""Makes the views, whatever was there before."""

DIGEST = hashlib.sha256("\n".join(STATEMENTS).encode()).hexdigest()[:16]
"""Changes when a view does; the views are made anew then."""
