-- twin: unlogged
-- Claiming only the messages that contain a document: read(..., conditional).

-- As claim(), for the visible messages with message @> conditional.
create or replace function spanmq.claim_matching(
    this_queue int, quantity int, lease bigint, until timestamptz, at_ timestamptz, conditional jsonb
) returns spanmq.run[]
language plpgsql as $$
declare
    candidate record;
    runs spanmq.run[] := '{}';
    took spanmq.run;
    taken int := 0;
    found_any boolean;
begin
    -- Again, when others took what was found: bounded, for under contention somebody else goes on with the rest.
    for round in 1 .. 10 loop
        exit when taken >= quantity;
        found_any := false;
        for candidate in
            execute format(
                -- 256 more than wanted, in the order of spans: then none of a lower id is missing, for spans lie within blocks of 256.
                'select f.lo, f.lease_id, range_agg(int8range(f.msg_id, f.msg_id, ''[]'')) as ids from ('
                ' select * from (select s.lo, s.lease_id, l.msg_id from ('
                '  (select s.lo, s.lease_id, s.n, s.ids from spanmq.span s where s.queue_id = $1 and s.state = ''r'' order by s.lo)'
                '  union all'
                '  (select s.lo, s.lease_id, s.n, s.ids from spanmq.span s where s.queue_id = $1 and s.state <> ''r'' and s.vt <= $2)'
                '  order by lo) s'
                ' cross join lateral (select l.msg_id from spanmq.log_%s l'
                '  where l.msg_id >= s.lo and l.msg_id < coalesce(upper(s.ids), s.lo + s.n) and (s.ids is null or s.ids @> l.msg_id)'
                '  and l.message @> $3'
                '  and (s.lease_id = 0 or not exists (select from spanmq.settled x'
                '       where x.queue_id = $1 and x.lease_id = s.lease_id and x.msg_id = l.msg_id)) offset 0) l'
                ' order by s.lo limit $4 + 256) f order by f.msg_id limit $4) f group by f.lo, f.lease_id order by f.lo', this_queue)
            using this_queue, at_, conditional, quantity - taken
        loop
            continue when (spanmq.lock_visible(this_queue, candidate.lo, candidate.lease_id, at_)).lo is null;
            took := spanmq.cut_out(this_queue, candidate.lo, candidate.lease_id, candidate.ids);
            if took.n > 0 then
                found_any := true;
                runs := runs || took;
                taken := taken + took.n;
            end if;
        end loop;
        exit when not found_any;
    end loop;
    if taken > 0 then
        perform spanmq.insert_leased(this_queue, lease, until, at_, runs);
    end if;
    return runs;
end $$;
