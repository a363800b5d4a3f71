-- Ranges of ids for the tasks of a batch read.

-- Divides the messages of a queue (of_table queue), its archive, its dead_letters or its failures into ranges of ids.
-- A range has about `size` rows or 128 MB. There are at least at_least ranges, if there are that many rows. Together
-- the ranges have every id from the lowest to the highest. An archive is measured by a sample of its blocks. Raises as
-- the functions that read these tables, MQ002 for another one.
create or replace function spanmq_call.read_ranges(queue text, of_table text, size integer, at_least integer default 1)
returns table (first_id bigint, last_id bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue;
    parts_max constant int := 2000;
    blocks_max constant int := 2000;
    share double precision;
    lowest bigint;
    highest bigint;
    counts text;
    -- The size of all rows, or of one; null where the table has rows of other queues.
    bytes numeric;
    row_bytes numeric;
    part_bytes constant numeric := 134217728;
begin
    perform spanmq_core.raise_if(size is null or size < 1, format('size must be at least 1, got: %L', size),
                                 'Pass the number of rows of a range.');
    if of_table = 'archive' then
        this := spanmq_core.find_archive(queue);
        execute format('select min(t.msg_id), max(t.msg_id) from %s t', this.archive) into lowest, highest;
        share := least(1, blocks_max * 8192.0 / greatest(pg_relation_size(this.archive), 1));
        bytes := pg_table_size(this.archive);
        counts := format('select t.msg_id as id, %s::numeric as n from %s t tablesample system (%s) repeatable (1)',
                         1 / share, this.archive, share * 100);
    else
        this := spanmq_core.find_queue(queue);
        if of_table = 'queue' then
            select l.first_id, l.last_id into lowest, highest from spanmq_call.receiver_log(queue) l;
            select sum(pg_table_size(c.oid)) / sum(greatest(least(s.hi, highest) - s.lo + 1, 1)) into row_bytes
                from spanmq_core.segment s join pg_class c on c.relnamespace = 'spanmq_core'::regnamespace
                and c.relname = s.log_name
                where s.queue_id = this.queue_id;
            counts := 'select u.msg_id as id, 1::numeric as n from spanmq_core.unsettled u where u.queue_id = $4';
        elsif of_table = 'dead_letters' then
            select e.first_id, e.last_id into lowest, highest from spanmq_call.dead_letter_extent(queue) e;
            counts := 'select d.dead_letter_id as id, 1::numeric as n from spanmq_core.dead_letter d where'
                      ' d.queue_id = $4';
        elsif of_table = 'failures' then
            select e.first_id, e.last_id into lowest, highest from spanmq_call.failure_extent(queue) e;
            counts := 'select f.lo as id, f.n::numeric as n from spanmq_core.failure f where f.queue_id = $4 union all'
                      ' select d.msg_id, 1 from spanmq_core.dead_letter d where d.queue_id = $4';
        else
            raise exception 'table % of a queue does not exist', coalesce(quote_literal(of_table), 'NULL')
                using errcode = 'MQ002', hint = 'The tables are queue, archive, dead_letters and failures.';
        end if;
    end if;
    -- For each run of ids: the first places of the parts that it contains, and the ids there.
    return query execute format(
        'with run as (select c.id, c.n, sum(c.n) over (order by c.id rows unbounded preceding) - c.n as before'
        ' from (%s) c),'
        ' total as (select sum(r.n) as n, least(greatest(ceil(sum(r.n) / $1), ceil(coalesce($7, $8 * sum(r.n)) / $9),'
        ' $2), ceil(sum(r.n)), $3) as parts from run r),'
        ' cut as (select distinct least(greatest(r.id + trunc(k * t.n / t.parts - r.before)::bigint, $5 + 1), $6) as id'
        '         from total t, run r, generate_series(ceil(r.before * t.parts / t.n), ceil((r.before + r.n) * t.parts'
        ' / t.n) - 1) k where k > 0),'
        ' edge as (select $5 as id where $5 <= $6 union select c.id from cut c where $5 < $6)'
        ' select e.id, coalesce(lead(e.id) over (order by e.id) - 1, $6) from edge e order by e.id', counts)
        using size, greatest(coalesce(at_least, 1), 1), parts_max, this.queue_id, lowest, highest, bytes, row_bytes,
        part_bytes;
end $$;
