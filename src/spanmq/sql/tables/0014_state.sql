-- One narrow row for each unsettled message, in place of runs: a claim changes it where it is.
lock table spanmq_core.fresh, spanmq_core.held, spanmq_core.done in access exclusive mode;

-- The state of the unsettled messages of all queues: each has one row, in state or in later.
--
-- State: where a message begins. No index has what a claim changes, and each page has room: so a claim, an extension or
-- a set_vt() is an update in the same page, without an entry in any index. A message goes from here to later, and never
-- back: so whoever looks into state and then, in a new statement, into later, finds it.
create table spanmq_core.state (
    queue_id int not null,
    attempts int not null default 0,
    msg_id bigint not null,
    vt timestamptz not null,               -- when the message becomes visible, or is so since
    -- the fencing token of one that is leased, negative for a batch of a receiver; 0: none
    lease_id bigint not null default 0,
    last_read_at timestamptz,
    group_hash bigint,                     -- hashtextextended(group_key, 0)
    priority smallint,                     -- null: 0, the lowest
    -- How often a lease of the message ended without an outcome while others may have been beside it; up to 1,000.
    lost smallint not null default 0,
    -- 1: the next delivery is alone, and may be reserved by this lease; 2: this delivery is alone. See
    -- functions/receive/alone.sql. Such a message is in later.
    alone smallint not null default 0,
    group_key text,
    primary key (queue_id, msg_id)
) with (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0);
-- Secondary indexes begin with queue_id + 0, which no other index has: so each statement has one index that can serve
-- it. Where the statistics say that a table is empty, all its indexes seem to cost the same.
create index state_group on spanmq_core.state ((queue_id + 0), group_hash, msg_id) where group_hash is not null;
create index state_priority on spanmq_core.state ((queue_id + 0), priority, msg_id) where priority > 0;

-- Later: delayed, retried, returned, or leased by a claim that did not take the first visible messages.
create table spanmq_core.later (
    like spanmq_core.state including defaults,
    primary key (queue_id, msg_id)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
-- msg_id + 0, too: from PostgreSQL 18 on a scan may skip what stands before a column.
create index later_due on spanmq_core.later ((queue_id + 0), vt, (msg_id + 0));
create index later_lease on spanmq_core.later (lease_id) where lease_id <> 0;
-- The rows of few messages. Its first expression is no other index's, either.
create index later_alone on spanmq_core.later ((queue_id - 0), msg_id) where alone > 0;
create index later_group on spanmq_core.later ((queue_id + 0), group_hash, vt) where group_hash is not null;
-- Messages that failed and wait for another attempt: a failure costs an entry more, and nothing else does.
create index later_failing on spanmq_core.later ((queue_id * 1), msg_id) where lease_id = 0 and attempts > 0;

-- One queue may come to hold nearly all rows a moment after an ANALYZE that found one of each: as if it always did.
-- Else a look into the view of a queue by id was planned to begin with its one row, and met 20,000.
alter table spanmq_core.state alter column queue_id set (n_distinct = 1);
alter table spanmq_core.later alter column queue_id set (n_distinct = 1);

-- Both, for whoever looks at a message wherever it is.
create view spanmq_core.unsettled as select * from spanmq_core.state union all select * from spanmq_core.later;

-- What was held goes to later, what was fresh to state.
insert into spanmq_core.later (queue_id, msg_id, attempts, vt, lease_id, last_read_at, group_hash, priority, lost,
                               alone, group_key)
    select h.queue_id, id, h.attempts, h.vt, h.lease_id, h.last_read_at, h.group_hash, h.priority, h.lost, h.alone,
           h.group_key
    from spanmq_core.held h cross join lateral generate_series(h.lo, h.lo + h.n - 1) id
    where h.n = 1 or h.lease_id = 0
       or not exists (select from spanmq_core.done d where d.queue_id = h.queue_id and d.msg_id = id)
    order by h.queue_id, id;
do $$
declare
    this_queue int;
    relation record;
begin
    for this_queue in select distinct f.queue_id from spanmq_core.fresh f order by 1 loop
        if to_regclass('spanmq_core.log_' || this_queue) is null then
            continue;
        end if;
        execute format(
            'insert into spanmq_core.state (queue_id, msg_id, vt, group_hash, priority, group_key)'
            ' select f.queue_id, id, coalesce(l.enqueued_at, now()), f.group_hash, f.priority, f.group_key'
            ' from spanmq_core.fresh f cross join lateral generate_series(f.lo, f.lo + f.n - 1) id'
            ' left join spanmq_core.log_%1$s l on l.msg_id = id where f.queue_id = %1$s order by id', this_queue);
    end loop;
    -- The views of the queues are made anew with the functions of the release, and until then name no table.
    for relation in select q.queue_view as name from spanmq_core.queue q loop
        execute format('create or replace view %s as select null::bigint as msg_id, null::int as read_ct,'
                       ' null::timestamptz as enqueued_at, null::timestamptz as last_read_at, null::timestamptz as vt,'
                       ' null::jsonb as message, null::jsonb as headers where false', relation.name);
    end loop;
    for relation in
        select distinct d.objid::regprocedure as name
        from pg_depend d
        where d.classid = 'pg_proc'::regclass and d.refclassid = 'pg_type'::regclass
          and d.refobjid in ('spanmq_core.fresh'::regtype, 'spanmq_core.held'::regtype, 'spanmq_core.done'::regtype,
                             'spanmq_core.claimed'::regtype, 'spanmq_core.view_change'::regtype,
                             'spanmq_core.run'::regtype, 'spanmq_core.run[]'::regtype, 'spanmq_core.listed'::regtype,
                             'spanmq_core.revived'::regtype, 'spanmq_core.revived[]'::regtype)
    loop
        execute format('drop function %s', relation.name);
    end loop;
end $$;
drop view spanmq_core.sending;
drop table spanmq_core.fresh, spanmq_core.held, spanmq_core.done;
drop type spanmq_core.claimed, spanmq_core.view_change, spanmq_core.run, spanmq_core.listed, spanmq_core.revived;
-- What a claim has leased in place: n messages, from first_id to last_id. attempts: of the one that has most.
create type spanmq_core.claimed as (
    first_id bigint,
    last_id bigint,
    n int,
    attempts int
);
-- Senders insert through this view, before they draw ids: the lock that they hold on it tells them from claims
-- (functions/receive/bound.sql).
create view spanmq_core.sending as select * from spanmq_core.state;

-- Called by every transaction that makes a subscription, while it keeps senders out: where it never was, a sender need
-- not look for any.
create sequence spanmq_core.subscription_number;
do $$
begin
    if exists (select from spanmq_core.subscription) then
        perform nextval('spanmq_core.subscription_number');
    end if;
end $$;

-- Of piece i of a batch of a stream, which ids it has (functions/pipeline/receiver.sql); null: los[i] to his[i].
alter table spanmq_core.receiver_batch add column bitmaps bit(1024)[];

-- No row of state of this queue is below from_id, nor will be; no row of later has a vt before due_from.
alter table spanmq_core.bound rename column fresh_from to from_id;
