-- Names of queues are folded by A to Z only, in every database: the rules of a collation differ (in Turkish the lower
-- case of I is a letter of its own), and programs that fold names know no collation.
do $$
declare
    same text;
    this record;
    relation record;
begin
    select string_agg(q.names, '; ') into same
        from (select string_agg(format('%L', q.name), ', ' order by q.queue_id) as names from spanmq_core.queue q
              group by lower(q.name collate "C") having count(*) > 1) q;
    if same is not null then
        raise exception 'these queues would have one name: %', same using errcode = 'MQ003',
            detail = 'Names that differ only in the case of the letters A to Z are one name, whatever the collation'
                     ' of the database.',
            hint = 'Drop all but one of them, with the release that is installed. Then upgrade.';
    end if;
    -- Relations have the folded name in theirs.
    for this in
        select q.folded_name as former, lower(q.name collate "C") as folded_name, q.queue_view, q.archive, q.ids
            from spanmq_core.queue q where q.folded_name collate "C" <> lower(q.name collate "C") loop
        for relation in
            select c.oid::regclass as name, c.relname, c.relkind from pg_class c
                where c.relnamespace = 'pgmq'::regnamespace
                and (c.oid in (this.queue_view, this.archive, this.ids)
                     or exists (select from pg_index i where i.indexrelid = c.oid and i.indrelid = this.archive))
                and starts_with(substr(c.relname, 3), this.former) loop
            execute format('alter %s %s rename to %I',
                           case relation.relkind when 'v' then 'view' when 'S' then 'sequence' when 'i' then 'index'
                                else 'table' end,
                           relation.name,
                           left(relation.relname, 2) || this.folded_name
                               || substr(relation.relname, 3 + length(this.former)));
        end loop;
        update spanmq_core.shard_map m set name = this.folded_name where m.name = this.former;
    end loop;
end $$;

alter table spanmq_core.queue drop column folded_name;
-- Every lookup of a queue compares with lower(name collate "C"), which needs an index of that collation.
alter table spanmq_core.queue add column folded_name text collate "C" not null
    generated always as (lower(name collate "C")) stored unique;
alter table spanmq_core.shard_map alter column name type text collate "C";
drop index spanmq_core.change_queue;
create index change_queue on spanmq_core.change (lower(queue_name collate "C"), change_id);
