"""SQL views of where a run's time went: ``times`` and ``critical_path``. The live view says the same (``views/times.py``)."""

from __future__ import annotations

from loom_kernel import events as ev

COLUMNS: dict[str, tuple[str, ...]] = {
    "times": ("run_id", "kind", "seconds"),
    "critical_path": (
        "run_id", "position", "node_id", "name", "kind", "started_at", "ended_at", "gap_s", "running_s", "queued_s", "retried_s",
        "waited_s",
    ),
}  # fmt: skip

_BY_OTHERS = "(" + ", ".join(f"'{kind}'" for kind in sorted({*ev.POSTS, ev.LeaseTaken.type})) + ")"
"""What may be appended while nobody executes a run: it says nothing of how long its worker lived."""

_TIMES = """
create or replace view times as
with tried as (
    select a.run_id, a.node_id, n.kind as node_kind, a.status, a.queued_s, epoch_us(a.started_at) as since,
        epoch_us(coalesce(a.ended_at, now())) as until, coalesce(a.duration_s, 0) as took_s, a.ended_at is not null as is_over,
        epoch_us(lead(a.started_at) over (partition by a.run_id, a.node_id order by a.started_at)) as again
    from attempts a join nodes n using (run_id, node_id)
), bodies as (
    select *, case when is_over then greatest(since, until - (took_s * 1e6)::bigint) else since end as body from tried
), spans as (
    select run_id, 1 as kind, body as since, until from bodies
    where node_kind <> 'sleep' and (status in ('running', 'completed', 'cancelled') or (status = 'failed' and again is null))
    union all
    select run_id, 2, epoch_us(started_at), epoch_us(coalesce(ended_at, now())) from nodes where kind = 'prompt'
    union all
    select run_id, 3, since, again from bodies where node_kind <> 'sleep' and status = 'failed' and again is not null
    union all
    select run_id, 4, epoch_us(started_at), epoch_us(coalesce(ended_at, now())) from nodes where kind = 'sleep'
    union all
    select run_id, 5, body - (queued_s * 1e6)::bigint, body from bodies
    where node_kind <> 'sleep' and queued_s > 0 and status in ('running', 'completed', 'cancelled', 'failed')
), turns as (
    select run_id, seq, type, created_at,
        lead(type) over later as next_type, lead(seq) over later as next_seq, lead(created_at) over later as next_at
    from store.events where type in ('run.started', 'run.paused', 'run.ended')
    window later as (partition by run_id order by seq)
), died as (
    select t.run_id, t.seq, max(e.created_at) as moment
    from turns t join store.events e on e.run_id = t.run_id and e.seq >= t.seq and e.seq < t.next_seq
    where t.type = 'run.started' and t.next_type = 'run.started' and e.type not in {others}
    group by all
), executed as (
    select t.run_id, 6 as kind, t.created_at as since,
        coalesce(case when t.next_type = 'run.started' then d.moment else t.next_at end, epoch_us(now())) as until
    from turns t left join died d on d.run_id = t.run_id and d.seq = t.seq where t.type = 'run.started'
), bounds as (
    select run_id, epoch_us(started_at) as since, epoch_us(coalesce(ended_at, now())) as until from runs
    where started_at is not null
), clipped as (
    select s.run_id, s.kind, greatest(s.since, b.since) as since, least(s.until, b.until) as until
    from (from spans union all from executed) s join bounds b using (run_id)
), moments as (
    select run_id, since as moment, kind, 1 as step from clipped where since < until
    union all select run_id, until, kind, -1 from clipped where since < until
    union all select run_id, since, 0, 0 from bounds
    union all select run_id, until, 0, 0 from bounds
), changes as (
    select run_id, moment, {sums} from moments group by run_id, moment
), swept as (
    select run_id, lead(moment) over w - moment as us, {running_sums} from changes
    window w as (partition by run_id order by moment)
)
select run_id, case when k6 = 0 then 'rest' when k1 > 0 then 'running' when k2 > 0 then 'waiting' when k3 > 0 then 'retrying'
    when k4 > 0 then 'sleeping' when k5 > 0 then 'queued' else 'between' end as kind, sum(us) / 1e6 as seconds
from swept where us > 0 group by all
""".format(
    others=_BY_OTHERS,
    sums=", ".join(f"sum(step) filter (kind = {k}) as s{k}" for k in range(1, 7)),
    running_sums=", ".join(f"coalesce(sum(s{k}) over w, 0) as k{k}" for k in range(1, 7)),
)

_CRITICAL_PATH = """
create or replace view critical_path as
with recursive over as materialized (
    select run_id, node_id, name, kind, started_at, ended_at, parents, waited_s, coalesce(ended_at, now()) as last_at
    from nodes
), chosen as materialized (  -- of those who list their parents, the one that was over last
    select l.run_id, l.node_id, arg_max(p.node_id, p.last_at) as parent
    from (select run_id, node_id, unnest(parents) as parent_id from over where not starts_with(coalesce(parents[1], ''), '=')) l
    join over p on p.run_id = l.run_id and p.node_id = l.parent_id
    group by all
), above as materialized (
    select o.run_id, o.node_id, c.parent from over o join chosen c on c.run_id = o.run_id
        and c.node_id = case when starts_with(coalesce(o.parents[1], ''), '=') then substr(o.parents[1], 2) else o.node_id end
), walk as (
    select run_id, arg_max(node_id, last_at) as node_id, 0 as back from over group by run_id
    union all
    select w.run_id, a.parent, w.back + 1 from walk w join above a on a.run_id = w.run_id and a.node_id = w.node_id
), tried as (
    select run_id, node_id, started_at, ended_at, status, queued_s, duration_s,
        lead(started_at) over (partition by run_id, node_id order by started_at) as again
    from attempts
), spent as (
    select run_id, node_id, sum(queued_s) as queued_s,
        sum(case when again is null then coalesce(duration_s, (epoch_us(now()) - epoch_us(started_at)) / 1e6) end) as running_s,
        sum(case when status = 'failed' then (epoch_us(again) - epoch_us(started_at)) / 1e6 end) as retried_s
    from tried where status <> 'interrupted' group by all
), path as (
    select run_id, node_id, row_number() over (partition by run_id order by back desc) as position from walk
)
select p.run_id, p.position, p.node_id, o.name, o.kind, o.started_at, o.ended_at,
    greatest(0, (epoch_us(o.started_at) - epoch_us(coalesce(lag(o.last_at) over w, r.started_at))) / 1e6) as gap_s,
    case when o.kind in ('sleep', 'prompt') then 0.0 else coalesce(s.running_s, 0) end as running_s,
    case when o.kind in ('sleep', 'prompt') then 0.0 else coalesce(s.queued_s, 0) end as queued_s,
    coalesce(s.retried_s, 0.0) as retried_s,
    case when o.kind in ('sleep', 'prompt') then (epoch_us(o.last_at) - epoch_us(o.started_at)) / 1e6 else 0.0 end as waited_s
from path p join over o using (run_id, node_id) join runs r on r.run_id = p.run_id
left join spent s on s.run_id = p.run_id and s.node_id = p.node_id
window w as (partition by p.run_id order by p.position)
"""

STATEMENTS = (_TIMES, _CRITICAL_PATH)
"""Make the views; those that they read are there before."""
