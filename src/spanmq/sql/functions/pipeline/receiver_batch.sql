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
create or replace function spanmq_core.check_batch(
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
    runs spanmq_core.run[];
begin
    -- Batches before runs, as a purge does: else each could wait for the other.
    for batch in
        select * from spanmq_core.receiver_batch b
        where b.receiver_id = receiver and b.batch <= settle_batches.settled and b.state = 'claimed' order by b.batch
        for update
    loop
        if this.archive_on_ack then
            runs := spanmq_core.take_batch(this.queue_id, batch.lease_id);
            if runs <> '{}' then
                perform spanmq_core.copy_to_archive(this, runs);
            end if;
        else
            delete from spanmq_core.held h where h.queue_id + 0 = this.queue_id and h.lease_id = batch.lease_id
                and h.lease_id <> 0;
        end if;
        update spanmq_core.receiver_batch b set state = 'settled' where b.receiver_id = receiver
            and b.batch = batch.batch;
    end loop;
    if found then
        delete from spanmq_core.receiver_batch b where b.receiver_id = receiver and b.batch < settle_batches.settled;
        update spanmq_core.receiver r set settled = settle_batches.settled
            where r.receiver_id = receiver and r.settled < settle_batches.settled;
    end if;
end $$;

-- Takes the messages of a batch out of the queue and returns them as runs.
create or replace function spanmq_core.take_batch(this_queue int, lease bigint) returns spanmq_core.run[]
language plpgsql as $$
declare
    runs spanmq_core.run[];
begin
    with gone as (
        delete from spanmq_core.held h where h.queue_id + 0 = this_queue and h.lease_id = lease and h.lease_id <> 0
            returning spanmq_core.run_of(h) as run)
    select coalesce(array_agg(g.run order by (g.run).lo), '{}') into runs from gone g;
    return runs;
end $$;

-- Gives messages back that a batch held, those over `after_id`: visible, and the attempt is not counted.
create or replace function spanmq_core.free_batch(this_queue int, lease bigint, after_id bigint) returns void
language plpgsql as $$
declare
    runs spanmq_core.run[] := spanmq_core.take_batch(this_queue, lease);
    freed int8multirange := int8multirange(int8range(after_id + 1, null));
begin
    perform spanmq_core.give_back(this_queue,
                                  array(select spanmq_core.undelivered(r)
                                        from unnest(spanmq_core.runs_among(runs, freed)) r));
    perform spanmq_core.put_back(this_queue,
                                 spanmq_core.runs_among(runs, int8multirange(int8range(null, after_id, '[]'))));
end $$;

-- The ids that a batch holds, as join_batch() returns them.
create or replace function spanmq_core.list_batch(this_queue int, lease bigint, out los bigint[], out his bigint[],
                                                  out attempts int[], out n bigint)
language plpgsql as $$
begin
    select b.* into los, his, attempts, n from spanmq_core.join_batch(array(
        select spanmq_core.run_of(h) from spanmq_core.held h
        where h.queue_id + 0 = this_queue and h.lease_id = lease and h.lease_id <> 0), 0) b;
end $$;

-- The ids of runs, as ranges without gaps, in ascending order; the arrays have the same length. deliveries is added to
-- the attempts of the runs. A range begins where the run before is not adjacent, and ends where the run behind is not:
-- a claim of single messages has a run of each, so no loop passes them, and nothing groups them. The window has sorted
-- the rows that the aggregates get.
create or replace function spanmq_core.join_batch(runs spanmq_core.run[], deliveries int, out los bigint[],
                                                  out his bigint[], out attempts int[], out n bigint)
language plpgsql immutable as $$
begin
    select coalesce(array_agg(e.lo) filter (where e.is_first), '{}'),
        coalesce(array_agg(e.end_id - 1) filter (where e.is_last), '{}'),
           coalesce(array_agg(e.attempts + deliveries) filter (where e.is_first), '{}'), coalesce(sum(e.n), 0)
        into los, his, attempts, n
        from (select r.lo, r.n, r.lo + r.n as end_id, r.attempts,
                     (lag(r.lo + r.n) over w = r.lo and lag(r.attempts) over w = r.attempts) is not true as is_first,
                     (lead(r.lo) over w = r.lo + r.n and lead(r.attempts) over w = r.attempts) is not true as is_last
              from unnest(runs) r window w as (order by r.lo)) e;
end $$;
