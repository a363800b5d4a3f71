-- twin: unlogged
-- What comes back by itself: a message that is hidden until its delay, its backoff or the lease on it ends.

-- When the first such message after at_ comes back; null: none is hidden. What had come back before, and nobody could take, does not count.
create or replace function spanmq.next_due(this_queue int, at_ timestamptz) returns timestamptz
language plpgsql stable as $$
begin
    return (select s.vt from spanmq.span s where s.queue_id = this_queue and s.state <> 'r' and s.vt > at_ order by s.queue_id, s.vt limit 1);
end $$;
