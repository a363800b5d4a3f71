-- Sending with what PGMQ's send doesn't know: priority, expiry, attempts of one's own, deduplication, order of commit
-- in a group.
--
-- Lock order: the queue's row, the first time that it is sent with a priority or with limits -> its room -> groups of
-- ordered sends, ascending -> deduplication, ascending. All to commit. Senders that ask for none of it wait for nobody.

-- Sends messages, all or none, and returns their ids in the order of the messages. For a duplicate, this is the id of
-- the message that was sent first. headers and dedup_ids are null, or have one element (or null) for each message; the
-- other arguments are for all messages.
--   delay, expires_in   seconds from now; expires_in null: never. Later the message is dead-lettered, or dropped.
--   priority            0 to 9; among visible messages, higher ones come first
--   max_attempts        1 to 1000; null: as the queue's policy says
--   dedup_for           seconds, up to 14 days, for which a dedup_id stands for the message that was sent first under
--                       it
--   fingerprint         a text that identifies the contents, up to 512 bytes: a dedup_id that was sent with another
--                       fingerprint is refused. null: not checked. An id with a fingerprint is not the same as this id
--                       without one
--   dedup_until         replaces dedup_for: a dedup_id stands for the last message that was sent under it. settled:
--                       while the message is in the queue, whatever its delay and its attempts. started: until it is
--                       first received, and that is not before this transaction ends. The id is kept in the header
--                       x-spanmq-dedup-id. An id with dedup_until is not the same as this id without it
--   on_duplicate        with dedup_until, for a message whose dedup_id stands for another message. keep: it is not
--                       sent, and the id of the other message is returned. replace: the other message is cancelled, as
--                       by cancel(). raise: MQ066 is raised
--   ordered             senders of one group commit one after the other, so that within a group ids are in the order
--                       of commit. Messages without the header x-pgmq-group are a group, too. Waits until an ordered
--                       sender of the same group has ended its transaction. A queue has 256 locks for its groups, so
--                       two groups may share one.
-- Raises MQ002 for an invalid value, such as headers that are not a JSON object, MQ062 for a full queue (duplicates
-- count like other messages), MQ063 for a dedup_id with another fingerprint, and MQ066 with on_duplicate raise: then
-- nothing has changed. With dedup_until, raises MQ003 outside READ COMMITTED, and waits for the end of transactions
-- that send with the same ids, and (started, or replace) of transactions that claim their messages.
create or replace function spanmq_call.send_messages(
    queue text, messages jsonb[], headers jsonb[] default null, delay double precision default 0,
    priority integer default 0,
    expires_in double precision default null, max_attempts integer default null, dedup_ids text[] default null,
    dedup_for double precision default 300, ordered boolean default false, fingerprint text default null,
    dedup_until text default null, on_duplicate text default 'keep'
) returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_target(queue);
    n int := cardinality(messages);
    limits jsonb;                  -- one that is null is not among them
    expires_at timestamptz;
    visible_at timestamptz;
    ids bigint[];
    is_first boolean[];
begin
    perform spanmq_core.check_batch(messages, headers);
    if headers is not null then
        -- PGMQ's own send() takes any JSON, as in PGMQ.
        perform spanmq_core.raise_headers(h) from unnest(headers) h where jsonb_typeof(h) <> 'object';
    end if;
    perform spanmq_core.check_sending(n, delay, priority, expires_in, max_attempts, dedup_ids, dedup_for, ordered,
                                      fingerprint, dedup_until, on_duplicate);
    visible_at := case when delay > 0 then spanmq_core.after(delay, 'delay') end;
    if expires_in is not null or max_attempts is not null then
        expires_at := case when expires_in is not null then spanmq_core.after(expires_in, 'expires_in') end;
        limits := jsonb_strip_nulls(jsonb_build_object('x-spanmq-max-attempts', max_attempts, 'x-spanmq-expires-at',
                                                       expires_at));
        headers := array(select coalesce(u.h, '{}') || limits
                         from unnest(coalesce(headers, array_fill(null::jsonb, array[n]))) with ordinality u
                         (h, position) order by u.position);
    end if;
    perform spanmq_core.note_use(this, priority > 0, expires_in is not null or max_attempts is not null);
    if this.room is not null or this.checks_bodies then
        perform spanmq_core.check_sent(this, messages);
    end if;
    if ordered then
        -- Serialises the senders of these groups to the end of their transactions. A bounded number of locks, for each
        -- is a row.
        perform spanmq_core.lock(this.queue_id, 'ordered ' || g.slot) from (
            select distinct hashtextextended(coalesce(spanmq_core.group_of(h), ''), 0) & 255 as slot
            from unnest(coalesce(headers, array[null]::jsonb[])) h order by slot) g;
    end if;
    -- Before the ids: see send.sql.
    perform pg_current_xact_id();
    if dedup_ids is null then
        ids := spanmq_core.draw_ids(this.ids, n);
        perform spanmq_core.append_and_publish(this, ids, messages, headers, clock_timestamp(), visible_at, priority);
    else
        if dedup_until is null then
            select d.ids, d.is_first into ids, is_first
                from spanmq_core.draw_once(this, dedup_ids, dedup_for, fingerprint) d;
        else
            select h.ids, h.is_first into ids, is_first
                from spanmq_core.hold_ids(this, dedup_ids, null, dedup_until = 'started', on_duplicate) h;
            headers := array(
                select case when u.dedup_id is null then u.h else coalesce(u.h, '{}')
                            || jsonb_build_object('x-spanmq-dedup-id', u.dedup_id) end
                from unnest(coalesce(headers, array_fill(null::jsonb, array[n])), dedup_ids) with ordinality u
                (h, dedup_id, position) order by u.position);
        end if;
        messages := array(select u.message
                          from unnest(messages, is_first) with ordinality u (message, is_first, position)
                          where u.is_first order by u.position);
        if headers is not null then
            headers := array(select u.header
                             from unnest(headers, is_first) with ordinality u (header, is_first, position)
                             where u.is_first order by u.position);
        end if;
        if messages <> '{}' then
            perform spanmq_core.append_and_publish(
                this, array(select u.id from unnest(ids, is_first) with ordinality u (id, is_first, position)
                            where u.is_first order by u.position),
                messages, headers, clock_timestamp(), visible_at, priority);
        end if;
    end if;
    if expires_at is not null then
        insert into spanmq_core.expiry (queue_id, msg_id, expires_at)
            select q.queue_id, u.id, expires_at
            from spanmq_core.queues_of(this.queue_id) q,
            unnest(ids, coalesce(is_first, array_fill(true, array[n]))) u (id, is_first) where u.is_first;
    end if;
    if messages <> '{}' then
        perform spanmq_core.announce(this, visible_at);
    end if;
    return query select unnest(ids);
end $$;

create or replace function spanmq_core.raise_headers(bad jsonb) returns void
language plpgsql immutable as $$
begin
    raise exception 'headers must be a JSON object, got: %', left(bad::text, 100)
        using errcode = 'MQ002', hint = 'For example {"x-pgmq-group": "a"}; SQL''s null for a message without headers.';
end $$;

-- Raises MQ002 for what no messages can be sent with. One expression: its texts are put together only if something is
-- wrong.
create or replace function spanmq_core.check_sending(
    n int, delay double precision, priority int, expires_in double precision, max_attempts int, dedup_ids text[],
    dedup_for double precision,
    ordered boolean, fingerprint text, dedup_until text, on_duplicate text
) returns void
language plpgsql immutable as $$
declare
    wrong text[] := case
        when delay is null or delay < 0 then array[format('delay cannot be negative or NULL, got: %L', delay),
                                                   '0 is no delay.']
        when priority is null or priority not between 0
        and 9 then array[format('priority must be 0 to 9, got: %L', priority), '9 is the highest.']
        when expires_in <= 0 then
            array[format('expires_in must be more than 0 seconds, got: %s', expires_in),
                  'Omit it for messages that never expire.']
        when max_attempts not between 1 and 1000 then
            array[format('max_attempts must be 1 to 1000, got: %s', max_attempts), 'Omit it for what the policy says.']
        when ordered is null then array['ordered cannot be NULL', 'Pass true or false.']
        when fingerprint is not null and (dedup_ids is null or octet_length(fingerprint) > 512) then
            array['a fingerprint needs dedup_ids, and has at most 512 bytes', 'Use a hash of what is longer.']
        when dedup_until is not null and (dedup_ids is null or fingerprint is not null
                                          or dedup_until not in ('settled', 'started')) then
            array[format('dedup_until must be settled or started, with dedup_ids and without a fingerprint, got: %L',
                         dedup_until), 'Omit it for ids that stand for dedup_for seconds.']
        when (on_duplicate in ('keep', 'replace', 'raise')) is not true
        or dedup_until is null and on_duplicate <> 'keep' then
            array[format('on_duplicate must be keep, replace or raise, and keep without dedup_until, got: %L',
                         on_duplicate), 'Omit it for keep.']
        when cardinality(dedup_ids) <> n then
            array[format('dedup_ids array length (%s) must match messages array length (%s)', cardinality(dedup_ids),
                         n),
                  'Pass one for each message, or null for none.']
        when dedup_ids is not null and (dedup_for > 0 and dedup_for <= 1209600) is not true then
            array[format('dedup_for must be more than 0 and at most 1209600 seconds (14 days), got: %L', dedup_for),
                  'Omit it for 5 minutes.'] end;
begin
    if wrong is null and dedup_ids is not null
        and exists (select from unnest(dedup_ids) d where d = '' or octet_length(d) > 512) then
        wrong := array['a dedup_id must have 1 to 512 bytes', 'Use a hash of what is longer.'];
    end if;
    if wrong is not null then
        raise exception '%', wrong[1] using errcode = 'MQ002', hint = wrong[2];
    end if;
end $$;

-- Notes in the queue's row, and those of its subscriptions, that messages have priorities or limits, so that receivers
-- look for them. Once in a queue's life: this sender holds the row to its commit, and others that are first too wait
-- for it.
create or replace function spanmq_core.note_use(
    this spanmq_core.queue, of_priority boolean, of_limits boolean
) returns void
language plpgsql as $$
begin
    if of_priority and not this.uses_priority or of_limits and not this.uses_limits then
        update spanmq_core.queue q set uses_priority = q.uses_priority or of_priority, uses_limits = q.uses_limits
            or of_limits
            where q.queue_id = this.queue_id
            and (of_priority and not q.uses_priority or of_limits and not q.uses_limits);
        -- A statement of its own, under the lock of that row: a subscription made before it is seen, a later one copies
        -- the row.
        update spanmq_core.queue q set uses_priority = q.uses_priority or of_priority, uses_limits = q.uses_limits
            or of_limits
            where q.queue_id in (select s.queue_id from spanmq_core.subscription s where s.log_id = this.queue_id)
              and (of_priority and not q.uses_priority or of_limits and not q.uses_limits);
    end if;
end $$;
