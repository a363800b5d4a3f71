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
create or replace function spanmq_core.size_of_batch(this_queue int, los bigint[], his bigint[], max_bytes bigint,
                                                     out bytes bigint, out last_id bigint)
language plpgsql as $$
begin
    execute format(
        'select coalesce(max(s.total), 0), max(s.msg_id) filter (where s.total <= $3 or s.place = 1) from ('
        ' select t.msg_id, row_number() over w as place,'
        '        sum(octet_length(t.message::text) + coalesce(octet_length(t.headers::text), 0)) over w as total'
        ' from unnest($1, $2) u (lo, hi) join spanmq_core.log_%s t on t.msg_id between u.lo and u.hi'
        ' window w as (order by t.msg_id rows unbounded preceding)) s', this_queue)
        into bytes, last_id using los, his, max_bytes;
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
            ids := spanmq_core.lock_batch(this.queue_id, batch.lease_id, batch.los, batch.his);
            if ids <> '{}' then
                perform spanmq_core.move_to_archive(this, ids, batch.lease_id);
            end if;
        end if;
        perform spanmq_core.delete_batch(this.queue_id, batch.lease_id, batch.los, batch.his);
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
    this spanmq_core.queue, quantity int, lease bigint, until timestamptz, at_ timestamptz, out los bigint[],
    out his bigint[], out attempts int[], out n bigint
)
language plpgsql as $$
declare
    bound spanmq_core.bound := spanmq_core.bound_of(this.queue_id);
    took spanmq_core.claimed;
begin
    los := '{}';
    his := '{}';
    if this.is_plain and spanmq_core.sees_now() then
        took := spanmq_core.claim_in_place(this.queue_id, bound.from_id, bound.due_from, quantity,
                                           this.max_attempts is not null, lease, at_, until);
    end if;
    if took.n > 0 then
        los := array[took.first_id];
        his := array[took.last_id];
        perform spanmq_core.move_bound(this.queue_id, this.ids);
        if took.attempts = 1 and took.last_id - took.first_id = took.n - 1 then
            attempts := '{1}';
            n := took.n;
            return;
        end if;
    else
        perform spanmq_core.claim(this, quantity, lease, until, at_, '{}'::jsonb, null::text, null::boolean, null::int,
                                  false);
    end if;
    select b.* into los, his, attempts, n from spanmq_core.list_batch(this.queue_id, lease, los, his) b;
end $$;

-- Locks the messages of a batch, and returns their ids. los, his: the ids that it was given.
create or replace function spanmq_core.lock_batch(this_queue int, lease bigint, los bigint[], his bigint[])
returns bigint[]
language plpgsql as $$
declare
    ids bigint[] := array(
        select s.msg_id from unnest(los, his) u (lo, hi)
        join spanmq_core.state s on s.queue_id = this_queue and s.msg_id between u.lo and u.hi and s.lease_id = lease
        order by s.queue_id, s.msg_id for update of s);
begin
    -- A new statement: some may have been set aside.
    return ids || array(
        select l.msg_id from spanmq_core.later l
        where l.queue_id is not distinct from this_queue and l.lease_id = lease and l.lease_id <> 0
        order by l.msg_id for update);
end $$;

-- Deletes them.
create or replace function spanmq_core.delete_batch(this_queue int, lease bigint, los bigint[], his bigint[])
returns void
language plpgsql as $$
begin
    delete from spanmq_core.state s using unnest(los, his) u (lo, hi)
        where s.queue_id = this_queue and s.msg_id between u.lo and u.hi and s.lease_id = lease;
    delete from spanmq_core.later s
        where s.queue_id is not distinct from this_queue and s.lease_id = lease and s.lease_id <> 0;
end $$;

-- Gives messages back that a batch held, those over `after_id`: visible, and the attempt is not counted.
create or replace function spanmq_core.free_batch(
    this_queue int, lease bigint, los bigint[], his bigint[], after_id bigint
) returns void
language plpgsql as $$
declare
    ids bigint[] := spanmq_core.lock_batch(this_queue, lease, los, his);
begin
    perform spanmq_core.give_back(this_queue, array(select id from unnest(ids) id where id > after_id), true,
                                  clock_timestamp(), 0::double precision, 1::double precision, 0::double precision,
                                  false);
end $$;

-- The ids that a batch holds, as ranges without gaps and of equal attempts, ascending; the arrays have the same length.
-- los, his: the ids that it was given. A range begins where the message before is not its neighbour, and ends where the
-- one behind is not: the window has sorted the rows that the aggregates get.
create or replace function spanmq_core.list_batch(
    this_queue int, lease bigint, inout los bigint[], inout his bigint[], out attempts int[], out n bigint
)
language plpgsql as $$
begin
    select coalesce(array_agg(e.msg_id) filter (where e.is_first), '{}'),
           coalesce(array_agg(e.msg_id) filter (where e.is_last), '{}'),
           coalesce(array_agg(e.attempts) filter (where e.is_first), '{}'), count(*)
        into los, his, attempts, n
        from (select r.msg_id, r.attempts,
                     (lag(r.msg_id) over w = r.msg_id - 1 and lag(r.attempts) over w = r.attempts) is not true
                         as is_first,
                     (lead(r.msg_id) over w = r.msg_id + 1 and lead(r.attempts) over w = r.attempts) is not true
                         as is_last
              from (select s.msg_id, s.attempts
                    from unnest(list_batch.los, list_batch.his) u (lo, hi)
                    join spanmq_core.state s on s.queue_id = this_queue and s.msg_id between u.lo and u.hi
                     and s.lease_id = lease
                    union all
                    select l.msg_id, l.attempts from spanmq_core.later l
                    where l.queue_id is not distinct from this_queue and l.lease_id = lease and l.lease_id <> 0) r
              window w as (order by r.msg_id)) e;
end $$;
