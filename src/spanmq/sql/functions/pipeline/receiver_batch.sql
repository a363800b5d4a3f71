-- Batches of receivers: what one holds, its token, and how it is settled or returned.

-- The token of a batch of a receiver, also of one that is kept as the one before another only; null if it is not known
-- any more.
create or replace function spanmq_core.token_of_batch(receiver uuid, batch bigint) returns uuid
language sql stable as $$
    select coalesce((select b.token from spanmq_core.receiver_batch b where b.receiver_id = receiver
                     and b.batch = token_of_batch.batch),
                    (select b.follows from spanmq_core.receiver_batch b where b.receiver_id = receiver
                     and b.batch = token_of_batch.batch + 1))
$$;

-- Raises MQ055 for a batch of a checkpoint that is not this database's: it went back in time, and may have claimed
-- another of that number. One that was settled long ago is not known any more: receiver_ranges() misses those after it.
create or replace function spanmq_core.check_known_batch(
    this spanmq_core.queue, reader spanmq_core.receiver, batch bigint, token uuid
) returns void
language plpgsql as $$
begin
    if batch > reader.batch or token is distinct from coalesce(spanmq_core.token_of_batch(reader.receiver_id, batch),
                                                               token) then
        perform spanmq_core.raise_unknown_position(this.name);
    end if;
end $$;

-- How many bytes the bodies and headers of a batch have as text, and up to which id they have at most max_bytes, the
-- first in any case.
create or replace function spanmq_core.size_of_batch(this_queue int, los bigint[], his bigint[], bitmaps bit[],
                                                     max_bytes bigint, out bytes bigint, out last_id bigint)
language plpgsql as $$
begin
    execute format(
        'select coalesce(max(s.total), 0), max(s.msg_id) filter (where s.total <= $4 or s.place = 1) from ('
        ' select t.msg_id, row_number() over w as place,'
        '        sum(octet_length(t.message::text) + coalesce(octet_length(t.headers::text), 0)) over w as total'
        ' from unnest($1, $2, $3) u (lo, hi, bitmap) join spanmq_core.log_%s t on t.msg_id between u.lo and u.hi'
        '  and (u.bitmap is null or get_bit(u.bitmap, (t.msg_id & 1023)::int) = 1)'
        ' window w as (order by t.msg_id rows unbounded preceding)) s', this_queue)
        into bytes, last_id using los, his, bitmaps, max_bytes;
end $$;

-- Takes what the batches up to `settled` hold out of the queue (into the archive, where the policy says so). The newest
-- of them stays for a replay until a later one is settled.
create or replace function spanmq_core.settle_batches(
    this spanmq_core.queue, receiver uuid, settled bigint
) returns void
language plpgsql as $$
declare
    batch spanmq_core.receiver_batch;
    ids bigint[];
begin
    -- Batches before messages, as a purge does: else each could wait for the other.
    for batch in
        select * from spanmq_core.receiver_batch b
        where b.receiver_id = receiver and b.batch <= settle_batches.settled and b.state = 'claimed' order by b.batch
        for update
    loop
        if this.archive_on_ack then
            ids := spanmq_core.lock_batch(this.queue_id, batch.lease_id, batch.lo, batch.hi);
            if ids <> '{}' then
                perform spanmq_core.move_to_archive(this, ids, batch.lease_id);
            end if;
        end if;
        perform spanmq_core.delete_batch(this.queue_id, batch.lease_id, batch.lo, batch.hi);
        update spanmq_core.receiver_batch b set state = 'settled' where b.receiver_id = receiver
            and b.batch = batch.batch;
    end loop;
    if found then
        delete from spanmq_core.receiver_batch b where b.receiver_id = receiver and b.batch < settle_batches.settled;
        update spanmq_core.receiver r set settled = settle_batches.settled
            where r.receiver_id = receiver and r.settled < settle_batches.settled;
    end if;
end $$;

-- Leases up to `quantity` visible messages for a batch, and returns their ids as list_batch() does. In a plain queue
-- they stay where they are, unless a claim of others sets them aside: a batch may have millions, and who reads a stream
-- is mostly alone.
create or replace function spanmq_core.claim_batch(
    this spanmq_core.queue, quantity int, lease bigint, until timestamptz, at_ timestamptz, out lo bigint,
    out hi bigint, out n bigint, out los bigint[], out his bigint[], out attempts int[], out bitmaps bit[]
)
language plpgsql as $$
declare
    bound spanmq_core.bound := spanmq_core.bound_of(this.queue_id);
    took spanmq_core.claimed;
begin
    if this.is_plain and spanmq_core.sees_now() then
        took := spanmq_core.claim_in_place(this.queue_id, bound.from_id, bound.due_from, quantity,
                                           this.max_attempts is not null, lease, at_, until);
    end if;
    if took.n > 0 then
        lo := took.first_id;
        hi := took.last_id;
        perform spanmq_core.move_bound(this.queue_id, this.ids);
        if took.attempts = 1 and hi - lo = took.n - 1 then
            n := took.n;
            los := array[lo];
            his := array[hi];
            attempts := '{1}';
            bitmaps := '{null}';
            return;
        end if;
    else
        perform spanmq_core.claim(this, quantity, lease, until, at_, '{}'::jsonb, null::text, null::boolean, null::int,
                                  false);
    end if;
    select b.* into lo, hi, n, los, his, attempts, bitmaps
        from spanmq_core.list_batch(this.queue_id, lease, lo, hi) b;
end $$;

-- Locks the messages of a batch, and returns their ids. lo, hi: the first and the last id that it was given.
create or replace function spanmq_core.lock_batch(this_queue int, lease bigint, lo bigint, hi bigint)
returns bigint[]
language plpgsql as $$
declare
    ids bigint[] := array(
        select s.msg_id from spanmq_core.state s
        where s.queue_id = this_queue and s.msg_id between lo and hi and s.lease_id = lease
        order by s.queue_id, s.msg_id for update);
begin
    -- A new statement: some may have been set aside.
    return ids || array(
        select l.msg_id from spanmq_core.later l
        where l.queue_id is not distinct from this_queue and l.lease_id = lease and l.lease_id <> 0
        order by l.msg_id for update);
end $$;

-- Deletes them.
create or replace function spanmq_core.delete_batch(this_queue int, lease bigint, lo bigint, hi bigint)
returns void
language plpgsql as $$
begin
    delete from spanmq_core.state s where s.queue_id = this_queue and s.msg_id between lo and hi and s.lease_id = lease;
    delete from spanmq_core.later s
        where s.queue_id is not distinct from this_queue and s.lease_id = lease and s.lease_id <> 0;
end $$;

-- Gives messages back that a batch held, those over `after_id`: visible, and the attempt is not counted.
create or replace function spanmq_core.free_batch(
    this_queue int, lease bigint, lo bigint, hi bigint, after_id bigint
) returns void
language plpgsql as $$
declare
    ids bigint[] := spanmq_core.lock_batch(this_queue, lease, lo, hi);
begin
    perform spanmq_core.give_back(this_queue, array(select id from unnest(ids) id where id > after_id), true,
                                  clock_timestamp(), 0::double precision, 1::double precision, 0::double precision,
                                  false);
end $$;

-- What a batch holds: n messages, from lo to hi, and its pieces, ascending, as receiver_ranges() returns them. lo, hi:
-- the ids between which the messages are that were left in state.
create or replace function spanmq_core.list_batch(
    this_queue int, lease bigint, inout lo bigint, inout hi bigint, out n bigint, out los bigint[], out his bigint[],
    out attempts int[], out bitmaps bit[]
)
language plpgsql as $$
begin
    select min(p.lo), max(p.hi), coalesce(sum(p.n), 0), coalesce(array_agg(p.lo order by p.lo), '{}'),
           coalesce(array_agg(p.hi order by p.lo), '{}'), coalesce(array_agg(p.attempts order by p.lo), '{}'),
           coalesce(array_agg(case when p.n < p.hi - p.lo + 1 then p.ids end order by p.lo), '{}')
        into lo, hi, n, los, his, attempts, bitmaps
        from (select min(r.msg_id) as lo, max(r.msg_id) as hi, count(*) as n, r.attempts,
                     bit_or(set_bit(0::bit(1024), (r.msg_id & 1023)::int, 1)) as ids
              from (select s.msg_id, s.attempts from spanmq_core.state s
                    where s.queue_id = this_queue and s.msg_id between list_batch.lo and list_batch.hi
                      and s.lease_id = lease
                    union all
                    select l.msg_id, l.attempts from spanmq_core.later l
                    where l.queue_id is not distinct from this_queue and l.lease_id = lease and l.lease_id <> 0) r
              group by r.attempts, r.msg_id >> 10) p;
end $$;
