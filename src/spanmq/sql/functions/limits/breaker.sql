-- Circuit breakers of workers: each is decided in its worker, and reported here for monitoring.

-- Reports that the circuit breaker of a worker is open for that many seconds more, or with null that it is closed.
-- Raises MQ002 for an invalid number of seconds or a name of over 1,000 bytes.
create or replace function spanmq_call.report_breaker(
    queue text, worker text, seconds double precision default null
) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    at_ timestamptz := clock_timestamp();
begin
    perform spanmq_core.raise_if(worker is null or octet_length(worker) not between 1 and 1000,
        format('worker must be a name of 1 to 1000 bytes, got: %s', coalesce(left(worker, 100), 'NULL')),
        'Pass the name that the worker has in its failures.');
    perform spanmq_core.raise_if(seconds is not null and not (seconds > 0 and seconds <= 86400),
        format('seconds must be above 0 and at most 86400, got: %s', seconds),
        'Pass null for a breaker that is closed.');
    delete from spanmq_core.breaker b
        where b.queue_id = this.queue_id
        and (b.open_until <= at_ or seconds is null and b.worker = report_breaker.worker);
    if seconds is not null then
        perform spanmq_core.hold_queue(this);
        insert into spanmq_core.breaker
            values (this.queue_id, report_breaker.worker, at_ + make_interval(secs => seconds))
            on conflict on constraint breaker_pkey do update set open_until = excluded.open_until;
    end if;
end $$;

-- Until when the circuit breaker of a worker of this queue is open, the last of them; null: none is open.
create or replace function spanmq_core.breaker_open_until(this_queue int) returns timestamptz
language sql stable as $$
    select max(b.open_until) from spanmq_core.breaker b where b.queue_id = this_queue
        and b.open_until > clock_timestamp()
$$;
