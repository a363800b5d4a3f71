-- Why a message is not delivered, and what would release it. Reads what a claim reads, in the order in which a claim
-- decides, and locks nothing: so it is a view of this moment. Each part returns rows of the public function.

-- Returns a row for each reason why no receive returns the message now, in the order in which a receive would meet
-- them. If a receive returns the message, there is a row `visible`. Further rows are about the workers of the queue.
-- sentence: the reason in words. until: the time at which it ends by itself, null if this is not known. object: the
-- object that is in the way, or facts about it. call: the statement that would end the reason; another reason may
-- follow. The number of index lookups does not grow with the queue. Raises MQ002 without an id.
--   unknown, dead, completed, cancelled, expired, discarded  it is not in the queue (see state())
--   unpublished      its bulk write is not published
--   waits            its handler has left a message that waits for a signal (wait_for_signal())
--   delayed, retry   it is hidden until then; retry: after a failure
--   leased, reserved, stream  a receiver has it; reserved: a worker, which has not begun; stream: a batch of a stream
--   ends             the next claim that meets it ends it: it expired, was cancelled, or has no attempt left
--   locked           an open transaction has locked it, or its group
--   alone            it must be delivered alone, and another such message comes first
--   behind           an earlier message of its group comes first, and has the reason that is named
--   dead_letter      a dead letter blocks its group
--   group_full, queue_full  as many messages are in flight as the policy allows
--   group_rate       the rate limit of its group allows no message before then, or a receiver has closed the group
--   rate             the rate limit allows no message before then
--   in_line          other messages come first, more than the limits allow
--   paused           the queue is paused
--   visible          a receive returns it now, the next one or one after the messages that come first; or a receive
--                    may return it, if that depends on the numbers of messages that receives ask for
--   breaker_open     a worker receives nothing until then
--   no_worker, workers_busy  no worker reports; all slots of the workers are taken
create or replace function spanmq_call.explain(queue text, msg_id bigint)
returns table (code text, sentence text, until timestamptz, object jsonb, call text)
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
#variable_conflict use_column
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    id bigint := msg_id;
    at_ timestamptz := clock_timestamp();
    policy spanmq_core.policy := spanmq_core.policy_of(this.queue_id);
    run spanmq_core.unsettled;
    line bigint[];
    codes text[];
    met text;
    alone record;
    ahead bigint[];
begin
    perform spanmq_core.raise_if(id is null, 'msg_id cannot be NULL', 'Pass the id of a message.');
    select * into run from spanmq_core.unsettled u where u.queue_id = this.queue_id and u.msg_id = id;
    if not found then
        return query select * from spanmq_core.explain_gone(this, id);
        return;
    end if;
    -- As receive() counts.
    this.max_attempts := coalesce(this.max_attempts, spanmq_core.attempts_of(policy));
    line := spanmq_core.line_to(this, run, policy, at_) || id;
    codes := spanmq_core.met_among(this, line, at_);
    alone := spanmq_core.next_alone(this, policy, at_, id);
    ahead := spanmq_core.ahead_of(run, policy, line, codes, alone.msg_id, alone.code, alone.group_hash);
    met := codes[cardinality(codes)];
    return query
        select * from spanmq_core.explain_hidden(this, run, at_) where run.vt > at_
        union all
        select * from spanmq_core.explain_end(this, run, policy) where met = 'ends'
        union all
        select * from spanmq_core.explain_lock(this, run, policy, at_)
        union all
        select * from spanmq_core.explain_group(this, run, policy, at_, line, codes, ahead)
        union all
        select * from spanmq_core.explain_alone(this, run, at_, line, codes, alone.msg_id, alone.vt, alone.code)
        union all
        select * from spanmq_core.explain_queue(this, run, policy, at_, ahead);
    if not found then
        return query select * from spanmq_core.explain_visible(
            run, spanmq_core.regards_groups(policy), cardinality(ahead), met = 'alone');
    end if;
    return query select * from spanmq_core.explain_workers(this, at_);
end $$;

-- A message that is not in the queue.
create or replace function spanmq_core.explain_gone(this spanmq_core.queue, id bigint)
returns table (code text, sentence text, until timestamptz, object jsonb, call text)
language plpgsql as $$
#variable_conflict use_column
declare
    drawn bigint := spanmq_core.drawn_from(this.ids);
    state text;
    letter spanmq_core.dead_letter;
    write_ record;
    archived_at timestamptz;
    beside bigint;
begin
    if id > drawn then
        return query select 'unknown', format('No message has this id yet: the last one is %s.', drawn),
                            null::timestamptz, jsonb_build_object('last_id', drawn), null::text;
        return;
    end if;
    select w.* into write_ from spanmq_core.bulk_block b join spanmq_core.bulk_write w on w.write_id = b.write_id
        where b.queue_id = this.queue_id and b.lo <= id and b.hi >= id order by b.queue_id desc, b.lo desc limit 1;
    if found then
        return query select 'unpublished', 'A bulk write has reserved its id, and is not published.',
                            null::timestamptz,
                            jsonb_build_object('writer', write_.writer, 'epoch', write_.epoch, 'since',
                                               write_.opened_at), null::text;
        return;
    end if;
    select * into letter from spanmq_core.dead_letter d
        where d.queue_id = this.queue_id and d.msg_id = id and d.redriven_at is null;
    if found then
        beside := spanmq_core.beside_letter(this, id);
        return query select 'dead', concat(format('It is a dead letter (%s).', concat_ws(
                                ': ', letter.category, letter.error_class, nullif(left(letter.error, 200), ''))),
                                           ' Message ' || beside || ' has its dedup_id.'),
                            null::timestamptz,
                            jsonb_strip_nulls(jsonb_build_object(
                                'dead_letter_id', letter.dead_letter_id, 'since', letter.dead_at, 'category',
                                letter.category, 'error_class', letter.error_class, 'error', left(letter.error, 200),
                                'attempts', letter.attempts, 'worker', letter.worker, 'beside', beside)),
                            case when beside is null
                            then format('select spanmq.redrive_message(%L, %s)', this.name, id) end;
        return;
    end if;
    state := spanmq_call.state(this.name, id);
    if state = 'completed' and spanmq_core.archive_of(this) is not null then
        execute format('select a.archived_at from %s a where a.msg_id = $1 limit 1', spanmq_core.archive_of(this))
            into archived_at using id;
    end if;
    return query
        select state, case
                   when archived_at is not null then 'It was archived.'
                   when state = 'completed' then 'It was acked, deleted or popped.'
                   when state = 'cancelled' then 'It was cancelled.'
                   when state = 'expired' then 'It expired, and was dropped as the policy says.'
                   when state = 'discarded' then 'It was a dead letter, and was discarded.'
                   else 'No message with this id is stored: the transaction of its sender is open or was rolled back,'
                        ' or the message was purged, or it ended long ago.' end,
               null::timestamptz,
               nullif(jsonb_strip_nulls(jsonb_build_object('since', coalesce(archived_at, (
                   select max(f.failed_at) from spanmq_core.failures_of(this.queue_id, id) f
                   where state in ('cancelled', 'expired', 'discarded') and f.outcome = 'cancelled')))), '{}'),
               null::text;
    return query select * from spanmq_core.explain_waits(this, id);
end $$;

-- The message whose dedup_id keeps a dead letter from being redriven; null for none.
create or replace function spanmq_core.beside_letter(this spanmq_core.queue, id bigint) returns bigint
language plpgsql as $$
begin
    return (select (spanmq_core.beside(this, array[d.msg_id], array[d.headers], true))[1] from spanmq_core.dead_letter d
            where d.queue_id = this.queue_id and d.msg_id = id and d.redriven_at is null);
end $$;

-- A hidden message: what hides it. A row.
create or replace function spanmq_core.explain_hidden(
    this spanmq_core.queue, run spanmq_core.unsettled, at_ timestamptz
)
returns table (code text, sentence text, until timestamptz, object jsonb, call text)
language plpgsql as $$
#variable_conflict use_column
declare
    failure spanmq_core.failure;
    batch record;
    facts jsonb := jsonb_build_object('message_id', run.msg_id, 'attempts', run.attempts);
    show text := format('select pgmq.set_vt(%L, %s, 0)', this.name, run.msg_id);
begin
    if run.lease_id < 0 then
        select r.receiver_id, r.label, r.seen_at into batch
            from spanmq_core.receiver r join spanmq_core.receiver_batch b on b.receiver_id = r.receiver_id
            where r.queue_id = this.queue_id and b.lease_id = run.lease_id limit 1;
        return query select 'stream', format('A batch of the stream %s holds it.', coalesce(batch.label,
                                                                                          batch.receiver_id::text)),
                            null::timestamptz,
                            jsonb_strip_nulls(facts || jsonb_build_object('receiver', batch.receiver_id, 'seen_at',
                                                                          batch.seen_at)),
                            format('select spanmq.release_receiver(%L, %L)', this.name,
                                   coalesce(batch.label, batch.receiver_id::text));
    elsif run.lease_id <> 0 then
        return query
            select case when run.alone = 1 then 'reserved' else 'leased' end,
                   case when run.alone = 1
                   then 'A worker has reserved it to deliver it alone, after what it handles now.'
                   else format('A receiver holds it for attempt %s.', run.attempts) end, run.vt,
                   jsonb_strip_nulls(facts || jsonb_build_object(
                       'since', run.last_read_at, 'worker', w.worker, 'seen_at', w.seen_at, 'cancelled', nullif(
                           exists (select from spanmq_core.expiry e where e.queue_id = this.queue_id
                                   and e.msg_id = run.msg_id and e.is_cancelled), false))), show
            -- A worker is known by the progress that its handler reports.
            from (select) one left join lateral (
                select w.worker, w.seen_at from spanmq_core.worker w
                where w.queue_id = this.queue_id and w.seen_at > at_ - interval '60 seconds'
                  and w.progress @> jsonb_build_array(jsonb_build_object('msg_id', run.msg_id)) limit 1) w on true;
    else
        select * into failure from spanmq_core.failures_of(this.queue_id, run.msg_id) f
            where run.attempts > 0 and f.outcome = 'retrying' and f.retry_at = run.vt
            order by f.failed_at desc limit 1;
        if found then
            return query select 'retry', format('It failed (%s), and waits for attempt %s.', concat_ws(
                                    ': ', failure.category, failure.error_class,
                                    nullif(left(failure.error, 200), '')), run.attempts + 1),
                                run.vt, facts || jsonb_build_object('since', failure.failed_at),
                                format('select spanmq.retry_failing(%L, msg_ids => ''{%s}'')', this.name, run.msg_id);
        else
            return query select 'delayed', 'It is delayed.'::text, run.vt, facts, show;
        end if;
    end if;
end $$;

-- A visible message that the next claim of it ends. A row.
create or replace function spanmq_core.explain_end(
    this spanmq_core.queue, run spanmq_core.unsettled, policy spanmq_core.policy
) returns table (code text, sentence text, until timestamptz, object jsonb, call text)
language plpgsql as $$
begin
    return query
        select 'ends'::text,
               case when e.is_cancelled then 'It was cancelled. The next claim that meets it ends it.'
                    when e.msg_id is null
                    then format('It has no attempt left after %s. The next claim that meets it makes it a dead letter.',
                                run.attempts)
                    when policy.drop_expired then 'It expired. The next claim that meets it drops it.'
                    else 'It expired. The next claim that meets it makes it a dead letter.' end,
               null::timestamptz,
               jsonb_strip_nulls(jsonb_build_object('message_id', run.msg_id, 'attempts', run.attempts, 'since',
                                                    e.expires_at)), null::text
        from (select) one left join spanmq_core.expiry e
            on e.queue_id = this.queue_id and e.msg_id = run.msg_id and e.expires_at <= clock_timestamp();
end $$;

-- The other session, or the prepared transaction, that has this transaction id: a row if it is open.
create or replace function spanmq_core.holder_of(holder xid)
returns table (pid int, application text, prepared text)
language sql volatile as $$
    -- pg_stat_activity shows these to every role.
    select l.pid, nullif(a.application_name, ''), p.gid
    from pg_locks l
    left join pg_stat_activity a on a.pid = l.pid
    left join pg_prepared_xacts p on p.transaction = l.transactionid and l.pid is null
    where holder <> '0'::xid and l.locktype = 'transactionid' and l.transactionid = holder and l.granted
      and l.mode = 'ExclusiveLock' and l.pid is distinct from pg_backend_pid() limit 1
$$;

-- A message, or a group, that an open transaction has locked: claims skip it.
create or replace function spanmq_core.explain_lock(
    this spanmq_core.queue, run spanmq_core.unsettled, policy spanmq_core.policy, at_ timestamptz
) returns table (code text, sentence text, until timestamptz, object jsonb, call text)
language plpgsql as $$
begin
    return query
        select 'locked'::text,
               format('An open transaction of %s has locked %s.',
                      case when h.pid is null then format('%L, which is prepared,', h.prepared)
                      else concat_ws(' of ', 'session ' || h.pid, h.application) end, held.what),
               null::timestamptz,
               jsonb_strip_nulls(jsonb_build_object('pid', h.pid, 'application', h.application, 'prepared',
                                                    h.prepared)),
               case when h.pid is null then format('rollback prepared %L', h.prepared)
               else format('select pg_terminate_backend(%s)', h.pid) end
        from (select 'it' as what, s.xmax as holder from spanmq_core.state s
              where s.queue_id = this.queue_id and s.msg_id = run.msg_id
              union all
              select 'it', h.xmax from spanmq_core.later h where h.queue_id = this.queue_id and h.msg_id = run.msg_id
              union all
              select 'its group', l.xmax from spanmq_core.group_lock l
              where l.queue_id = this.queue_id
                and l.slot = spanmq_core.slot_of(this.queue_id, run.group_hash)
                and spanmq_core.regards_groups(policy)
              union all
              -- The first claim of groups: see has_group_locks().
              select 'the groups of the queue', l.xmax from spanmq_core.lock l
              where l.queue_id = this.queue_id and l.what = 'groups'
                and spanmq_core.regards_groups(policy)
                and not exists (select from spanmq_core.group_lock g where g.queue_id = this.queue_id and g.slot = 0)
              union all
              -- Claims go one at a time: see room_in_flight().
              select 'the number of messages in flight', l.xmax from spanmq_core.lock l
              where l.queue_id = this.queue_id and l.what = 'in flight'
                and (policy.max_in_flight < 64
                     or spanmq_core.count_in_flight(this.queue_id, at_) > policy.max_in_flight / 2)
             ) held
        cross join lateral spanmq_core.holder_of(held.holder) h;
end $$;

-- What a message waits for in its group, where the policy orders or limits groups.
create or replace function spanmq_core.explain_group(
    this spanmq_core.queue, run spanmq_core.unsettled, policy spanmq_core.policy, at_ timestamptz, line bigint[],
    codes text[], ahead bigint[]
) returns table (code text, sentence text, until timestamptz, object jsonb, call text)
language plpgsql as $$
#variable_conflict use_column
declare
    id bigint := run.msg_id;
    is_visible boolean := run.vt <= at_;
    is_alone boolean := is_visible and codes[cardinality(codes)] = 'alone';
    hidden record;
    dead bigint;
    blocker spanmq_core.unsettled;
    first_id bigint;
    first_code text;
    most int;
    opens_at timestamptz;
begin
    if not spanmq_core.regards_groups(policy) then
        return;
    end if;
    if policy.dead_letter_blocks_group then
        select min(b.msg_id) into dead from spanmq_core.blocked_group b
            where b.queue_id = this.queue_id and b.group_hash = run.group_hash;
    end if;
    if dead is not null then
        return query select 'dead_letter', format('Message %s of its group is a dead letter, which blocks the group.',
                                                  dead),
                            null::timestamptz,
                            jsonb_build_object('message_id', dead, 'group', run.group_key),
                            case when spanmq_core.beside_letter(this, dead) is null
                            then format('select spanmq.redrive_message(%L, %s)', this.name, dead) end;
    end if;
    hidden := spanmq_core.hidden_of(this.queue_id, run.group_hash, at_);
    most := policy.max_in_flight_per_group;
    if policy.ordered then
        if hidden.blocks or hidden.delayed_id < id then
            -- The first one; others may follow.
            select b.* into blocker
                from spanmq_core.hidden_in_group(this.queue_id, run.group_hash, at_) b
                where b.msg_id <> id and (b.lease_id <> 0 or b.attempts > 0 or b.msg_id < id)
                order by b.msg_id limit 1;
        end if;
        if blocker.msg_id is not null then
            return query
                select 'behind', format('Message %s of its group comes first. %s', blocker.msg_id, h.sentence), h.until,
                       h.object || jsonb_build_object('code', h.code, 'group', run.group_key), h.call
                from spanmq_core.explain_hidden(this, blocker, at_) h;
            return;
        end if;
    else
        if hidden.in_flight >= most then
            return query
                select 'group_full', format('%s of %s messages of its group are in flight.', hidden.in_flight, most),
                       -- A lease that was extended after its end may be one too many.
                       (array_agg(h.vt order by h.vt))[hidden.in_flight - most + 1],
                       jsonb_build_object('in_flight', hidden.in_flight, 'max_in_flight_per_group', most, 'group',
                                          run.group_key, 'message_ids', to_jsonb((array_agg(h.msg_id))[:10])),
                       case when hidden.in_flight = most
                       then format('select pgmq.set_vt(%L, %s, 0)', this.name, min(h.msg_id)) end
                from (select * from spanmq_core.hidden_in_group(this.queue_id, run.group_hash, at_) b
                      where b.lease_id <> 0 order by b.vt, b.msg_id) h;
            return;
        end if;
        most := most - hidden.in_flight;
    end if;
    -- One that ends becomes a dead letter, which blocks the group: but not if it was cancelled, or is dropped.
    select l.id, l.code into first_id, first_code
        from unnest(line, codes) with ordinality l (id, code, place)
        where l.id <> run.msg_id
          and (policy.ordered and (l.code in ('locked', 'alone') or is_alone and l.code = 'visible')
               or l.code = 'ends' and policy.dead_letter_blocks_group and run.group_hash is not null
                  and not exists (select from spanmq_core.expiry e
                                  where e.queue_id = this.queue_id and e.msg_id = l.id and e.expires_at <= at_
                                    and (e.is_cancelled or policy.drop_expired)))
        order by l.place limit 1;
    if first_id is not null then
        return query
            select 'behind', format('Message %s of its group comes first%s', first_id, case first_code
                       when 'locked' then ', and an open transaction has locked it.'
                       when 'alone' then ', and is delivered alone.'
                       when 'ends' then ', and the next claim makes it a dead letter.' else '.' end),
                   null::timestamptz,
                   jsonb_build_object('message_id', first_id, 'code', first_code, 'group', run.group_key), null::text;
        return;
    end if;
    if policy.rate_limit_per_group is not null then
        opens_at := spanmq_core.opens_at(policy, run.group_hash);
        if opens_at is not null then
            return query
                select 'group_rate', case
                           when spanmq_core.closed_until(this.queue_id, coalesce(run.group_hash, 0)) is null
                           then format('The rate limit of its group, %s a second, allows no message before then.',
                                       policy.rate_limit_per_group)
                           else 'A receiver has closed its group until then.' end, opens_at,
                       jsonb_build_object('rate_limit_per_group', policy.rate_limit_per_group, 'rate_burst_per_group',
                                          policy.rate_burst_per_group, 'group', run.group_key),
                       format('select spanmq.set_policy(%L, ''{"rate_limit_per_group": null}'')', this.name);
            return;
        end if;
        most := least(most, case
                      when policy.rate_cost is null then spanmq_core.tokens_of(policy, run.group_hash)
                      else cardinality(spanmq_core.within_tokens(
                          policy, ahead || case when is_visible then id end)) end);
    end if;
    if is_visible and cardinality(ahead) >= most then
        return query
            select 'in_line', format('Messages of its group that come first: %s. Its limits allow %s of these now.',
                                     cardinality(ahead), most), null::timestamptz,
                   jsonb_build_object('message_id', ahead[1], 'ahead', cardinality(ahead), 'group', run.group_key),
                   null::text;
    end if;
end $$;

-- The hidden messages of a group, up to 1,000; see hidden_of().
create or replace function spanmq_core.hidden_in_group(this_queue int, hash bigint, at_ timestamptz)
returns setof spanmq_core.unsettled
language plpgsql rows 10 as $$
begin
    return query
        select * from spanmq_core.unsettled u
        where u.queue_id = this_queue and u.vt > at_ and u.msg_id = any (array(
            (select h.msg_id from spanmq_core.later h
             where h.queue_id + 0 = this_queue and h.group_hash = hash and h.group_hash is not null and h.vt > at_
             order by h.queue_id + 0, h.group_hash, h.vt limit 1000)
            union all
            (select h.msg_id from (select * from spanmq_core.later l
                                   where hash is null and l.queue_id + 0 = this_queue and l.vt > at_
                                   order by l.queue_id + 0, l.vt, l.msg_id limit 5000) h
             where h.group_hash is null)
            union all
            (select s.msg_id from spanmq_core.state s
             where s.queue_id + 0 = this_queue and s.group_hash = hash and s.group_hash is not null
             order by s.queue_id + 0, s.group_hash, s.msg_id limit 100)
            union all
            (select f.msg_id from (select * from spanmq_core.state s where hash is null and s.queue_id = this_queue
                                   order by s.queue_id, s.msg_id limit 100) f
             where f.group_hash is null)));
end $$;

-- What a message waits for that must be delivered alone. other_id, other_vt and other_code: of
-- next_alone().
create or replace function spanmq_core.explain_alone(
    this spanmq_core.queue, run spanmq_core.unsettled, at_ timestamptz, line bigint[], codes text[], other_id bigint,
    other_vt timestamptz, other_code text
) returns table (code text, sentence text, until timestamptz, object jsonb, call text)
language plpgsql as $$
#variable_conflict use_column
begin
    if run.vt > at_ or codes[cardinality(codes)] <> 'alone' then
        return;
    end if;
    return query
        select 'locked', 'An open transaction delivers another message alone.', null::timestamptz,
               jsonb_strip_nulls(jsonb_build_object('pid', h.pid, 'application', h.application)),
               format('select pg_terminate_backend(%s)', h.pid)
        from spanmq_core.lock l cross join lateral spanmq_core.holder_of(l.xmax) h
        where l.queue_id = this.queue_id and l.what = 'alone';
    if other_id is null or run.alone > 0 and other_code = 'visible' and other_id > run.msg_id then
        -- Those of a claim that are not set aside yet come by their ids; and of a group only the first one is tried.
        select l.id, at_, 'visible' into other_id, other_vt, other_code
            from unnest(line, codes) with ordinality l (id, code, place)
            where l.id < run.msg_id and l.code = 'alone'
              and (run.alone = 0 or exists (select from spanmq_core.later h where h.queue_id = this.queue_id
                                            and h.msg_id = l.id and h.alone > 0))
            order by l.place limit 1;
    end if;
    if other_id is not null then
        return query
            select 'alone', format('It is delivered alone, after message %s%s.', other_id, case
                       when other_vt > at_ then ', which is being delivered alone' else '' end),
                   case when other_vt > at_ then other_vt end,
                   jsonb_build_object('message_id', other_id, 'code', other_code),
                   case when other_vt > at_ then format('select pgmq.set_vt(%L, %s, 0)', this.name, other_id) end;
    end if;
end $$;

-- What a message waits for in its queue: the policy, and messages that come first under its limits.
create or replace function spanmq_core.explain_queue(
    this spanmq_core.queue, run spanmq_core.unsettled, policy spanmq_core.policy, at_ timestamptz, ahead bigint[]
) returns table (code text, sentence text, until timestamptz, object jsonb, call text)
language plpgsql as $$
#variable_conflict use_column
declare
    paused record;
    n int;
    room int;
    seconds double precision;
begin
    if policy.paused then
        select c.role, c.actor, c.changed_at into paused
            from (select * from spanmq_core.change c
                  where lower(c.queue_name collate "C") = lower(this.name collate "C")
                  order by lower(c.queue_name collate "C") desc, c.change_id desc limit 100) c
            where c.action = 'pause' order by c.change_id desc limit 1;
        return query
            select 'paused', concat('The queue is paused', ' by ' || coalesce(paused.actor, paused.role), '.'),
                   null::timestamptz,
                   nullif(jsonb_strip_nulls(jsonb_build_object('role', paused.role, 'actor', paused.actor, 'since',
                                                               paused.changed_at)), '{}'),
                   format('select spanmq.resume(%L)', this.name);
    end if;
    if policy.max_in_flight is not null then
        n := spanmq_core.count_in_flight(this.queue_id, at_);
        room := policy.max_in_flight - n;
        if room <= 0 then
            return query
                select 'queue_full', format('%s of %s messages of the queue are in flight.', n, policy.max_in_flight),
                       (array_agg(h.vt order by h.vt))[n - policy.max_in_flight + 1],
                       jsonb_build_object('in_flight', n, 'max_in_flight', policy.max_in_flight),
                       format('select spanmq.set_policy(%L, ''{"max_in_flight": null}'')', this.name)
                from (select * from spanmq_core.later l where l.queue_id + 0 = this.queue_id and l.vt > at_
                      order by l.queue_id + 0, l.vt, l.msg_id limit 1000) h
                where h.lease_id <> 0;
        end if;
    end if;
    if policy.rate_limit is not null then
        seconds := spanmq_core.until_token(this.queue_id, policy.rate_limit, policy.rate_burst);
        if seconds is not null then
            return query
                select 'rate', format('The rate limit of %s a second allows no message before then.',
                                      policy.rate_limit),
                       at_ + make_interval(secs => seconds),
                       jsonb_build_object('rate_limit', policy.rate_limit, 'rate_burst', policy.rate_burst),
                       format('select spanmq.set_policy(%L, ''{"rate_limit": null}'')', this.name);
        else
            room := least(room, spanmq_core.tokens(this.queue_id, policy.rate_limit, policy.rate_burst));
        end if;
    end if;
    if room > 0 and run.vt <= at_ and cardinality(ahead) >= room and not spanmq_core.regards_groups(policy) then
        return query
            select 'in_line', format('%s or more messages come first, and the limits allow %s more now.',
                                     cardinality(ahead), room),
                   null::timestamptz, jsonb_build_object('ahead', cardinality(ahead)), null::text;
    end if;
end $$;

-- A message that receives of this moment return. A row.
create or replace function spanmq_core.explain_visible(
    run spanmq_core.unsettled, in_groups boolean, ahead int, is_alone boolean
) returns table (code text, sentence text, until timestamptz, object jsonb, call text)
language plpgsql as $$
begin
    return query
        select 'visible'::text, concat(case
                   when ahead = 0 and in_groups then 'It is the first of its group, and receives return it'
                   when ahead = 0 then 'The next receive returns it'
                   else format('Receives return it, after %s message%s%s', case
                                   when ahead >= 200 then ahead || ' or more' else ahead::text end,
                               case when ahead <> 1 then 's' end, case when in_groups then ' of its group' end) end,
                   case when is_alone then ', alone' end, '.'),
               null::timestamptz,
               jsonb_strip_nulls(jsonb_build_object('ahead', ahead, 'priority', run.priority, 'alone',
                                                    nullif(is_alone, false))),
               null::text;
end $$;

-- What is known of the workers of a queue. They do not decide what a receive returns.
create or replace function spanmq_core.explain_workers(this spanmq_core.queue, at_ timestamptz)
returns table (code text, sentence text, until timestamptz, object jsonb, call text)
language plpgsql as $$
#variable_conflict use_column
declare
    open_until timestamptz := spanmq_core.breaker_open_until(this.queue_id);
    workers record;
begin
    if open_until is not null then
        return query
            select 'breaker_open', concat('A worker has stopped receiving after failures',
                                          ': ' || left(spanmq_core.breaker_error(this.queue_id), 200), '.'),
                   open_until, null::jsonb, format('select spanmq.close_breaker(%L)', this.name);
    end if;
    select count(*) as n, count(*) filter (where w.slots > w.held) as n_free, sum(w.held) as held,
           (array_agg(w.worker order by w.worker))[1:10] as names
        into workers
        from (select w.worker, w.slots,
                     (select coalesce(sum(o.held), 0) from spanmq_core.worker o where o.worker = w.worker) as held
              from spanmq_core.worker w
              where w.queue_id = this.queue_id and w.seen_at > at_ - interval '60 seconds' limit 1000) w;
    if workers.n = 0 then
        -- Other receivers do not report: they are known by what they hold.
        return query
            select 'no_worker', 'No worker receives from the queue.', null::timestamptz, null::jsonb, null::text
            where not exists (
                      select from (select s.lease_id from spanmq_core.state s
                                   where s.queue_id = this.queue_id
                                     and s.msg_id >= (spanmq_core.bound_of(this.queue_id)).from_id
                                   order by s.queue_id, s.msg_id limit 100) s where s.lease_id <> 0)
              and not exists (
                      select from (select h.lease_id from spanmq_core.later h
                                   where h.queue_id + 0 = this.queue_id and h.vt > at_
                                   order by h.queue_id + 0, h.vt, h.msg_id limit 100) h where h.lease_id <> 0);
    elsif workers.n_free = 0 then
        return query
            select 'workers_busy', format('All slots of %s are taken.',
                                          case when workers.n = 1 then 'the worker'
                                          else format('the %s workers', workers.n) end),
                   null::timestamptz, jsonb_build_object('workers', workers.names, 'held', workers.held), null::text;
    end if;
end $$;
