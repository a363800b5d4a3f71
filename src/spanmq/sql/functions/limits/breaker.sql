-- Circuit breakers of workers: each is decided in its worker, which reports it while it is open (report_worker).

-- Closes the circuit breakers of all workers of a queue: they receive again with their next report, within about a
-- second. Returns the number of breakers that it closed. One whose report is under way just now stays open: call again.
-- If messages continue to fail, a breaker opens again.
create or replace function spanmq_call.close_breaker(queue text) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    n int;
begin
    -- Waits for no report that is under way, which a role may keep open.
    update spanmq_core.breaker b set is_closed = true
        where b.ctid = any (array(select o.ctid from spanmq_core.breaker o
                                  where o.queue_id = this.queue_id and spanmq_core.is_open(o)
                                  for update skip locked));
    get diagnostics n = row_count;
    return n;
end $$;

-- Five seconds after its pause a row means nothing, so that a worker that was killed leaves none open: until then the
-- worker tries again, and reports.
create or replace function spanmq_core.is_open(this spanmq_core.breaker) returns boolean
language sql stable as $$
    select this.open_until > clock_timestamp() - interval '5 seconds' and not this.is_closed
$$;

-- When the workers of this queue whose circuit breaker is open have all tried again, never before now; null: none is
-- open.
create or replace function spanmq_core.breaker_open_until(this_queue int) returns timestamptz
language sql stable as $$
    select greatest(max(b.open_until), case when count(*) > 0 then clock_timestamp() end)
    from spanmq_core.breaker b where b.queue_id = this_queue and spanmq_core.is_open(b)
$$;

-- The error for which that one opened.
create or replace function spanmq_core.breaker_error(this_queue int) returns text
language sql stable as $$
    select b.error from spanmq_core.breaker b where b.queue_id = this_queue and spanmq_core.is_open(b)
    order by b.open_until desc limit 1
$$;

-- Takes what a worker reports of its breakers: see report_worker(). Returns the queues whose breaker a command has
-- closed meanwhile, in lower case. A mark of a command stays until the worker reports the breaker closed, or open anew.
create or replace function spanmq_core.report_breakers(
    queue_ids int[], worker text, reports jsonb, at_ timestamptz
) returns text[]
language plpgsql as $$
declare
    closed_ids int[];
begin
    delete from spanmq_core.breaker b
        where b.ctid = any (array(
            select o.ctid from spanmq_core.breaker o join spanmq_core.queue q on q.queue_id = o.queue_id
            where o.queue_id = any (report_breakers.queue_ids)
              and (o.worker = report_breakers.worker and reports -> q.folded_name -> 'breaker' is null
                   or o.open_until <= at_ - interval '1 minute')
            for update of o skip locked));
    if not exists (select from jsonb_each(reports) r where r.value ? 'breaker') then
        return '{}';
    end if;
    with reported as (
        insert into spanmq_core.breaker as b (queue_id, worker, open_until, opening, error)
            select q.queue_id, report_breakers.worker, at_ + make_interval(secs => r.open_for), r.opening, r.error
            -- Held, so that none is dropped meanwhile.
            from (select * from spanmq_core.queue h where h.queue_id = any (report_breakers.queue_ids)
                  order by h.queue_id for key share) q
            cross join lateral jsonb_to_record(reports -> q.folded_name -> 'breaker')
                as r (open_for double precision, opening bigint, error text)
            where reports -> q.folded_name -> 'breaker' is not null
              -- As in report_worker(): names are made up as a role likes.
              and ((select count(*) from (select from spanmq_core.breaker o where o.queue_id = q.queue_id
                                          limit 1000) few) < 1000
                   or exists (select from spanmq_core.breaker o
                              where o.queue_id = q.queue_id and o.worker = report_breakers.worker))
            on conflict on constraint breaker_pkey do update set open_until = excluded.open_until,
                opening = excluded.opening, error = excluded.error,
                is_closed = b.is_closed and b.opening = excluded.opening
            returning b.queue_id, b.is_closed)
        select array_agg(r.queue_id) into closed_ids from reported r where r.is_closed;
    return array(select q.folded_name from spanmq_core.queue q where q.queue_id = any (closed_ids) order by 1);
end $$;

-- Whether this is a breaker for report_worker(); null is.
create or replace function spanmq_core.is_breaker(breaker jsonb) returns boolean
language plpgsql immutable as $$
begin
    return breaker is null or exists (
        select from jsonb_to_record(breaker) b (open_for double precision, opening bigint, error text)
        where b.open_for >= 0 and b.open_for <= 86400 and b.opening is not null
        and coalesce(octet_length(b.error), 0) <= 10000);
exception when data_exception then
    return false;
end $$;
