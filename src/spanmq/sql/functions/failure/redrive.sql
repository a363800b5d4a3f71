-- Redriving: a dead letter becomes a message again, the same one: it keeps its msg_id, and so its place in its group
-- and its story. Only its attempts begin anew. What was a log row may be gone by now, with its segment: then it is
-- written again.
--
-- Lock order: dead letters, ascending -> deduplication ids, ascending -> the row of a segment that was noted as settled
-- -> a lock row of the queue, if a segment must be made -> tables and rows of segments, ascending.

-- Returns when the first of them is to be visible; delay null: after the redrive_delay of the queue's policy, so that
-- what has just failed is not tried again at once. Raises MQ002 for a delay or a rate that is none.
create or replace function spanmq_core.redrive_from(
    this spanmq_core.queue, delay double precision, rate double precision
) returns timestamptz
language plpgsql volatile as $$
declare
    visible_from timestamptz := spanmq_core.after(coalesce(delay, (spanmq_core.policy_of(this.queue_id)).redrive_delay),
                                                  'delay');
begin
    perform spanmq_core.raise_if(delay < 0, format('delay cannot be negative, got: %s', delay), '0 is no delay.');
    perform spanmq_core.raise_if(rate <= 0 or rate = 'NaN',
        format('rate must be more than 0 messages a second, got: %s', rate), 'Omit it to redrive all at once.');
    return visible_from;
end $$;

-- Redrives dead letters that fit all filters (as dead_letters()) into their queue, those with the lowest ids first, at
-- most qty. They become visible after `delay` seconds (null: the redrive_delay of the queue's policy); with a rate,
-- `rate` of them a second from then on. Returns the messages and their times, or with dry_run those of a redrive that
-- is not made. Each is redriven once, also by concurrent calls. A message keeps its msg_id, enqueued_at and failures,
-- and its attempts begin at 1. The dead letter stays, marked redriven_at, with its former body. An expiry in the past
-- is removed. A patch (JSON Patch, RFC 6902, without copy) changes the body of each, and with group_by in the policy
-- its group. With a patch, all of them are redriven or none: the call waits for dead letters that another transaction
-- changes, and raises MQ002 if more than qty fit the filters, or the patch does not fit one of them, and MQ004 for an
-- encrypted body. With dry_run the first ten rows have the bodies before and after the patch. new_messages has the new
-- bodies of dead_letter_ids in their order; null: unchanged. A dead letter is not redriven, with a patch too, if
-- another message has its dedup_id (dedup_until of send_messages()). Its row then has the other message as `beside`,
-- and no visible_at. It counts in qty, so a loop ends when no row has a visible_at. Raises MQ002, MQ020, MQ060 as
-- redrive_message().
create or replace function spanmq_call.redrive(
    queue text, category text default null, error text default null, error_class text default null,
    since timestamptz default null,
    until timestamptz default null, payload jsonb default null, match text default null,
    dead_letter_ids bigint[] default null,
    patch jsonb default null, new_messages jsonb[] default null, qty integer default 1000,
    rate double precision default null,
    delay double precision default null, dry_run boolean default false
) returns table (msg_id bigint, visible_at timestamptz, before jsonb, after jsonb, beside bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    given spanmq_core.letter_filter := spanmq_core.letter_filter(category, error, error_class, since, until, payload,
                                                                 match, dead_letter_ids, false);
    visible_from timestamptz := spanmq_core.redrive_from(this, delay, rate);
    -- One more shows that there are more.
    most int := qty + (patch is not null and qty < 2147483647)::int;
    found_letters spanmq_core.revived[];
    letters spanmq_core.revived[];
    others bigint[];
begin
    perform spanmq_core.check_quantity(qty);
    perform spanmq_core.raise_if(dry_run is null, 'dry_run cannot be NULL', 'Pass true or false.');
    perform spanmq_core.check_patch(patch);
    perform spanmq_core.raise_if(
        new_messages is not null
            and (patch is not null or cardinality(new_messages) is distinct from cardinality(dead_letter_ids)),
        'new_messages must have one element for each of dead_letter_ids, and needs no patch', 'Pass one or the other.');
    found_letters := array(
        select spanmq_core.to_revive(d) from spanmq_core.find_dead_letters(
            this.queue_id, given, null, most, 'msg_id',
            case when dry_run then '' when patch is not null then 'for update' else 'for update skip locked' end) d);
    perform spanmq_core.raise_if(cardinality(found_letters) > qty,
        format('more than %s dead letters fit: none is redriven', qty),
        'A patch is for all or none of them. Raise qty, or choose fewer.');
    letters := found_letters;
    if patch is not null or new_messages is not null then
        letters := spanmq_core.with_new_bodies(this, letters, patch, dead_letter_ids, new_messages);
    end if;
    others := spanmq_core.beside(this, letters, dry_run);
    if not dry_run then
        perform spanmq_core.revive(
            this, case when others is null then letters
                       else array(select e.letter from (select unnest(letters) as letter, unnest(others) as other) e
                                  where e.other is null) end, visible_from, rate);
    end if;
    return query
        select l.msg_id,
               case when others[l.ordinality] is null then
                   spanmq_core.visible_at(visible_from, rate, l.ordinality
                                          - count(others[l.ordinality]) over (order by l.ordinality)) end,
               case when dry_run and patch is not null
               and l.ordinality <= 10 then (found_letters[l.ordinality]).message end,
               case when dry_run and patch is not null and l.ordinality <= 10 then l.message end,
               others[l.ordinality]
        from unnest(letters) with ordinality l order by l.ordinality;
end $$;

-- Dead letters with their new bodies: by a patch, or from new_messages, those of dead_letter_ids by their places.
create or replace function spanmq_core.with_new_bodies(
    this spanmq_core.queue, letters spanmq_core.revived[], patch jsonb, dead_letter_ids bigint[], new_messages jsonb[]
) returns spanmq_core.revived[]
language plpgsql as $$
declare
    letter spanmq_core.revived;
    body jsonb;
    edited spanmq_core.revived[] := '{}';
begin
    -- The place in a list does not depend on where its array begins.
    dead_letter_ids := array(select unnest(dead_letter_ids));
    new_messages := array(select unnest(new_messages));
    foreach letter in array letters loop
        body := case when patch is not null then spanmq_core.patched(letter.message, patch, letter.msg_id)
                     else coalesce(new_messages[array_position(dead_letter_ids, letter.dead_letter_id)],
                                   letter.message) end;
        edited := edited || spanmq_core.with_change(this, letter, body, letter.headers);
    end loop;
    return edited;
end $$;

-- A dead letter with this body and these headers. If they name another group than its own, it goes into that group,
-- where it comes by its id.
create or replace function spanmq_core.with_change(
    this spanmq_core.queue, letter spanmq_core.revived, body jsonb, headers jsonb
) returns spanmq_core.revived
language plpgsql as $$
declare
    key text := spanmq_core.group_in(this.group_by, body, headers);
begin
    if (body, headers) is not distinct from (letter.message, letter.headers) then
        return letter;
    end if;
    perform spanmq_core.check_own(this, letter.msg_id);
    if body is distinct from letter.message then
        perform spanmq_core.check_bodies(this, array[body], format('the new body of message %s', letter.msg_id));
    end if;
    -- The policy may name groups by another place than when the message was sent.
    if key is distinct from spanmq_core.group_in(this.group_by, letter.message, letter.headers) then
        letter.group_key := key;
    end if;
    letter.message := body;
    letter.headers := headers;
    return letter;
end $$;

-- Raises MQ060 for a message that other queues of the log have too: they would get it changed.
create or replace function spanmq_core.check_own(this spanmq_core.queue, msg_id bigint) returns void
language plpgsql as $$
begin
    perform spanmq_core.raise_if((this.is_subscription or this.has_subscriptions)
                                 and spanmq_core.is_shared(this, msg_id),
        format('message %s cannot be changed for queue %s only: other queues have it too', msg_id, this.name),
        'A queue and its subscriptions share each message. Redrive it as it is, or discard it and send another.',
        'MQ060');
end $$;

create or replace function spanmq_core.to_revive(this spanmq_core.dead_letter) returns spanmq_core.revived
language sql immutable as $$
    select (this.dead_letter_id, this.msg_id, this.enqueued_at, this.message, this.headers, this.group_key,
            this.priority, this.category)::spanmq_core.revived
$$;

-- When the n-th of them comes at this rate. Multiplied, not added up: no error grows. Decades ahead is as good as
-- never.
create or replace function spanmq_core.visible_at(visible_from timestamptz, rate double precision, n bigint)
returns timestamptz
language sql immutable as $$
    select visible_from +
        make_interval(secs => case when rate is null then 0 else least((n - 1) / greatest(rate, 1e-290), 3e9) end)
$$;

-- Redrives one dead letter with this message and these headers (null: unchanged; JSON's null is a message too),
-- visible after `delay` seconds (null: as redrive()). Its group is the one that the new message names, and its place
-- there is that of its id. Returns its msg_id. Raises MQ021 if no dead letter of this msg_id waits, MQ002 for headers
-- that are not an object, MQ066 if another message has its dedup_id. Raises MQ060 for a change while another queue of
-- the same log (a subscription) still has the message, because both have the same one. Otherwise as redrive().
create or replace function spanmq_call.redrive_message(
    queue text, msg_id bigint, message jsonb default null, headers jsonb default null,
    delay double precision default null
) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    visible_from timestamptz := spanmq_core.redrive_from(this, delay, null);
    letter spanmq_core.revived;
begin
    select (spanmq_core.to_revive(d)).* into letter from spanmq_core.dead_letter d
        where d.queue_id = this.queue_id and d.msg_id = redrive_message.msg_id and d.redriven_at is null for update;
    perform spanmq_core.raise_if(not found,
        format('queue %s has no pending dead letter %s', this.name, coalesce(redrive_message.msg_id::text, 'NULL')),
        'spanmq.state() returns the state of the message.', 'MQ021');
    perform spanmq_core.raise_if(jsonb_typeof(headers) not in ('object', 'null'),
        format('headers must be a JSON object, got: %s', left(headers::text, 100)),
        'Such as {"x-pgmq-group": "a"}.');
    letter := spanmq_core.with_change(this, letter, coalesce(message, letter.message),
                                      case when headers is null then letter.headers else nullif(headers, 'null') end);
    perform spanmq_core.raise_held(spanmq_core.dedup_id_of(letter.headers), b.id)
        from unnest(spanmq_core.beside(this, array[letter], false)) b (id) where b.id is not null;
    perform spanmq_core.revive(this, array[letter], visible_from, null);
    return letter.msg_id;
end $$;

-- The expiry time in a message's own headers; null if it is not a valid time.
create or replace function spanmq_core.own_expires_at(headers jsonb) returns timestamptz
language plpgsql stable as $$
begin
    if jsonb_typeof(headers->'x-spanmq-expires-at') = 'string' then
        return (headers->>'x-spanmq-expires-at')::timestamptz;
    end if;
    return null;
exception when data_exception then
    return null;
end $$;

-- Makes messages of dead letters, which the caller has locked, ascending by msg_id.
create or replace function spanmq_core.revive(
    this spanmq_core.queue, letters spanmq_core.revived[], visible_from timestamptz, rate double precision
) returns void
language plpgsql as $$
declare
    at_ timestamptz := clock_timestamp();
begin
    if letters = '{}' then
        return;
    end if;
    -- As any sender: a transaction id before the first row.
    perform pg_current_xact_id();
    if this.uses_limits then
        delete from spanmq_core.expiry e where e.queue_id = this.queue_id
            and e.msg_id = any (array(select l.msg_id from unnest(letters) l));
        -- A past time would make it expire again at once.
        letters := array(
            select (l.dead_letter_id, l.msg_id, l.enqueued_at, l.message,
                    case
                    when spanmq_core.own_expires_at(l.headers) <= at_ then nullif(l.headers - 'x-spanmq-expires-at',
                        '{}') else l.headers end,
                    l.group_key, l.priority, l.category)::spanmq_core.revived
            from unnest(letters) with ordinality l order by l.ordinality);
        insert into spanmq_core.expiry (queue_id, msg_id, expires_at)
            select this.queue_id, l.msg_id, spanmq_core.own_expires_at(l.headers) from unnest(letters) l
            where spanmq_core.own_expires_at(l.headers) is not null
            on conflict do nothing;
    end if;
    perform spanmq_core.write_again(this, letters);
    -- As messages that were never delivered, each visible at its own time.
    perform spanmq_core.heed_clock(this.queue_id);
    insert into spanmq_core.later (queue_id, msg_id, vt, priority, group_hash, group_key)
        select this.queue_id, l.msg_id,
               greatest(spanmq_core.visible_at(visible_from, rate, l.ordinality), clock_timestamp()), l.priority,
               hashtextextended(l.group_key, 0), l.group_key
        from unnest(letters) with ordinality l;
    -- The group that it blocked, which a change may have left.
    with redriven as (
        update spanmq_core.dead_letter d set redriven_at = at_, redriven_as = d.msg_id
            where d.dead_letter_id = any (array(select l.dead_letter_id from unnest(letters) l))
            returning d.msg_id, hashtextextended(d.group_key, 0) as group_hash)
    delete from spanmq_core.blocked_group b using redriven r
        where b.queue_id = this.queue_id and b.group_hash = r.group_hash and b.msg_id = r.msg_id;
    insert into spanmq_core.dead_letter_count (queue_id, category, n) select this.queue_id, l.category, -count(*)
        from unnest(letters) l group by l.category;
    -- Not announce(): subscribers have nothing of it.
    if this.notify_ms is not null then
        perform spanmq_core.notify(this);
    end if;
    if not spanmq_core.is_foreseen(visible_from) then
        perform spanmq_core.wake(this.queue_id, this.bells);
    end if;
end $$;

-- Writes the rows of messages that come back into the log where they are gone, or changed, segment by segment. What
-- other queues of the log have too stays as it is.
create or replace function spanmq_core.write_again(this spanmq_core.queue, letters spanmq_core.revived[]) returns void
language plpgsql as $$
declare
    log_id int := coalesce((select s.log_id from spanmq_core.subscription s where s.queue_id = this.queue_id),
                           this.queue_id);
    shared bigint[] := '{}';
    segment spanmq_core.segment;
    log_name text;
    next_id bigint := (select min(l.msg_id) from unnest(letters) l);
begin
    if this.is_subscription or this.has_subscriptions then
        shared := array(select l.msg_id from unnest(letters) l where spanmq_core.is_shared(this, l.msg_id));
    end if;
    while next_id is not null loop
        segment := spanmq_core.hold_segment(log_id, next_id);
        -- Also into the copy of a rewrite, which only has live messages, and into the table that it replaced, whose
        -- name another session may know.
        foreach log_name in array array_remove(array[segment.log_name, segment.copy_name, segment.old_name], null) loop
            execute format('insert into spanmq_core.%I as l (msg_id, enqueued_at, message, headers)'
                           ' select u.msg_id, u.enqueued_at, u.message, u.headers from unnest($1) u where u.msg_id'
                           ' between $2 and $3'
                           ' on conflict (msg_id) do update set message = excluded.message, headers = excluded.headers'
                           ' where (l.message, l.headers) is distinct from (excluded.message, excluded.headers) and'
                           ' l.msg_id <> all ($4)', log_name)
                using letters, segment.lo, segment.hi, shared;
        end loop;
        next_id := (select min(l.msg_id) from unnest(letters) l where l.msg_id > segment.hi);
    end loop;
end $$;

-- The segment of an id that was drawn long ago, made again if it is gone, and held in the log to the end of this
-- transaction: maintain() can neither truncate, drop nor swap its table, and judges it anew afterwards.
create or replace function spanmq_core.hold_segment(this_queue int, id bigint) returns spanmq_core.segment
language plpgsql as $$
declare
    this spanmq_core.segment;
    held spanmq_core.segment;
    log_name text;
begin
    -- A segment is changed only once by another transaction, so a second round is rare.
    for round in 1 .. 10 loop
        this := spanmq_core.segment_of(this_queue, id);
        if this.lo is null then
            this := spanmq_core.create_gap_segment(this_queue, id);
        end if;
        begin
            foreach log_name in array array_remove(array[this.log_name, this.copy_name, this.old_name], null) loop
                execute format('lock table spanmq_core.%I in row exclusive mode', log_name);
            end loop;
        exception when undefined_table then
            -- It was dropped meanwhile.
            continue;
        end;
        -- A new statement under the locks: is it still as it was? Where statements see the past, the row's lock tells.
        if spanmq_core.sees_now() then
            select * into held from spanmq_core.segment s where s.queue_id = this_queue and s.lo = this.lo;
        else
            select * into held from spanmq_core.segment s where s.queue_id = this_queue and s.lo = this.lo
                for no key update;
        end if;
        if found and (held.log_name, held.copy_name, held.old_name) is not distinct from (this.log_name, this.copy_name,
            this.old_name) then
            if held.state <> 'open' or held.settled_at_xid is not null then
                update spanmq_core.segment s set state = 'open', settled_at_xid = null where s.queue_id = this_queue
                    and s.lo = this.lo
                    returning * into held;
            end if;
            return held;
        end if;
    end loop;
    raise exception 'could not serialize access: the segment of message % changes', id
        using errcode = '40001', hint = 'Run the transaction again.';
end $$;

-- Makes a segment for an id whose segment is gone: one for the whole gap, so that many old messages don't make many
-- tables.
create or replace function spanmq_core.create_gap_segment(this_queue int, id bigint) returns spanmq_core.segment
language plpgsql as $$
declare
    first_id bigint := (select s.hi + 1 from spanmq_core.segment s where s.queue_id = this_queue and s.lo <= id
                        order by s.queue_id desc, s.lo desc limit 1);
    this spanmq_core.segment;
begin
    -- About 2 billion ids at most, what an int can say.
    if first_id is null then
        first_id := greatest(id - id % 256 - 1073741824, 1);
    elsif id - first_id >= 2147483392 then
        first_id := id - id % 256;
    end if;
    this := spanmq_core.create_segment(this_queue, first_id, 2147483392, true);
    -- It will hold few rows: no case for a rewrite, which is for segments that have become sparse.
    update spanmq_core.segment s set n_rows = 1 where s.queue_id = this_queue and s.lo = this.lo and s.n_rows > 1
        and s.created_at >= now();
    return this;
end $$;
