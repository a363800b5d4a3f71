-- Replay: the log as history. With the policy's `keep`, segments are retired by the age of their messages, not by
-- settlement: what was settled stays where it was written. A replay sends it again into another queue; a subscription
-- may begin in the past.
--
-- All of it reads the log itself, not the state. upkeep.lost_to says up to which id the log may lack messages. A reader
-- locks its segments first (maintain() then neither truncates nor swaps them) and reads lost_to after that, in a
-- statement of its own.
--
-- Not every row in the log is a message: blocks of bulk writes may be unpublished (bulk_block), or closed without being
-- published (unsent). A statement that reads rows reads both tables, too.

-- Notes that the log may lack messages of this segment, and of all before it.
create or replace function spanmq_core.note_lost(segment spanmq_core.segment) returns void
language plpgsql as $$
begin
    insert into spanmq_core.upkeep as u (queue_id, lost_to, lost_at)
        values (segment.queue_id, segment.hi, segment.newest_at)
        on conflict (queue_id) do update
            set lost_to = greatest(u.lost_to, excluded.lost_to),
                lost_at = case when u.lost_to > excluded.lost_to then greatest(u.lost_at, excluded.lost_at)
                else excluded.lost_at end;
end $$;

-- The ids from first_id to last_id whose rows are not messages, or not yet.
create or replace function spanmq_core.unsent_of(this_queue int, first_id bigint, last_id bigint) returns int8multirange
language sql stable as $$
    select coalesce(range_agg(e.ids), '{}') from (
        select int8range(b.lo, b.hi, '[]') as ids from spanmq_core.bulk_block b
        where b.queue_id = this_queue and b.lo <= last_id and b.hi >= first_id
        union all
        select int8range(u.lo, u.hi, '[]') from spanmq_core.unsent u
        where u.queue_id = this_queue and u.lo <= last_id and u.hi >= first_id) e
$$;

-- Deletes a bulk write, which the caller has locked, and notes the ids of its blocks that are not among the published
-- ones.
create or replace function spanmq_core.close_write(this_write bigint, published bigint[]) returns void
language plpgsql as $$
begin
    insert into spanmq_core.unsent (queue_id, lo, hi)
        select b.queue_id, b.lo, b.hi from spanmq_core.bulk_block b where b.write_id = this_write
        and b.block_id <> all (published);
    delete from spanmq_core.bulk_write w where w.write_id = this_write;
end $$;

-- The first id from which on the log has every message.
create or replace function spanmq_core.first_kept(this_queue int) returns bigint
language sql volatile as $$
    select coalesce((select u.lost_to from spanmq_core.upkeep u where u.queue_id = this_queue), 0) + 1
$$;

-- When the first message was sent that has at least this id, or null.
create or replace function spanmq_core.sent_from(this_queue int, first_id bigint) returns timestamptz
language plpgsql volatile as $$
declare
    log_name text;
    at_ timestamptz;
begin
    for log_name in select s.log_name from spanmq_core.segment s where s.queue_id = this_queue and s.hi >= first_id
        order by s.lo loop
        execute format('select l.enqueued_at from spanmq_core.%I l where l.msg_id >= $1 order by l.msg_id limit 1',
                       log_name) into at_ using first_id;
        exit when at_ is not null;
    end loop;
    return at_;
end $$;

-- Raises MQ064 unless the log has all messages that were sent since then; null or -infinity: what it has.
create or replace function spanmq_core.check_kept(this spanmq_core.queue, since timestamptz) returns void
language plpgsql as $$
declare
    first_id bigint := spanmq_core.first_kept(this.queue_id);
    first_at timestamptz;
begin
    if since > '-infinity' and first_id > 1
       and (since > (select u.lost_at from spanmq_core.upkeep u where u.queue_id = this.queue_id)) is not true then
        first_at := spanmq_core.sent_from(this.queue_id, first_id);
        if (since >= first_at) is not true then
            raise exception 'the log of queue % does not have all messages since %', this.name, since
                using errcode = 'MQ064',
                detail = format('It begins at %s.', coalesce(first_at::text, 'the next message')),
                      hint = 'The policy setting keep says how long settled messages stay in the log.';
        end if;
    end if;
end $$;

-- Raises MQ064 if the log does not have the message of this id any more, or one with a higher id.
create or replace function spanmq_core.check_kept(this spanmq_core.queue, first_id bigint) returns void
language plpgsql as $$
begin
    if first_id < spanmq_core.first_kept(this.queue_id) then
        raise exception 'the log of queue % does not have message % any more', this.name, first_id
            using errcode = 'MQ064', hint = 'The policy setting keep says how long settled messages stay in the log.';
    end if;
end $$;

-- Locks the segments with ids from after_id + 1 to last_id that the log has, against maintain(), to the end of the
-- transaction, and returns their tables. Segments whose messages were all sent outside the times are left out.
create or replace function spanmq_core.hold_log(this_queue int, after_id bigint, last_id bigint, since timestamptz,
                                                until timestamptz)
returns text[]
language plpgsql as $$
declare
    first_id bigint;
    log_names text[];
    log_name text;
begin
    -- A segment is truncated or swapped once, so a second round is rare.
    for round in 1 .. 10 loop
        first_id := greatest(after_id + 1, spanmq_core.first_kept(this_queue));
        log_names := array(select s.log_name from spanmq_core.segment s
                           where s.queue_id = this_queue and s.hi >= first_id and s.lo <= last_id
                             and (s.newest_at < since or s.oldest_at >= until) is not true
                           order by s.lo);
        begin
            foreach log_name in array log_names loop
                perform spanmq_core.lock_log(log_name, 'access share');
            end loop;
            -- A new statement under the locks: these tables are still the log, and have all that they are to have.
            if first_id = greatest(after_id + 1, spanmq_core.first_kept(this_queue))
               and cardinality(log_names) = (select count(*) from spanmq_core.segment s where s.queue_id = this_queue
                                             and s.log_name = any (log_names)) then
                return log_names;
            end if;
        exception when undefined_table then
            -- It was dropped meanwhile.
            null;
        end;
    end loop;
    raise exception 'could not serialize access: the log changes'
        using errcode = '40001', hint = 'Run the transaction again.';
end $$;

-- The condition that callers give on bodies. Raises MQ002 for text that is not a JSON path.
create or replace function spanmq_core.as_path(match text) returns jsonpath
language plpgsql immutable as $$
declare
    path jsonpath;
begin
    path := match::jsonpath;
    -- Without what is in quotes, $"x" is a variable.
    perform spanmq_core.raise_if(regexp_replace(path::text, E'"([^"\\\\]|\\\\.)*"', 'q', 'g') ~ '[$]q',
        format('a JSON path has no variables here: %s', match), 'Write the value itself.');
    return path;
exception when syntax_error or data_exception or feature_not_supported then
    raise exception '% is not a JSON path: %', match, sqlerrm
        using errcode = 'MQ002', hint = 'Such as $.amount > 100, or $.items[*] ? (@.sku == "A1").';
end $$;

-- Whether a body meets a condition: the first result of its path exists, and is neither false nor null.
create or replace function spanmq_core.meets(body jsonb, path jsonpath) returns boolean
language sql stable as $$
    select coalesce(jsonb_path_query_first_tz(body, path, '{}', true) not in ('false', 'null'), false)
$$;

-- The extent of the messages that can be replayed, and their disk space. keep: the setting of the policy. since: the
-- time of the first message from which on the log has them all. first_id, last_id: null in an empty log. bytes: the
-- size of the log. kept_bytes: the size of those of its segments that would be deleted without `keep`. No row for a
-- subscription, whose log is that of its queue.
create or replace function spanmq_call.replay_extent(queue text)
returns table (keep text, since timestamptz, first_id bigint, last_id bigint, bytes bigint, kept_bytes bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    drawn bigint;
    first_kept bigint;
begin
    if this.is_subscription then
        return;
    end if;
    drawn := spanmq_core.drawn_from(this.ids);
    first_kept := spanmq_core.first_kept(this.queue_id);
    keep := (spanmq_core.policy_of(this.queue_id)).keep::text;
    since := spanmq_core.sent_from(this.queue_id, first_kept);
    if since is not null then
        first_id := first_kept;
        last_id := drawn;
    end if;
    select coalesce(sum(s.size), 0), coalesce(sum(s.size) filter (where keep is not null and s.hi < drawn
                                                                  and not spanmq_core.is_needed(this, s.lo, s.hi)), 0)
        into bytes, kept_bytes
        from (select n.lo, n.hi, pg_total_relation_size(to_regclass(format('spanmq_core.%I', n.log_name))) as size
              from spanmq_core.segment n where n.queue_id = this.queue_id and n.state = 'open' and n.lo <= drawn) s;
    return next;
end $$;

-- Sends messages of a queue again, into another queue, settled ones too. All of these conditions must be met: the
-- message was sent at or after `since` (null: from the first message on from which the log has them all) and before
-- `until` (null: now); its body fits `match`, a JSON path whose first result must be neither false nor null (null: any
-- body); its id is one of msg_ids (null: any); and its id is higher than `after`. At most qty messages are sent (null:
-- all), in the order of their ids. They are new messages of into_queue: visible at once, in their group, with attempts
-- of their own, without their former expiry, delay and priority. The header x-spanmq-replay-of has the queue, the id
-- and the time of the first send. Returns the number of messages, and the last id, with which to continue; with
-- dry_run nothing is sent. Sends all or nothing, in one transaction: meanwhile the log is kept as it is, and senders
-- that need a new segment of into_queue wait. Needs look on `queue` and send on `into_queue`. Raises MQ064 if the log
-- no longer has all of them, or not the lowest of msg_ids, MQ060 for subscriptions, MQ002 for a bad path or quantity,
-- MQ003 outside READ COMMITTED, MQ062 where into_queue has no room.
create or replace function spanmq_call.replay(
    queue text, into_queue text, since timestamptz default null, until timestamptz default null,
    match text default null,
    after bigint default 0, qty bigint default null, dry_run boolean default false, msg_ids bigint[] default null,
    by_role text default null
) returns table (n bigint, last_id bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    target spanmq_core.queue := spanmq_core.find_queue(into_queue);
    path jsonpath := spanmq_core.as_path(match);
    end_id bigint;
    lowest_id bigint;
    first_id bigint;
    log_names text[];
    segment spanmq_core.segment;
    ids bigint[];
    groups text[];
    has_limits boolean;
begin
    if not spanmq_core.role_may(by_role, target.queue_id, 'send') then
        if not spanmq_core.role_may(by_role, target.queue_id, 'look') then
            perform spanmq_core.raise_not_found(into_queue);
        end if;
        raise exception 'permission denied for queue %', target.name
            using errcode = '42501', hint = format('select spanmq.grant_queue(%L, %L, ''send'')', by_role, target.name);
    end if;
    target := spanmq_core.find_target(into_queue);
    this := spanmq_core.find_target(queue);
    perform spanmq_core.check_isolation('replay()');
    perform spanmq_core.raise_if(after is null or after < 0 or qty < 1 or dry_run is null,
        format('after must be 0 or more and qty 1 or more, got: %L and %L', after, qty),
        'Leave them out for all messages.');
    -- No id is the greatest bigint.
    after := least(after, 9223372036854775806);
    end_id := spanmq_core.drawn_from(this.ids);
    if msg_ids is not null then
        lowest_id := (select min(i) from unnest(msg_ids) i);
        after := greatest(after, lowest_id - 1);
        end_id := least(end_id, coalesce((select max(i) from unnest(msg_ids) i), 0));
    end if;
    n := 0;
    -- As any sender: a transaction id before the first message id.
    perform pg_current_xact_id();
    log_names := spanmq_core.hold_log(this.queue_id, after, end_id, since, until);
    -- Under the locks: what the log has now it keeps.
    perform spanmq_core.check_kept(this, since);
    perform spanmq_core.check_kept(this, lowest_id);
    for segment in
        select * from spanmq_core.segment s where s.queue_id = this.queue_id and s.log_name = any (log_names)
        order by s.lo
    loop
        first_id := greatest(segment.lo, after + 1, spanmq_core.first_kept(this.queue_id));
        while first_id <= least(segment.hi, end_id) loop
            -- Planned for what is given: a time or a path that is null costs nothing.
            execute format(
                'select array_agg(c.msg_id), case when bool_or(c.headers is not null) then'
                ' array_agg(spanmq_core.group_of(c.headers)) end,'
                ' bool_or(c.headers ? ''x-spanmq-max-attempts'')'
                ' from (select l.msg_id, l.headers from spanmq_core.%I l'
                '       where l.msg_id between $2 and $3 %s and not (select spanmq_core.unsent_of($1, $2, $3)) @>'
                ' l.msg_id %s %s'
                '       order by l.msg_id limit $7) c',
                segment.log_name,
                case when since is not null or until is not null then
                    'and l.enqueued_at >= coalesce($4, ''-infinity'') and l.enqueued_at < coalesce($5, ''infinity'')'
                        end,
                case when path is not null then 'and spanmq_core.meets(l.message, $6)' end,
                case when msg_ids is not null then 'and l.msg_id = any ($8)' end)
                into ids, groups, has_limits
                using this.queue_id, first_id, least(first_id + 9999, segment.hi, end_id), since, until, path, qty - n,
                msg_ids;
            if ids is not null then
                if not dry_run then
                    perform spanmq_core.send_again(this, segment.log_name, ids, groups, has_limits, target);
                end if;
                n := n + cardinality(ids);
                last_id := ids[cardinality(ids)];
            end if;
            first_id := first_id + 10000;
            exit when n = qty;
        end loop;
        exit when n = qty;
    end loop;
    if n > 0 and not dry_run then
        perform spanmq_core.announce(target, null);
    end if;
    return next;
end $$;

-- Sends messages of a log, which is locked, again into the target. groups: null, or the group (or null) of each.
-- has_limits: one may have attempts of its own.
create or replace function spanmq_core.send_again(
    this spanmq_core.queue, log_name text, ids bigint[], groups text[], has_limits boolean, target spanmq_core.queue
) returns void
language plpgsql as $$
declare
    block spanmq_core.bulk_block;
    sent_at timestamptz;
    done int := 0;
    chunk int;
begin
    if has_limits then
        perform spanmq_core.note_use(target, false, true);
    end if;
    for block in select * from spanmq_core.draw_blocks(target, cardinality(ids)) loop
        sent_at := coalesce(sent_at, clock_timestamp());
        chunk := block.hi - block.lo + 1;
        -- From table to table: bodies may be large, and are in no variable.
        execute format(
            'insert into spanmq_core.%I (msg_id, enqueued_at, message, headers)'
            ' select $2 + u.n - 1, $3, l.message,'
            '  case when jsonb_typeof(l.headers) = ''object'' then l.headers - ''x-spanmq-expires-at'' else ''{}'' end'
            '  || jsonb_build_object(''x-spanmq-replay-of'', jsonb_build_object(''queue'', $4, ''msg_id'', l.msg_id,'
            ' ''enqueued_at'', l.enqueued_at))'
            ' from unnest($1) with ordinality u (id, n)'
            ' cross join lateral (select * from spanmq_core.%I l where l.msg_id = u.id offset 0) l', block.log_name,
            log_name)
            using ids[done + 1:done + chunk], block.lo, sent_at, this.name::text;
        perform spanmq_core.check_logged(target, block.log_name, block.lo, block.hi);
        perform spanmq_core.publish(
            target.queue_id, block.lo, block.hi, null, case
            when target.group_by is null then groups[done + 1:done + chunk]
            else spanmq_core.groups_of(block.log_name, block.lo, block.hi, target.group_by) end, null);
        done := done + chunk;
    end loop;
    perform spanmq_core.remember_segment(target.queue_id, block.hi);
end $$;

-- Gives a new subscription what was sent into its queue since then, or with this id or a higher one, settled there or
-- not. Senders are held.
create or replace function spanmq_core.subscribe_to_past(
    parent spanmq_core.queue, this spanmq_core.queue, since timestamptz, since_id bigint
) returns void
language plpgsql as $$
declare
    end_id bigint := spanmq_core.drawn_from(parent.ids);
    log_names text[];
    segment spanmq_core.segment;
    first_id bigint;
begin
    -- As subscribe_to_waiting() does, and for the same reason.
    execute format('lock table spanmq_core.log_%s in row exclusive mode', parent.queue_id);
    perform spanmq_core.raise_if(since_id > end_id + 1, format('queue %s has no message %s yet', parent.name, since_id),
                                 format('The next one gets the id %s.', end_id + 1));
    perform spanmq_core.check_kept(parent, since);
    perform spanmq_core.check_kept(parent, since_id);
    log_names := spanmq_core.hold_log(parent.queue_id, coalesce(since_id - 1, 0), end_id, since, null);
    for segment in
        select * from spanmq_core.segment s where s.queue_id = parent.queue_id and s.log_name = any (log_names)
        order by s.lo
    loop
        first_id := greatest(segment.lo, since_id, spanmq_core.first_kept(parent.queue_id));
        while first_id <= least(segment.hi, end_id) loop
            -- A message that is delayed there is delayed here, too: messages and their delays are read in one
            -- statement. All go to later: their ids may be older than the bound of state.
            perform spanmq_core.heed_clock(this.queue_id);
            execute format(
                'insert into spanmq_core.later (queue_id, msg_id, vt, group_hash, group_key)'
                ' select $5, l.msg_id, greatest(d.vt, clock_timestamp()), hashtextextended(g.key, 0), g.key'
                ' from spanmq_core.%I l'
                ' cross join lateral (select spanmq_core.group_in($6, l.message, l.headers) as key) g'
                ' left join (select h.msg_id as id, h.vt from spanmq_core.later h'
                '            where h.queue_id = $1 and h.msg_id between $2 and $3 and h.lease_id = 0 and h.attempts = 0'
                '              and h.vt > clock_timestamp()) d on d.id = l.msg_id'
                ' where l.msg_id between $2 and $3 and l.enqueued_at >= coalesce($4, ''-infinity'')'
                '   and not (select spanmq_core.unsent_of($1, $2, $3)) @> l.msg_id', segment.log_name)
                using parent.queue_id, first_id, least(first_id + 65535, segment.hi, end_id), since, this.queue_id,
                parent.group_by;
            first_id := first_id + 65536;
        end loop;
    end loop;
    insert into spanmq_core.expiry (queue_id, msg_id, expires_at)
        select this.queue_id, e.msg_id, e.expires_at from spanmq_core.expiry e
        where e.queue_id = parent.queue_id and not e.is_cancelled
        and exists (select from spanmq_core.unsettled u where u.queue_id = this.queue_id and u.msg_id = e.msg_id);
end $$;
