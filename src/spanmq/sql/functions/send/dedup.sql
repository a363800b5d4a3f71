-- Deduplication: what was sent under an id of the sender's own is not sent again for a while.

-- Draws ids for messages that have a deduplication id of their sender, or null. ids: of the message itself (is_first),
-- or of the one that was sent first with the same dedup_id. Waits for transactions that have sent with one of them and
-- are not committed yet: if such a transaction rolls back, this one is the first. Raises 40001 where the snapshot of
-- the transaction is too old to see the first, and MQ063 where the first had another fingerprint.
create or replace function spanmq_core.draw_once(this spanmq_core.queue, dedup_ids text[], dedup_for double precision,
                                                 this_fingerprint text)
returns table (ids bigint[], is_first boolean[])
language plpgsql as $$
declare
    at_ timestamptz := clock_timestamp();
    expires_at timestamptz := at_ + make_interval(secs => dedup_for);
    -- One for each message: itself where it has no dedup_id, or is the first with it in this batch; else that first
    -- one.
    leader int[];
    -- The messages that seem to be the first, by their places.
    candidates int[];
    drawn bigint[];
    won text[];
    found_id bigint;
    with_fingerprint boolean := this_fingerprint is not null;
begin
    if not spanmq_core.is_list(dedup_ids) then
        dedup_ids := array(select unnest(dedup_ids));
    end if;
    leader := array(
        select case when u.dedup_id is null then u.position else min(u.position) over (partition by u.dedup_id) end::int
        from unnest(dedup_ids) with ordinality u (dedup_id, position) order by u.position);
    ids := array(
        select (select d.msg_id from spanmq_core.deduplication d
                where d.queue_id = this.queue_id and d.dedup_id = u.dedup_id and d.has_fingerprint = with_fingerprint
                and d.until > at_)
        from unnest(dedup_ids) with ordinality u (dedup_id, position) order by u.position);
    is_first := array(select u.id is null and leader[u.position] = u.position
                      from unnest(ids) with ordinality u (id, position) order by u.position);
    -- Messages that were sent before draw no id.
    candidates := array(select u.position::int from unnest(is_first) with ordinality u (is_first, position)
                        where u.is_first order by u.position);
    drawn := spanmq_core.draw_ids(this.ids, cardinality(candidates));
    for i in 1 .. cardinality(candidates) loop
        ids[candidates[i]] := drawn[i];
    end loop;
    candidates := array(select c from unnest(candidates) c where dedup_ids[c] is not null);
    while candidates <> '{}' loop
        with entries as (
            insert into spanmq_core.deduplication as d (queue_id, dedup_id, msg_id, until, fingerprint, has_fingerprint)
                -- Everybody in one order: batches that have ids in common wait for each other, and don't deadlock.
                select this.queue_id, dedup_ids[c], ids[c], expires_at, this_fingerprint, with_fingerprint
                from unnest(candidates) c order by dedup_ids[c] collate "C"
                on conflict (queue_id, dedup_id, has_fingerprint) do update set msg_id = excluded.msg_id,
                until = excluded.until, fingerprint = excluded.fingerprint where d.until <= at_
                returning d.dedup_id)
            select array_agg(e.dedup_id) into won from entries e;
        exit when cardinality(won) = cardinality(candidates);
        -- Another transaction was first, and committed while this one waited. A new statement sees its row, unless it
        -- has expired and was deleted since.
        candidates := array(select c from unnest(candidates) c where dedup_ids[c] not in (select w from unnest(won) w));
        for i in 1 .. cardinality(candidates) loop
            select d.msg_id into found_id from spanmq_core.deduplication d
                where d.queue_id = this.queue_id and d.dedup_id = dedup_ids[candidates[i]]
                and d.has_fingerprint = with_fingerprint;
            if found then
                ids[candidates[i]] := found_id;
                is_first[candidates[i]] := false;
                candidates[i] := null;
            end if;
        end loop;
        candidates := array_remove(candidates, null);
    end loop;
    -- Checked for all together, now that each id is this sender's or was seen: the first sender has committed.
    perform spanmq_core.raise_if(with_fingerprint and exists (
        select from unnest(dedup_ids) u (dedup_id) join spanmq_core.deduplication d on d.queue_id = this.queue_id
            and d.dedup_id = u.dedup_id
        where d.has_fingerprint and d.fingerprint <> this_fingerprint),
        'this dedup_id was used with another fingerprint',
        'Use a new id for a new message; repeat a send with the same content.', 'MQ063');
    ids := array(select ids[l] from unnest(leader) with ordinality u (l, position) order by position);
    return next;
end $$;

-- Deletes up to `budget` expired entries of a queue, but none that a sender has locked.
create or replace function spanmq_core.forget_duplicates(this_queue int, budget int) returns bigint
language plpgsql as $$
declare
    at_ timestamptz := clock_timestamp();
    n bigint;
begin
    delete from spanmq_core.deduplication d
        where d.ctid = any (array(select e.ctid from spanmq_core.deduplication e
                                  where e.queue_id = this_queue and e.until <= at_ order by e.queue_id, e.until
                                  limit budget for update skip locked))
          and d.until <= at_;
    get diagnostics n = row_count;
    return n;
end $$;

-- Deletes the entries of a queue without a fingerprint, but none that a sender has locked: a repeated request of the
-- service stays the same request.
create or replace function spanmq_core.forget_dedup_ids(this_queue int) returns void
language plpgsql as $$
begin
    delete from spanmq_core.deduplication d
        where d.ctid = any (array(select e.ctid from spanmq_core.deduplication e
                                  where e.queue_id = this_queue and not e.has_fingerprint for update skip locked));
end $$;
