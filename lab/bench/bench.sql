-- What the benchmark needs in each contestant's database. It calls only functions that every contestant has, so
-- the backlogs are made in the same way everywhere. `commit` in the loops keeps transactions as small as a client's.
create schema bench;

create table bench.body (number int primary key, body jsonb not null);

-- `bodies` as a client sends them, `parsed` as a function gets them.
create table bench.batch (size int, number int, bodies text not null, parsed jsonb[], primary key (size, number));
-- Uncompressed: fetching a batch must cost the server as little as it can.
alter table bench.batch alter column bodies set storage external, alter column parsed set storage external;

-- One-row table for the price of a commit on this machine.
create table bench.tick (count int not null);
insert into bench.tick values (0);

-- `quantity` bodies, starting anywhere.
create function bench.bodies(quantity int) returns jsonb[] language sql volatile as $$
    select array_agg(body.body)
    from (select floor(random() * 4096)::int as start offset 0) picked,
        generate_series(picked.start, picked.start + quantity - 1) place
        join bench.body on body.number = place & 4095
$$;

-- Headers that put each of `quantity` messages into a random one of `groups` groups.
create function bench.headers(quantity int, groups int) returns jsonb[] language sql volatile as $$
    select array_agg(jsonb_build_object('x-pgmq-group', 'group-' || floor(random() * groups)::int))
    from generate_series(1, quantity)
$$;

-- Fill a queue with `quantity` messages, `at_once` a call: 1 uses `send`, more `send_batch`.
create procedure bench.fill(queue text, quantity int, at_once int, delay int default 0, groups int default 0)
language plpgsql as $$
declare
    bodies jsonb[];
    headers jsonb[];
    kept int := case when at_once = 1 then 1000 else at_once end;  -- bodies that are made at a time
    calls int := ceil(quantity::numeric / at_once);
    place int;
begin
    perform setseed(0.5);
    for step in 0 .. calls - 1 loop
        place := 1 + step % 1000;
        if at_once > 1 or place = 1 then
            bodies := bench.bodies(kept);
            headers := case when groups > 0 then bench.headers(kept, groups) end;
        end if;
        case
            when at_once = 1 and groups > 0 then perform pgmq.send(queue, bodies[place], headers[place]);
            when at_once = 1 and delay > 0 then perform pgmq.send(queue, bodies[place], delay);
            when at_once = 1 then perform pgmq.send(queue, bodies[place]);
            when groups > 0 then perform pgmq.send_batch(queue, bodies, headers);
            when delay > 0 then perform pgmq.send_batch(queue, bodies, delay);
            else perform pgmq.send_batch(queue, bodies);
        end case;
        if at_once > 1 or place % 100 = 0 then
            commit;
        end if;
    end loop;
end $$;

-- Lease everything in the queue for a day, through `read`.
create procedure bench.lease_all(queue text, at_once int) language plpgsql as $$
declare
    taken int;
begin
    loop
        select count(*) into taken from pgmq.read(queue, 86400, at_once);
        commit;
        exit when taken = 0;
    end loop;
end $$;

-- Settle a random half of the queue, one message a call, in random order.
create procedure bench.settle_half(queue text) language plpgsql as $$
declare
    ids bigint[];
begin
    perform setseed(0.5);
    execute format('select array_agg(msg_id order by random()) from pgmq.%I where random() < 0.5', 'q_' || queue)
        into ids;
    for place in 1 .. coalesce(cardinality(ids), 0) loop
        perform pgmq.delete(queue, ids[place]);
        if place % 100 = 0 then
            commit;
        end if;
    end loop;
end $$;

-- Receive everything in the queue and give it back with a failure, to come again in a day.
create procedure bench.nack_all(queue text, at_once int) language plpgsql as $$
declare
    lease bigint;
    ids bigint[];
begin
    loop
        select min(lease_id), array_agg(msg_id) into lease, ids from spanmq.receive(queue, at_once, 600);
        exit when ids is null;
        perform spanmq.nack(queue, lease, ids, error => 'connection refused', category => 'DEPENDENCY', retry_in => 86400);
        commit;
    end loop;
end $$;

-- Fill a queue with messages whose groups are skewed as Zipf says: the k-th of `groups` has 1/k of the messages of the first.
create procedure bench.fill_skewed(queue text, quantity int, groups int) language plpgsql as $$
declare
    headers jsonb[];
begin
    perform setseed(0.5);
    for step in 1 .. quantity / 100 loop
        -- The inverse of the harmonic sum, which grows as the logarithm.
        select array_agg(jsonb_build_object('x-pgmq-group', 'group-' || floor(exp(random() * ln(groups + 1)))::int))
            into headers from generate_series(1, 100);
        perform pgmq.send_batch(queue, bench.bodies(100), headers);
        commit;
    end loop;
end $$;

create procedure bench.set_policy(queue text, settings jsonb) language plpgsql as $$
begin
    perform spanmq.set_policy(queue, settings);
end $$;
