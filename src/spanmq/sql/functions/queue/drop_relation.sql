-- Dropping a queue's relations although objects of other roles depend on them. A role needs no right on a relation to
-- create a view of it, only USAGE on its schema, which every role has on three of ours. So such an object keeps nothing
-- from being dropped: what it depends on is emptied, closed and set aside under another name, and maintain() drops that
-- when nothing depends on it any more.

-- Drops a table, view or sequence of ours, or sets it aside with a warning that names what depends on it. Waits for
-- locks on the relation itself only, as a drop does. Does nothing for null.
create or replace function spanmq_core.drop_relation(relation regclass) returns void
language plpgsql as $$
declare
    dependents text;
begin
    if relation is not null then
        execute spanmq_core.drop_text(relation);
    end if;
exception when dependent_objects_still_exist then
    get stacked diagnostics dependents = pg_exception_detail;
    raise warning 'objects of other roles depend on %: it is set aside without its rows', relation
        using detail = dependents, hint = 'Drop these objects: maintain() then drops the rest.';
    perform spanmq_core.set_aside(relation);
end $$;

create or replace function spanmq_core.drop_text(relation regclass) returns text
language sql stable as $$
    select format('drop %s %s', case c.relkind when 'v' then 'view' when 'S' then 'sequence' else 'table' end, relation)
    from pg_class c where c.oid = relation
$$;

-- Empties a relation, revokes all rights on it, and renames it to spanmq_core.dropped_<oid>, its indexes likewise.
create or replace function spanmq_core.set_aside(relation regclass) returns void
language plpgsql as $$
declare
    this pg_class := (select c from pg_class c where c.oid = relation);
    aside text := format('dropped_%s', relation::oid);
    statement text;
begin
    if this.relkind = 'v' then
        -- Then it depends on nothing itself.
        execute format('create or replace view %s as select %s where false', relation, (
            select string_agg(format('null::%s as %I', format_type(a.atttypid, a.atttypmod), a.attname), ', '
                              order by a.attnum)
            from pg_attribute a where a.attrelid = relation and a.attnum > 0 and not a.attisdropped));
    elsif this.relkind <> 'S' then
        execute format('lock table %s in access exclusive mode', relation);
    end if;
    -- First the triggers and foreign keys of other roles: they would act with our rights, or keep the rows.
    for statement in
        select format('drop trigger %I on %s', t.tgname, t.tgrelid::regclass)
        from spanmq_core.tree_of(relation) r join pg_trigger t on t.tgrelid = r
        where not t.tgisinternal and t.tgparentid = 0
        union all
        select distinct format('alter table %s drop constraint %I cascade', relation, u.conname)
        from pg_constraint f join pg_constraint u on u.conindid = f.conindid and u.contype in ('p', 'u')
        where f.confrelid = relation and f.contype = 'f' and f.conrelid <> relation and u.conrelid = relation
    loop
        execute statement;
    end loop;
    if this.relkind not in ('v', 'S') then
        execute format('truncate %s', relation);
    end if;
    for statement in
        select distinct format('revoke all on %s from %s cascade', relation,
                               case when a.grantee = 0 then 'public' else a.grantee::regrole::text end)
        from aclexplode(this.relacl) a where a.grantee <> this.relowner
        union all
        select format('alter table %s no inherit %s', i.inhrelid::regclass, i.inhparent::regclass)
        from pg_inherits i where i.inhrelid = relation
        union all
        select format('alter index %s rename to dropped_%s', i.indexrelid::regclass, i.indexrelid)
        from pg_index i where i.indrelid = relation
    loop
        execute statement;
    end loop;
    execute format('alter table %s rename to %I', relation, aside);
    if this.relnamespace <> 'spanmq_core'::regnamespace then
        execute format('alter table %s set schema spanmq_core', relation);
    end if;
end $$;

-- Drops what was set aside and has no dependents any more; ten of them, if there are more, so that the others come to
-- it in a later call.
create or replace function spanmq_core.drop_set_aside() returns void
language plpgsql as $$
declare
    relation regclass;
begin
    for relation in
        select c.oid from pg_class c
        where c.relname between 'dropped_0' and 'dropped_:' and c.relname ~ '^dropped_[0-9]+$'
          and c.relkind in ('r', 'p', 'v', 'S') and c.relnamespace = 'spanmq_core'::regnamespace
        order by random() limit 10
    loop
        begin
            execute spanmq_core.drop_text(relation);
        exception when dependent_objects_still_exist or lock_not_available then
            continue;
        end;
    end loop;
end $$;
