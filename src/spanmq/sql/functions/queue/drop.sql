-- Dropping queues. The queue's row and all that bears its name (view, archive, sequence) go with the drop, so the name
-- is free at once. The rest bears the queue's id, which is never used again: what no other transaction has locked goes
-- with the drop too, and maintain() removes what is left, with what is committed later by transactions that were open
-- at the drop.
--
-- A drop waits for one lock at a time and holds no other meanwhile. So it is never part of a deadlock, whatever the
-- order in which other transactions take their locks.

-- As pgmq.drop_queue().
create or replace function spanmq_call.drop_queue(queue_name text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue;
    log_id int;
    subscriptions text;
begin
    perform spanmq_core.lock_name('queue', lower(queue_name collate "C"));
    select * into this from spanmq_core.queue q where q.folded_name = lower(queue_name collate "C");
    if not found then
        raise notice 'pgmq queue `%` does not exist', queue_name;
        return false;
    end if;
    this := spanmq_core.find_queue(queue_name);
    select string_agg(q.name, ', ' order by q.name) into subscriptions
        from spanmq_core.subscription s join spanmq_core.queue q on q.queue_id = s.queue_id
        where s.log_id = this.queue_id;
    perform spanmq_core.raise_if(subscriptions is not null,
        format('queue %s has subscriptions: %s', this.name, subscriptions),
        'They would lose their messages: drop them first.', 'MQ060');
    log_id := (select s.log_id from spanmq_core.subscription s where s.queue_id = this.queue_id);
    perform spanmq_core.take_all(spanmq_core.steps_of_drop(this, log_id));
    update spanmq_core.queue q
        set has_subscriptions = exists (select from spanmq_core.subscription s where s.log_id = q.queue_id)
        where q.queue_id = log_id;
    delete from spanmq_core.queue q where q.queue_id = this.queue_id;
    perform spanmq_core.drop_wrappers(this.queue_id);
    insert into spanmq_core.dropped_queue (queue_id, name) values (this.queue_id, this.name);
    -- Otherwise a row that another transaction has changed would be an error.
    if spanmq_core.sees_now() then
        perform spanmq_core.remove_rest(this.queue_id, 100000);
    end if;
    return true;
end $$;

-- The objects of the caller, such as views, that depend on the view or the archive of a queue; null if there are none.
-- Those of other roles keep no queue from being dropped: see drop_relation.sql.
create or replace function spanmq_call.own_dependents(queue_name text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select string_agg(distinct format('%s depends on %s', pg_describe_object('pg_class'::regclass, v.oid, 0), r.name),
                      E'\n')
    from unnest(array['q_', 'a_']) prefix,
         lower((prefix || coalesce(queue_name, '')) collate "C") relation (name)
    cross join lateral format('pgmq.%I', relation.name) r (name)
    join pg_depend d on d.refclassid = 'pg_class'::regclass and d.refobjid = to_regclass(r.name) and d.deptype = 'n'
    join pg_rewrite w on d.classid = 'pg_rewrite'::regclass and w.oid = d.objid
    join pg_class v on v.oid = w.ev_class and v.oid <> d.refobjid
    where v.relowner = quote_ident(current_user)::regrole and v.relnamespace <> all (
        array(select n.oid from pg_namespace n where n.nspname in ('spanmq', 'spanmq_call', 'spanmq_core')))
$$;

-- Drops a queue with its messages, its archive, its failures and its dead letters. False, with a notice, if the queue
-- does not exist. Raises MQ060 for a queue that has subscriptions, and 2BP01 if objects of the caller depend on its
-- view or archive. Objects of other roles that depend on these lose their rows, with a warning. Waits for transactions
-- that have sent into the queue or archived messages of it.
create or replace function pgmq.drop_queue(queue_name text) returns boolean
language plpgsql as $$
declare
    dependents text := spanmq_call.own_dependents(queue_name);
    result boolean;
begin
    if dependents is not null then
        raise exception 'cannot drop table pgmq.% because other objects depend on it',
            pgmq.format_table_name(queue_name, 'q')
            using errcode = '2BP01', detail = dependents, hint = 'Drop these objects first.';
    end if;
    -- An entry like the others (rights.sql), but without an error where the queue does not exist.
    if not spanmq_call.sees(queue_name) then
        perform pgmq.format_table_name(queue_name, 'q');
        raise notice 'pgmq queue `%` does not exist', queue_name;
        return false;
    elsif pg_catalog.has_function_privilege('spanmq_call.drop_queue(text,uuid)'::pg_catalog.regprocedure,
                                           'execute') then
        select * into result from spanmq_call.drop_queue(queue_name, spanmq_call.prove_caller());
    else
        execute spanmq_call.wrapper_call(queue_name, 'drop_queue', 'manage', 1) into result
            using spanmq_call.prove_caller();
    end if;
    return result;
end $$;

-- In PGMQ's old form: warns, and is always true.
create or replace function pgmq.drop_queue(queue_name text, partitioned boolean) returns boolean
language plpgsql as $$
begin
    raise warning '% is deprecated and will be removed in PGMQ v2.0. Use drop_queue(queue_name) instead',
        'drop_queue(queue_name, partitioned)';
    perform pgmq.drop_queue(queue_name);
    return true;
end $$;

-- The statements of a drop that may have to wait. Those that lock rows come first: they are the cheapest to repeat.
create or replace function spanmq_core.steps_of_drop(this spanmq_core.queue, log_id int) returns text[]
language plpgsql stable as $$
begin
    return array_remove(array[
        format('select from spanmq_core.queue where queue_id = %s for update', this.queue_id),
        'select from spanmq_core.queue where queue_id = ' || log_id || ' for no key update',
        format('delete from spanmq_core.subscription where queue_id = %s', this.queue_id),
        format('delete from spanmq_core.topic_binding where queue_name = %L', this.name),
        -- A schedule has a name of its own, which is free with the drop.
        format('delete from spanmq_core.schedule where queue_id = %s', this.queue_id),
        format('select spanmq_core.drop_relation(to_regclass(%L))', this.queue_view),
        -- Senders that wait for the sequence continue, and find no log. Dropped, it would be an internal error for
        -- them.
        case when not this.is_subscription then
            format('alter sequence %s rename to ids_%s', this.ids, this.queue_id) end,
        case when not this.is_subscription then
            format('alter sequence pgmq.ids_%s set schema spanmq_core', this.queue_id) end,
        case when not this.is_subscription then
            format('select spanmq_core.close_relation(''spanmq_core.ids_%s''::regclass, ''{}'')', this.queue_id) end,
        format('select spanmq_core.drop_relation(to_regclass(%L))', spanmq_core.archive_of(this))], null);
end $$;

-- Executes statements that lock what other transactions may have locked. Where one has to wait for longer than a
-- moment, everything is undone; that statement is executed first, with the caller's lock_timeout, and then the others.
create or replace function spanmq_core.take_all(statements text[]) returns void
language plpgsql as $$
declare
    kept text := current_setting('lock_timeout');
    -- A session that waits for one of these locks looks for a deadlock after deadlock_timeout: we release ours before.
    moment text := ceil(500 * extract(epoch from current_setting('deadlock_timeout')::interval)
                        / cardinality(statements)) || 'ms';
    first_statement text;
    current_statement text;
begin
    loop
        begin
            current_statement := null;
            if first_statement is not null then
                execute first_statement;
            end if;
            perform set_config('lock_timeout', moment, true);
            foreach current_statement in array statements loop
                if current_statement is distinct from first_statement then
                    execute current_statement;
                end if;
            end loop;
            perform set_config('lock_timeout', kept, true);
            return;
        exception when lock_not_available then
            if current_statement is null then
                raise;
            end if;
            first_statement := current_statement;
        end;
    end loop;
end $$;

-- The tables that have rows of a queue, of those that there are when this is applied. What others refer to comes last,
-- and the segments, by which tables are found.
do $do$
begin
    execute format(
        'create or replace function spanmq_core.tables_of_queue(this_queue int) returns text[] language plpgsql as $$'
        ' begin return array_remove(array[%s], null); end $$', (
            select string_agg(format('case when exists (select from spanmq_core.%1$I where queue_id = this_queue)'
                                     ' then %1$L end', c.relname), ', '
                              order by c.relname = 'segment',
                              exists (select from pg_constraint f where f.confrelid = c.oid), c.relname)
            from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'queue_id'
            where c.relnamespace = 'spanmq_core'::regnamespace and c.relkind = 'r'
              and c.relname not in ('queue', 'dropped_queue')));
end $do$;

-- Removes what a dropped queue has left: its log, and up to `most` rows of each table. Leaves what other transactions
-- have locked, and never waits. Its sequences stay, because a session that knows them may still draw from them. Returns
-- whether nothing is left, and whether something was removed.
create or replace function spanmq_core.remove_rest(
    this_queue int, most int, out is_clean boolean, out has_removed boolean
) language plpgsql as $$
declare
    kept text := current_setting('lock_timeout');
    was_seen boolean := exists (
        select from spanmq_core.dropped_queue d where d.queue_id = this_queue and d.seen_at_xid is not null);
    -- As other calls do, this waits while autovacuum truncates a table that all queues share.
    tables text[] := spanmq_core.tables_of_queue(this_queue);
    relations regclass[];
    relation regclass;
    table_name text;
    n bigint;
begin
    is_clean := true;
    has_removed := false;
    -- A lane may show the log of another queue by the time that its number does: its row names the log that it shows.
    relations := array(
        select to_regclass(r.name)
        from (select 1 as place, format('spanmq.log_%s', this_queue) as name
              union all
              select 2, format('spanmq_core.guard_%s', this_queue)
              union all
              select 2, format('spanmq_core.lane_%s', l.lane)
              from spanmq_core.lane l
              join spanmq_core.segment s on s.queue_id = this_queue and l.log_name in (s.log_name, s.old_name)
              union all
              select 3, format('spanmq_core.%I', name)
              from spanmq_core.segment s, unnest(array_remove(array[s.log_name, s.copy_name, s.old_name], null)) name
              where s.queue_id = this_queue
              union all
              select 4, format('spanmq_core.log_%s', this_queue)) r
        where to_regclass(r.name) is not null order by r.place);
    -- Only relations, and rows that refer to a deleted one, are waited for.
    perform set_config('lock_timeout', '1ms', true);
    foreach relation in array relations loop
        begin
            -- The log itself comes last, when nothing is a part of it any more.
            if is_clean or relation <> to_regclass(format('spanmq_core.log_%s', this_queue)) then
                perform spanmq_core.drop_relation(relation);
                has_removed := true;
            end if;
        exception when lock_not_available then
            is_clean := false;
        end;
    end loop;
    foreach table_name in array tables loop
        continue when table_name = 'segment' and not is_clean;
        -- Calls under way can't do without the bound of their queue.
        continue when table_name = 'bound' and not was_seen;
        begin
            execute format('delete from spanmq_core.%1$I where ctid = any (array(select ctid from spanmq_core.%1$I'
                           ' where queue_id = $1 limit $2 for update skip locked))', table_name)
                using this_queue, most;
            get diagnostics n = row_count;
            has_removed := has_removed or n > 0;
        exception when lock_not_available then
            null;
        end;
    end loop;
    perform set_config('lock_timeout', kept, true);
    is_clean := is_clean and spanmq_core.tables_of_queue(this_queue)
                             <@ case when was_seen then '{}'::text[] else '{bound}' end;
end $$;

-- The part of maintain() for dropped queues, a row for each act. A queue is done when a call finds nothing left that
-- began after all had ended that was open at the drop: only such transactions, prepared ones included, can still write
-- rows for it.
create or replace function spanmq_core.remove_dropped(budget int) returns table (action text, queue text, detail text)
language plpgsql as $$
declare
    this spanmq_core.dropped_queue;
    horizon xid8;
    rest record;
begin
    if not exists (select from spanmq_core.dropped_queue) then
        return;
    end if;
    -- Numbers from the future come from another server, by dump and restore.
    return query
        with noted as (
            update spanmq_core.dropped_queue d set seen_at_xid = pg_current_xact_id()
                where d.seen_at_xid is null or d.seen_at_xid > pg_current_xact_id()
                returning d.name)
        select 'noted dropped queue', n.name, null::text from noted n;
    horizon := spanmq_core.horizon();
    -- By chance: one that another transaction has locked must not keep the others.
    for this in
        select * from spanmq_core.dropped_queue d where d.seen_at_xid < horizon order by random() limit budget
    loop
        begin
            rest := spanmq_core.remove_rest(this.queue_id, 10000);
            continue when not rest.is_clean and not rest.has_removed;
            action := 'emptied dropped queue';
            if rest.is_clean then
                perform spanmq_core.drop_sequences(this.queue_id, '{ids,room,rate,notified}');
                delete from spanmq_core.dropped_queue d where d.queue_id = this.queue_id;
                action := 'removed dropped queue';
            end if;
            queue := this.name;
            return next;
        exception
            when lock_not_available then
                continue;
            when others then
                raise warning 'maintain() can''t remove what queue "%" left: %', this.name, sqlerrm;
                continue;
        end;
    end loop;
end $$;

-- Drops the sequences of these kinds that a queue has, in this order.
create or replace function spanmq_core.drop_sequences(this_queue int, kinds text[]) returns void
language plpgsql as $$
declare
    each regclass;
begin
    foreach each in array array(
        select c.oid from unnest(kinds) with ordinality u (k, n)
        join pg_class c on c.relname = format('%s_%s', k, this_queue) and c.relnamespace = 'spanmq_core'::regnamespace
        order by n)
    loop
        perform spanmq_core.drop_relation(each);
    end loop;
end $$;
