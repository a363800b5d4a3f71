-- The memory of programs that announce what needs attention, such as spanmq notify. What it contains is theirs.

-- Takes the notices of a target for that many seconds. Returns the notices that were announced to it ('[]' for a new
-- target), and a time, which end_notices() needs as its token. No row: another process has the notices. There can be
-- 1,000 targets. A target that is not used for 30 days is forgotten. Raises MQ002 for a target of over 200 bytes,
-- seconds out of range, and too many targets.
create or replace function spanmq.begin_notices(target text, seconds double precision default 60)
returns table (held_until timestamptz, announced jsonb)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    at_ timestamptz := clock_timestamp();
begin
    perform spanmq_core.raise_if(begin_notices.target is null or octet_length(begin_notices.target) not between 1
                                 and 200,
        format('target must have 1 to 200 bytes, got: %s', coalesce(left(begin_notices.target, 100), 'NULL')),
        'Pass a name, such as a hash of the address that is notified.');
    perform spanmq_core.raise_if(seconds is null or not (seconds > 0 and seconds <= 3600),
        format('seconds must be above 0 and at most 3600, got: %s', seconds),
        'Pass how long a notification may take.');
    delete from spanmq_core.notice n where n.used_at < at_ - interval '30 days';
    perform spanmq_core.raise_if((select count(*) from spanmq_core.notice n where n.target <> begin_notices.target)
                                 >= 1000,
        'there are 1000 targets of notices already', 'One that is not used for 30 days is forgotten.');
    return query
        insert into spanmq_core.notice as n (target, held_until, used_at)
            values (begin_notices.target, at_ + make_interval(secs => seconds), at_)
            on conflict on constraint notice_pkey do update set held_until = excluded.held_until, used_at = at_
                where n.held_until <= at_
            returning n.held_until, n.announced;
end $$;

-- Records what was announced to a target, and releases its notices, so that other processes may begin. held_until is
-- the time that begin_notices() returned. False, and no change, if another process has taken the notices since. Raises
-- MQ002 for more than a megabyte.
create or replace function spanmq.end_notices(target text, held_until timestamptz, announced jsonb) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform spanmq_core.raise_if(announced is null or octet_length(announced::text) > 1000000,
        'announced cannot be NULL or longer than a megabyte', 'Announce less at a time.');
    update spanmq_core.notice n set announced = end_notices.announced, held_until = '-infinity'
        where n.target = end_notices.target and n.held_until = end_notices.held_until;
    return found;
end $$;
