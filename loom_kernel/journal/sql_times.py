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
with bounds as (
    select run_id, min(created_at) filter (type = 'run.started') as since,
        coalesce(case when arg_max(type, seq) = 'run.ended' then max(created_at) filter (type = 'run.ended') end, epoch_us(now()))
        as until
    from {{events}} where type in ('run.started', 'run.paused', 'run.ended') group by run_id having since is not null
), tried as (
    select a.run_id, a.node_id, n.kind as node_kind, a.status, a.queued_s, epoch_us(a.started_at) as since,
        epoch_us(coalesce(a.ended_at, now())) as until, coalesce(a.duration_s, 0) as took_s, a.ended_at is not null as is_over,
        epoch_us(lead(a.started_at) over (partition by a.run_id, a.node_id order by a.started_at)) as again
    from {{attempts}} a join {{nodes}} n using (run_id, node_id)
), bodies as (
    select *, case when is_over then greatest(since, until - (took_s * 1e6)::bigint) else since end as body from tried
), spans as (
    select run_id, 1 as kind, body as since, until from bodies
    where node_kind <> 'sleep' and (status in ('running', 'completed', 'cancelled') or (status = 'failed' and again is null))
    union all
    select run_id, 2, epoch_us(started_at), epoch_us(coalesce(ended_at, now())) from {{nodes}} where kind = 'prompt'
    union all
    select run_id, 3, since, again from bodies where node_kind <> 'sleep' and status = 'failed' and again is not null
    union all
    select run_id, 4, epoch_us(started_at), epoch_us(coalesce(ended_at, now())) from {{nodes}} where kind = 'sleep'
    union all
    select run_id, 5, body - (queued_s * 1e6)::bigint, body from bodies
    where node_kind <> 'sleep' and queued_s > 0 and status in ('running', 'completed', 'cancelled', 'failed')
), turns as (
    select run_id, seq, type, created_at,
        lead(type) over later as next_type, lead(seq) over later as next_seq, lead(created_at) over later as next_at
    from {{events}} where type in ('run.started', 'run.paused', 'run.ended')
    window later as (partition by run_id order by seq)
), died as (
    select t.run_id, t.seq, max(e.created_at) as moment
    from turns t join {{events}} e on e.run_id = t.run_id and e.seq >= t.seq and e.seq < t.next_seq
    where t.type = 'run.started' and t.next_type = 'run.started' and e.type not in {others}
    group by all
), executed as (
    select t.run_id, 6 as kind, t.created_at as since,
        coalesce(case when t.next_type = 'run.started' then d.moment else t.next_at end, epoch_us(now())) as until
    from turns t left join died d on d.run_id = t.run_id and d.seq = t.seq where t.type = 'run.started'
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
with recursive over as materialized (
    select run_id, node_id, name, kind, started_at, ended_at, parents, waited_s, coalesce(ended_at, now()) as last_at
    from {nodes}
), begun as (
    select run_id, make_timestamptz(min(created_at)) as started_at from {events} where type = 'run.started' group by run_id
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
    from {attempts}
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
from path p join over o using (run_id, node_id) join begun r on r.run_id = p.run_id
left join spent s on s.run_id = p.run_id and s.node_id = p.node_id
window w as (partition by p.run_id order by p.position)
"""

_SELECTS = {"times": _TIMES, "critical_path": _CRITICAL_PATH}

_EVENTS_OF = "(select e.* from {runs} r join store.events e on e.run_id = r.run_id and e.global_seq >= r.created_seq)"
_ROWS_OF = "(select * from {table} where run_id in (select run_id from {runs}))"

_UNTIMED = """
create or replace view store.untimed as
select run_id, created_seq from store.run_heads h where last_seq > 0
    and not exists (from store.timed_runs t where t.run_id = h.run_id and t.last_seq = h.last_seq)
"""


def _select(name: str, runs: str, nodes: str, attempts: str) -> str:
    return _SELECTS[name].format(
        events=_EVENTS_OF.format(runs=runs),
        nodes=_ROWS_OF.format(table=nodes, runs=runs),
        attempts=_ROWS_OF.format(table=attempts, runs=runs),
    )


def _kept(name: str) -> tuple[str, str]:
    nothing = "(select run_id, created_seq from store.run_heads where false)"
    return (
        f"create or replace table store.folded_{name} as {_select(name, nothing, 'nodes', 'attempts')}",
        f"create or replace view {name} as select * from store.folded_{name} "
        f"where run_id not in (select run_id from store.untimed) union all by name ({_select(name, 'store.untimed', 'nodes', 'attempts')})",
    )


FOLD: dict[str, str] = {
    **{
        f"store.folded_{name}": f"insert into store.folded_{name} "
        + _select(name, "ending", "store.folded_nodes", "store.folded_attempts")
        for name in _SELECTS
    },
    "store.timed_runs": "insert into store.timed_runs select run_id, last_seq from ending",
}
"""As in ``sql_views``, after its own, for the runs of a temporary table ``ending``: those of ``folding`` that have ended. How
long a run that rests has rested is another number at each look, so it is none to keep."""

STATEMENTS = (
    "create or replace table store.timed_runs (run_id varchar not null, last_seq integer not null)",
    _UNTIMED,
    *_kept("times"),
    *_kept("critical_path"),
)
"""Make the views, whatever was there before, and with nothing kept; those that they read are there before."""
