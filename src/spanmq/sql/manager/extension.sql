-- Registers the extension pgmq without members, so that CREATE EXTENSION IF NOT EXISTS pgmq finds it. From PGMQ's own
-- files, PGMQ is created in a schema of its own for a moment: its objects are dropped again. The extension stays in
-- that schema: a restore on a server with these files refuses to create it there, and makes no PGMQ beside spanmq.
do $extension$
declare
    is_asked boolean := :asked;
    available text := (select coalesce(e.comment, '') from pg_catalog.pg_available_extensions e where e.name = 'pgmq');
    member record;
    drops text[] := '{}';
    each text;
begin
    if exists (select from pg_catalog.pg_extension e where e.extname = 'pgmq') then
        return;
    end if;
    if available is null then
        raise exception 'this server has no extension pgmq'
            using errcode = 'MQ004',
                  hint = 'Write its files on the server: spanmq schema extension --folder "$(pg_config --sharedir)"';
    elsif available ~ 'spanmq' then
        create extension pgmq;
        return;
    end if;
    drop schema if exists spanmq_extension;
    alter schema pgmq rename to spanmq_renamed;
    create schema pgmq;
    create extension pgmq;
    for member in
        select case i.type when 'composite type' then 'type' else i.type end as kind, i.identity, d.classid, d.objid
        from pg_catalog.pg_extension e
        join pg_catalog.pg_depend d on d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass
            and d.refobjid = e.oid and d.deptype = 'e'
        cross join lateral pg_catalog.pg_identify_object(d.classid, d.objid, 0) i
        where e.extname = 'pgmq'
        order by i.type = 'type'
    loop
        -- The row type of a table leaves with it.
        continue when not exists (select from pg_catalog.pg_depend d
                                  where d.classid = member.classid and d.objid = member.objid and d.deptype = 'e');
        execute pg_catalog.format('alter extension pgmq drop %s %s', member.kind, member.identity);
        drops := drops || pg_catalog.format('drop %s if exists %s cascade', member.kind, member.identity);
    end loop;
    -- The array type of a type goes with it.
    foreach each in array drops loop
        if each !~ '\[\] cascade$' then
            execute each;
        end if;
    end loop;
    alter schema pgmq rename to spanmq_extension;
    alter schema spanmq_renamed rename to pgmq;
exception when others then
    if is_asked then
        raise;
    end if;
    raise warning 'the extension pgmq is not registered: %', sqlerrm
        using hint = 'CREATE EXTENSION pgmq will fail. Try again: spanmq schema extension';
end
$extension$;
