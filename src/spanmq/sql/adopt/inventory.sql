-- The inventory of a PGMQ installation: its queues, the objects to drop, the objects that belong to it. Runs under the
-- locks of lock.sql, and reads rows of those relations only in which inspect.sql found no obstacle.
do $inventory$
declare
    -- Not an extension without members, as `spanmq schema extension` registers it.
    extension_id oid := (select e.oid from pg_extension e where e.extname = 'pgmq'
                         and exists (select from pg_depend d
                                     where d.classid = 'pg_class'::regclass and d.objid = to_regclass('pgmq.meta')
                                     and d.refclassid = 'pg_extension'::regclass and d.refobjid = e.oid
                                     and d.deptype = 'e'));
    partman regclass := (select r.oid from spanmq_adopt.relation r join pg_class c on c.oid = r.oid
                         where r.place = 'partman' and c.relname = 'part_config');
    -- Null with an obstacle: those of single queues have a name.
    topics regclass := (select r.oid from spanmq_adopt.relation r where r.oid = to_regclass('pgmq.topic_bindings')
                            and not exists (select from spanmq_adopt.obstacle o where o.folded_name is null));
    throttles regclass := (select r.oid from spanmq_adopt.relation r
                           where r.oid = to_regclass('pgmq.notify_insert_throttle')
                               and not exists (select from spanmq_adopt.obstacle o where o.folded_name is null));
    this spanmq_adopt.queue;
    sequence regclass;
begin
    insert into spanmq_adopt.queue (name, folded_name, other_names, is_partitioned, is_unlogged, created_at, source,
                                    archive)
        select (array_agg(m.queue_name order by m.created_at, m.queue_name))[1], m.folded_name,
               (array_agg(m.queue_name order by m.created_at, m.queue_name))[2:],
               -- The actual state of the tables, which may differ from what one of two names in PGMQ's metadata says.
               coalesce((select c.relkind = 'p' from pg_class c where c.oid = m.source), bool_or(m.is_partitioned)),
               coalesce((select c.relpersistence = 'u' from pg_class c where c.oid = m.source), bool_or(m.is_unlogged)),
               min(m.created_at), m.source, m.archive
        from (select m.*, lower(m.queue_name collate "C") as folded_name, source.oid::regclass as source,
              archive.oid::regclass as archive
              from pgmq.meta m
              -- A dry run does not keep new queues from being created: these were not inspected.
              left join spanmq_adopt.relation source
              on source.oid = to_regclass(format('pgmq.%I', lower(('q_' || m.queue_name) collate "C")))
              left join spanmq_adopt.relation archive
              on archive.oid = to_regclass(format('pgmq.%I', lower(('a_' || m.queue_name) collate "C")))) m
        group by m.folded_name, m.source, m.archive;

    for this in select * from spanmq_adopt.queue where source is not null loop
        if exists (select from spanmq_adopt.obstacle o where o.folded_name = this.folded_name) then
            this.notes := this.notes || 'not counted: see the obstacles'::text;
        else
            -- One by one: the counts are taken by SQL put together for each.
            execute format('select count(*), count(*) filter (where vt > clock_timestamp()) from %s', this.source)
                into this.messages, this.hidden;
            if this.archive is not null then
                execute format('select count(*) from %s', this.archive) into this.archived;
            end if;
            sequence := pg_get_serial_sequence(this.source::text, 'msg_id');
            if sequence is not null then
                execute format('select case when is_called then last_value end from %s', sequence) into this.last_id;
            end if;
            execute format('select min(msg_id), greatest($1, max(msg_id)) from %s', this.source) into this.first_id,
                this.last_id using this.last_id;
            if not exists (select from pg_index i join pg_attribute a on a.attrelid = i.indrelid
                           and a.attnum = i.indkey[0]
                           where i.indrelid = this.source and i.indisunique and i.indnkeyatts = 1
                           and a.attname = 'msg_id') then
                execute format('select count(*) - count(distinct msg_id) from %s', this.source) into this.repeated;
            end if;
        end if;
        if exists (select from pg_trigger t where t.tgrelid = this.source
                   and t.tgname = 'trigger_notify_queue_insert_listeners') then
            -- The trigger is what makes a queue notify; a crash of the server may have emptied the table of throttles.
            this.notify_ms := 0;
            if throttles is not null then
                this.notify_ms := 250;
                execute 'select min(t.throttle_interval_ms) from pgmq.notify_insert_throttle t where'
                        ' lower(t.queue_name collate "C") = $1 having count(*) > 0'
                    into this.notify_ms using this.folded_name;
                this.notify_ms := coalesce(this.notify_ms, 250);
            end if;
        end if;
        select pg_get_userbyid(c.relowner) into this.owner from pg_class c where c.oid = this.source;
        this.grantees := array(
            select distinct case when g.grantee = 0 then 'public' else pg_get_userbyid(g.grantee) end
            from pg_class c, aclexplode(c.relacl) g where c.oid = this.source and g.grantee <> c.relowner order by 1);
        if this.other_names <> '{}' then
            this.notes := this.notes || format('one queue with %s, which shares its table',
                                               array_to_string(this.other_names, ', '));
        end if;
        if this.archive is null then
            this.notes := this.notes || 'had no archive table: gets an empty one'::text;
        elsif (select c.relkind = 'p' from pg_class c where c.oid = this.archive) then
            this.notes := this.notes || 'its archive stays as it is partitioned'::text;
        end if;
        this.notes := this.notes || array(
            select format('drops your index %s: use dedup_id in place of a unique one,'
                          ' a queue of its own for what you search', i.indexrelid::regclass)
            from pg_index i join pg_class c on c.oid = i.indexrelid
            where i.indrelid = this.source and not i.indisprimary
                and c.relname not in ('q_' || this.folded_name || '_vt_idx', 'q_' || this.folded_name || '_part_idx',
                                      'q_' || this.folded_name || '_fifo_idx')
            order by 1);
        this.notes := this.notes || array(
            select format('drops the grants on single columns of %s', this.source)
            where exists (select from pg_attribute a where a.attrelid = this.source and a.attacl is not null));
        this.notes := this.notes || array(
            select format('publication %I no longer has its messages', p.pubname) from pg_publication p
            where p.puballtables or exists (select from pg_publication_namespace n where n.pnpubid = p.oid
                                            and n.pnnspid = 'pgmq'::regnamespace)
            order by 1);
        if partman is not null and this.archive is not null then
            execute format('select min(retention) from %s where parent_table = $1', partman)
                into this.retention using format('pgmq.%s', 'a_' || this.folded_name);
        end if;
        update spanmq_adopt.queue q
            set messages = this.messages, hidden = this.hidden, archived = this.archived, first_id = this.first_id,
                last_id = this.last_id, repeated = this.repeated, notify_ms = this.notify_ms,
                owner = this.owner, grantees = this.grantees, notes = this.notes, retention = this.retention
            where q.name = this.name;
    end loop;
    update spanmq_adopt.queue set notes = array['left out: its table is missing'] where source is null;

    if topics is not null then
        insert into spanmq_adopt.topic
            select t.pattern, lower(t.queue_name collate "C"), min(t.bound_at) from pgmq.topic_bindings t group by 1, 2;
        update spanmq_adopt.queue q
            set topics = array(select t.pattern from spanmq_adopt.topic t where t.folded_name = q.folded_name
                               order by t.pattern);
    end if;

    insert into spanmq_adopt.doomed
        select 'pg_class'::regclass, c.oid from pg_class c
        where c.oid in (to_regclass('pgmq.meta'), to_regclass('pgmq.topic_bindings'),
                        to_regclass('pgmq.notify_insert_throttle'))
            or c.oid in (select source from spanmq_adopt.queue)
            or c.oid in (select i.inhrelid from pg_inherits i join pg_class part on part.oid = i.inhrelid
                         and part.relispartition
                         where i.inhparent in (select source from spanmq_adopt.queue))
        union
        select 'pg_proc'::regclass, p.oid from pg_proc p
        join spanmq_adopt.signature s on s.name = p.proname and s.arguments = oidvectortypes(p.proargtypes)
        where p.pronamespace = 'pgmq'::regnamespace
        union
        select 'pg_proc'::regclass, d.objid from pg_depend d
        where d.refclassid = 'pg_extension'::regclass and d.refobjid = extension_id and d.classid = 'pg_proc'::regclass
        and d.deptype = 'e'
        union
        select 'pg_class'::regclass, t.typrelid from pg_type t
        where t.typnamespace = 'pgmq'::regnamespace and t.typtype = 'c'
        and t.typname in ('message_record', 'queue_record', 'metrics_result')
        union
        select 'pg_extension'::regclass, extension_id where extension_id is not null;
    -- With each relation its row type, and the array type of that.
    insert into spanmq_adopt.doomed
        select 'pg_type'::regclass, unnest(array[t.oid, t.typarray]) from spanmq_adopt.doomed d
        join pg_type t on t.typrelid = d.objid where d.classid = 'pg_class'::regclass;

    insert into spanmq_adopt.function_grant
        select p.proname, oidvectortypes(p.proargtypes), p.proacl, p.proowner from pg_proc p
        join spanmq_adopt.doomed d on d.classid = 'pg_proc'::regclass and d.objid = p.oid
        where p.proacl is not null;
    insert into spanmq_adopt.reader
        select c.relname, case when g.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(g.grantee)) end
        from pg_class c, aclexplode(c.relacl) g
        where c.oid in (to_regclass('pgmq.meta'), to_regclass('pgmq.topic_bindings'),
                        to_regclass('pgmq.notify_insert_throttle'))
            and g.privilege_type = 'SELECT' and g.grantee <> c.relowner;
    insert into spanmq_adopt.own_function
        select p.oid, p.prosrc from pg_proc p
        where p.pronamespace = 'pgmq'::regnamespace
            and p.oid not in (select d.objid from spanmq_adopt.doomed d where d.classid = 'pg_proc'::regclass);
end
$inventory$;
