-- Is this server fit for its job? doctor() looks at it and says what to do.

-- A row for each finding: check_name, level (ok, warning or problem), the finding, and an action (null when ok).
-- client_at: the clock of the caller, to be compared with the server's. connections: the number of connections that all
-- pools may open together. Changes nothing. Raises MQ002 for connections under 1.
create or replace function spanmq.doctor(client_at timestamptz default null, connections integer default null)
returns table (check_name text, level text, finding text, advice text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform spanmq_core.raise_if(connections < 1,
        format('connections must be at least 1, got: %L', connections),
        'Pass the number of connections of all pools, or null.');
    return query
        select c.check_name, c.level, c.finding, case when c.level <> 'ok' then c.advice end
        from (select * from spanmq_core.check_server(client_at, connections) union all select *
              from spanmq_core.check_vacuum()
              union all select * from spanmq_core.check_horizon() union all select * from spanmq_core.check_queues()
              union all select * from spanmq_core.check_pgmq_programs()) c;
end $$;

-- A number with what is counted: `1 message`, `2 messages`.
create or replace function spanmq_core.counted(n bigint, noun text) returns text
language sql immutable as $$ select format('%s %s%s', n, noun, case when n <> 1 then 's' end) $$;

-- These give their advice in any case.
create or replace function spanmq_core.check_server(client_at timestamptz, connections int)
returns table (check_name text, level text, finding text, advice text)
language plpgsql as $$
declare
    most int := current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int;
    open_now int := (select count(*) from pg_stat_activity a where a.backend_type = 'client backend');
    timeout interval := current_setting('deadlock_timeout')::interval;
    apart double precision := abs(extract(epoch from clock_timestamp() - client_at));
    settings text := (select string_agg(format('%s = off', name), ', ')
                      from unnest(array['fsync', 'full_page_writes', 'synchronous_commit']) name
                      where current_setting(name) = 'off');
    notified double precision := pg_notification_queue_usage();
    -- spanmq's own connections set theirs, which hides that of the server.
    isolated text := (
        select string_agg(concat_ws(' ', i.whose, 'has', i.level), ', ' order by i.whose, i.level) from (
            select concat_ws(' in ', 'role ' || quote_ident(r.rolname), 'database ' || quote_ident(b.datname)) as whose,
                   split_part(c.config, '=', 2) as level
            from pg_db_role_setting s cross join lateral unnest(s.setconfig) c (config)
            left join pg_roles r on r.oid = s.setrole left join pg_database b on b.oid = s.setdatabase
            where s.setdatabase in (0, (select d.oid from pg_database d where d.datname = current_database()))
            and starts_with(c.config, 'default_transaction_isolation=')
            union
            select 'the server', s.setting from pg_settings s
            where s.name = 'default_transaction_isolation' and s.source in ('configuration file', 'command line')) i
        where i.level not in ('read committed', 'read uncommitted'));
    -- Before PostgreSQL 18 each pin adds 1e10 to the cost of a plan, so that with jit every call of such a function is
    -- compiled.
    compiled bigint := (
        select count(*) from pg_proc p
        where p.pronamespace in ('spanmq_call'::regnamespace, 'spanmq_core'::regnamespace)
        and p.proconfig::text ~ 'enable_[a-z_]+=off'
          and not 'jit=off' = any (p.proconfig) and current_setting('jit') = 'on');
    leaks text := (
        select string_agg(p.oid::regprocedure::text, ', ') from pg_proc p
        where p.pronamespace = 'spanmq_core'::regnamespace
        and p.proname not in ('last_notified_at', 'refuse_replica_role', 'unless_replica_role')
        and has_function_privilege('public', p.oid, 'execute'));
    strangers text := (select string_agg(concat_ws(' ', s.kind, s.name, s.detail), '; ' order by s.kind, s.name,
                                         s.detail)
                       from spanmq_core.strangers() s);
    -- They keep nothing (see drop_relation.sql), and may be of use: named, and no trouble.
    dependents text := (
        select string_agg(distinct format('%s of %s', v.oid::regclass, pg_get_userbyid(v.relowner)), ', ')
        from pg_depend d join pg_rewrite r on r.oid = d.objid join pg_class v on v.oid = r.ev_class
        join pg_class c on c.oid = d.refobjid
        where d.classid = 'pg_rewrite'::regclass and d.refclassid = 'pg_class'::regclass
          and c.relnamespace = any ('{pgmq,spanmq,spanmq_call,spanmq_core}'::regnamespace[])
          and not pg_has_role(v.relowner, c.relowner, 'usage'));
    troubles text := nullif(concat_ws('; ', 'every role may call ' || left(leaks, 200), left(strangers, 500)), '');
begin
    return query values
        ('version', case when current_setting('server_version_num')::int < 150000 then 'problem' else 'ok' end,
         format('PostgreSQL %s, spanmq %s', current_setting('server_version'), spanmq.version()),
         'PostgreSQL 15 or newer is needed'),
        ('connections', case when connections > most or open_now > most * 0.95 then 'problem'
         when open_now > most * 0.8 then 'warning' else 'ok' end,
         format('%s of %s are open', open_now, most) || coalesce('; the pools may open ' || connections, ''),
         'make the pools smaller, put a pooler in front, or raise max_connections'),
        ('deadlock_timeout', case when timeout < interval '100 ms' or timeout > interval '10 s' then 'warning'
         else 'ok' end,
         current_setting('deadlock_timeout'),
         'set it between 100 ms and 10 s: less makes every short wait check for deadlocks, more makes a deadlock last'),
        ('isolation level', case when isolated is not null then 'warning' else 'ok' end,
         coalesce('default_transaction_isolation is another: ' || left(isolated, 500),
                  'transactions are READ COMMITTED by default'),
         'set it to read committed: through a connection of a program, a pooler or psql, maintain() and receives from'
         ' ordered and limited queues fail'),
        ('durability', case when settings ~ 'fsync|full_page' then 'problem' when settings is not null then 'warning'
         else 'ok' end,
         coalesce(settings, 'committed transactions survive a crash'),
         case when settings ~ 'fsync|full_page' then 'set it on: a crash of the machine may destroy everything'
              else 'a crash loses the last sends and settlements; set it on unless that is acceptable' end),
        ('jit', case when compiled > 0 then 'warning' else 'ok' end,
         case when compiled > 0 then spanmq_core.counted(compiled, 'function') || ' may be compiled at each call'
         else 'no function is compiled at each call' end,
         'spanmq schema upgrade; or set jit off, for the database or the server: compiling takes up to a'
         ' second a call'),
        ('clock', case when apart > 60 then 'problem' when apart > 5 then 'warning' else 'ok' end,
         case when apart is null then 'not compared'
         else format('the client''s clock differs by %s s', round(apart::numeric, 1)) end,
         'run NTP on both machines: leases and delays go by the server''s clock'),
        ('views', 'ok', coalesce('other roles have views of ours: ' || left(dependents, 500),
                                 'no other role has a view of ours'), null),
        ('notifications', case when notified >= 0.5 then 'problem' when notified >= 0.1 then 'warning' else 'ok' end,
         format('the queue of notifications is %s %% full', round(100 * notified)),
         'end the listening session with the oldest transaction (pg_stat_activity.xact_start); '
         'from 50 % on, sends do not notify, and receivers wait for their next poll'),
        ('rights', case when troubles is null then 'ok' else 'problem' end,
         coalesce(troubles, 'no role but the owner has rights beside the verbs'),
         case
         when leaks is null then 'revoke the privileges, drop the objects, alter the owners, or revoke the verbs and'
                                 ' grant them again'
              else 'revoke all on all functions in schema spanmq_core from public; or spanmq schema upgrade' end);
end $$;

-- The rights that were not granted as verbs: kind, name, problem and detail, as spanmq schema verify shows them; and
-- the privileges on functions of roles without a verb that has them, and owners that lack theirs.
create or replace function spanmq_core.strangers() returns table (kind text, name text, problem text, detail text)
language plpgsql stable set jit = off as $$
begin
    return query select * from (:strangers) stranger;
    -- A function may belong to two verbs.
    return query
        with granted as (
            select f.verb, f.function::regprocedure, a.grantee, p.proowner
            from (select v, string_to_table(spanmq_core.functions_of(v), ', ') from unnest(spanmq_core.all_verbs()) v
                  union all
                  select null, r.written::text from spanmq_core.recorded() r) f (verb, function)
            join pg_proc p on p.oid = f.function::regprocedure
            cross join lateral aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a)
        select 'function', g.function::text, 'privilege', format('%s has EXECUTE without a verb: revoke it', r.role)
        from granted g
        cross join lateral (
            select case when g.grantee = 0 then 'public' else pg_get_userbyid(g.grantee)::text end as role) r
        where g.grantee <> g.proowner
        group by g.function, r.role
        having not bool_or(r.role in (select spanmq_core.grantees_of(g.verb, null)));
    return query
        select 'table', c.oid::regclass::text, 'owner', format('its owner %s lacks SELECT', pg_get_userbyid(c.relowner))
        from spanmq_core.queue q join pg_class c on c.oid in (q.queue_view, q.archive, q.ids)
        where not has_table_privilege(c.relowner, c.oid, 'select')
        union all
        select 'function', p.oid::regprocedure::text, 'owner',
            format('its owner %s lacks EXECUTE', pg_get_userbyid(p.proowner))
        from pg_proc p
        where p.pronamespace = any ('{pgmq,spanmq,spanmq_call,spanmq_core}'::regnamespace[])
            and not has_function_privilege(p.proowner, p.oid, 'execute');
end $$;

create or replace function spanmq_core.check_vacuum() returns table (check_name text, level text, finding text,
                                                                     advice text)
language plpgsql as $$
declare
    busiest record;
begin
    select t.relname, t.n_dead_tup, t.n_live_tup into busiest from pg_stat_user_tables t
        where t.schemaname = 'spanmq_core' and t.relname !~ '^log_' order by t.n_dead_tup desc limit 1;
    return query
        select 'autovacuum', w.level, w.finding, w.advice from (values
            (current_setting('autovacuum') = 'off' or current_setting('track_counts') = 'off', 'problem',
             'autovacuum does not run',
             'set autovacuum and track_counts on: dead rows slow every call down'),
            (exists (select from pg_class c
                     where c.oid in ('spanmq_core.state'::regclass, 'spanmq_core.later'::regclass)
                     and 'autovacuum_enabled=false' = any (c.reloptions)), 'problem',
                     'autovacuum is off for the tables with the state of messages',
             'alter table spanmq_core.state reset (autovacuum_enabled); the same for spanmq_core.later'),
            (busiest.n_dead_tup > 200000 and busiest.n_dead_tup > 5 * busiest.n_live_tup, 'warning',
             format('spanmq_core.%s has %s dead rows beside %s live ones', busiest.relname, busiest.n_dead_tup,
                    busiest.n_live_tup),
             'see "snapshots"; if nothing is held there, raise autovacuum_max_workers or vacuum the table'),
            (true, 'ok', format('at most %s dead rows in a table', coalesce(busiest.n_dead_tup, 0)), null)) w (applies,
                level, finding, advice)
        where w.applies limit 1;
end $$;

-- Checks for objects that retain old rows and segments: snapshots, prepared transactions, replication slots.
create or replace function spanmq_core.check_horizon() returns table (check_name text, level text, finding text,
                                                                      advice text)
language plpgsql as $$
declare
    held record;
begin
    check_name := 'snapshots';
    select a.pid, a.application_name, a.state, clock_timestamp() - a.xact_start as age into held from pg_stat_activity a
        where a.pid <> pg_backend_pid() and a.backend_type = 'client backend' and a.xact_start is not null
          and (a.backend_xmin is not null or a.backend_xid is not null)
        order by a.xact_start limit 1;
    level := case when held.age > interval '1 hour' then 'problem' when held.age > interval '5 minutes' then 'warning'
        else 'ok' end;
    finding := case when held.pid is null then 'no old snapshot'
                    else format('the oldest is held for %s, by process %s%s, %s', date_trunc('second', held.age),
                                held.pid,
                                case when held.application_name <> '' then format(' (%s)', held.application_name) end,
                                held.state) end;
    advice
        := format('select pg_terminate_backend(%s), if the session is not needed; set'
                  ' idle_in_transaction_session_timeout. '
                     'Segments can''t be truncated meanwhile, and dead rows stay', held.pid);
    return next;

    check_name := 'prepared transactions';
    select p.gid, clock_timestamp() - p.prepared as age into held from pg_prepared_xacts p order by p.prepared limit 1;
    level := case when held.age > interval '1 hour' then 'problem' when held.age > interval '5 minutes' then 'warning'
        else 'ok' end;
    finding := case when held.gid is null then 'none'
        else format('%s has waited for %s', held.gid, date_trunc('second', held.age)) end;
    advice := format('commit prepared %L, or rollback prepared %L', held.gid, held.gid);
    return next;

    check_name := 'slots';
    select r.slot_name, r.active, coalesce(age(r.xmin), 0) as xids,
           pg_wal_lsn_diff(case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end,
                           r.restart_lsn) as bytes
        into held from pg_replication_slots r order by 4 desc nulls last, 3 desc limit 1;
    level := case when held.slot_name is null or held.active and held.bytes < 1e10 then 'ok'
                  when held.bytes > 1e10 or held.xids > 10000000 then 'problem'
                  when held.bytes > 1e8 or held.xids > 100000 then 'warning' else 'ok' end;
    finding := case when held.slot_name is null then 'none'
                    else format('%s is %s behind%s', held.slot_name, coalesce(pg_size_pretty(held.bytes), 'nothing'),
                                case when not held.active then ', and it has no reader' end) end;
    advice := format('start its reader, or select pg_drop_replication_slot(%L)', held.slot_name);
    return next;
end $$;

-- The queues: whether maintain() runs and gets on, whether receivers come back for what they leased.
create or replace function spanmq_core.check_queues() returns table (check_name text, level text, finding text,
                                                                     advice text)
language plpgsql :pinned as $$
declare
    at_ timestamptz := clock_timestamp();
    last_at timestamptz := (select max(s.sampled_at) from spanmq_core.sample s);
    is_late boolean := (select min(q.created_at) from spanmq_core.queue q) < at_ - interval '5 minutes'
                       and coalesce(last_at, '-infinity') < at_ - interval '5 minutes';
    -- Null if empty.
    stuck text[];
    abandoned text[];
    lagging text[];
    silent text[];
    idle text[];
    stopped text[];
    tripped text[];
    paused text[];
    dead text[];
    -- Rows that no claim finds: see bound.sql.
    unseen text := (select string_agg(format('%s (%s, the first is %s)', q.name, spanmq_core.counted(h.n, 'message'),
                                             h.lo), '; ' order by q.name)
                    from spanmq_core.queue q
                    cross join lateral (
                        select count(*) as n, min(h.msg_id) as lo from spanmq_core.later h
                        where h.queue_id + 0 = q.queue_id and h.vt < (spanmq_core.bound_of(q.queue_id)).due_from) h
                    where h.n > 0);
    -- Unlogged queues lose rows of the log in a crash.
    missing_ids bigint := (
        select count(*) from (
            select from spanmq_core.missing m
            where exists (select from spanmq_core.queue q where q.queue_id = m.queue_id and not q.is_unlogged)
            limit 1000) m);
    troubles text := (select string_agg(format('%s: %s', q.name, u.trouble), '; ' order by q.name)
                      from spanmq_core.upkeep u join spanmq_core.queue q on q.queue_id = u.queue_id
                      where u.trouble is not null);
    -- Calls of functions change no row of a view, so that its triggers are not called.
    triggers text := (select string_agg(format('%s on %s', t.tgname, q.queue_view), ', ' order by q.name, t.tgname)
                      from spanmq_core.queue q join pg_trigger t on t.tgrelid = q.queue_view and not t.tgisinternal
                      where t.tgname not in ('spanmq_before', 'spanmq_change', 'spanmq_end'));
    -- Roles of programs that were written for PGMQ.
    unfollowed text := (select string_agg(distinct format('%s (%s on %s)', p.role, p.verb, q.name), ', ')
                        from spanmq_core.verbs_by_privileges(null) p join spanmq_core.queue q on q.queue_id = p.queue_id
                        where not spanmq_core.is_following()
                        and p.role not in (select spanmq_core.grantees_of(p.verb, p.queue_id)));
    -- Among the oldest 100, which maintain() looks at each time.
    unsent text := (select string_agg(format('%s of queue %s', b.batch_id, q.name), ', ' order by b.batch_id)
                    from (select * from spanmq_core.batch b where b.ended_at is null order by b.batch_id limit 100) b
                    join spanmq_core.queue q on q.queue_id = b.queue_id
                    where b.created_at < at_ - interval '5 minutes' and not spanmq_core.has_unsettled(b.batch_id));
begin
    select array_agg(format('%s (%s)', q.name, date_trunc('second', at_ - c.oldest_lease_at)) order by q.queue_id)
               filter (where c.oldest_lease_at < at_ - interval '1 hour'),
           array_agg(format('%s (%s)', q.name, spanmq_core.counted(c.expired, 'message')) order by q.queue_id)
               filter (where c.expired > 0 and c.leases = 0 and c.oldest_ready_at < at_ - interval '5 minutes'),
           array_agg(q.name::text order by q.queue_id) filter (where (
               select count(*) from spanmq_core.segment s
               where s.queue_id = q.queue_id and (s.settled_at_xid is not null or s.state = 'truncated')
               and s.hi < d.drawn) > 10)
        into stuck, abandoned, lagging
        from spanmq_core.queue q cross join lateral spanmq_core.survey_of(q, at_) c
        cross join lateral (select spanmq_core.drawn_unless_gone(q) as drawn offset 0) d;
    -- The rows that the dashboard shows.
    select array_agg(format('%s (%s for %s)', a.queue, spanmq_core.counted(a.n, 'message'),
                            make_interval(secs => round(a.seconds::numeric)))
                     order by a.seconds desc) filter (where a.reason = 'no_worker' and a.level = 'problem'),
           array_agg(format('%s (%s for %s)', a.queue, spanmq_core.counted(a.n, 'message'),
                            make_interval(secs => round(a.seconds::numeric)))
                     order by a.seconds desc) filter (where a.reason = 'stopped'),
           array_agg(format('%s (%s%s)', a.queue, spanmq_core.counted(a.n, 'message'), ': ' || left(a.detail, 100))
                     order by a.n desc)
               filter (where a.reason = 'breaker_open'),
           array_agg(format('%s (%s)', a.queue, spanmq_core.counted(a.n, 'message')) order by a.n desc)
               filter (where a.reason = 'paused'),
           array_agg(format('%s (%s, of which %s within the last hour)', a.queue, a.n, a.recent)
                     order by a.recent desc, a.n desc) filter (where a.reason = 'dead_letters')
        into idle, stopped, tripped, paused, dead from spanmq_call.attention() a;
    silent := (
        select array_agg(format('%s of %s holds %s and has not called for %s', r.name, q.name,
                                spanmq_core.counted(r.held, 'message'),
                                date_trunc('second', at_ - r.seen_at))
                         order by q.queue_id, r.seen_at)
        from spanmq_core.queue q cross join lateral spanmq_core.silent_receivers(q.queue_id, at_) r);
    return query values
        ('maintenance', case when is_late or troubles is not null then 'problem' when unsent is not null then 'warning'
         else 'ok' end,
         case when not is_late and troubles is not null then format('maintain() fails in %s', left(troubles, 500))
              when not is_late and unsent is not null then format('batches are settled and not ended: %s',
                                                                  left(unsent, 500))
              when last_at is null then 'maintain() has not run yet'
              else format('maintain() ran %s ago', greatest(date_trunc('second', at_ - last_at), interval '0')) end,
         case when is_late then 'no session calls maintain(): run a client with a pool, spanmq maintain --every 1, or'
                                ' a cron job'
              when troubles is not null then 'fix what the errors name; maintenance of other queues continues'
              else 'the queue is full, or takes no such message: maintain() writes the reason into the server''s log'
                   ' at each call' end),
        ('workers', case when idle is not null then 'warning' else 'ok' end,
         coalesce('messages wait and no worker receives them: ' || array_to_string(idle[:10], ', '),
                  'no message has waited for five minutes without a worker'),
         'start a worker of these queues: spanmq worker; spanmq queue health shows them'),
        ('delivery', case when coalesce(tripped, stopped, paused) is not null then 'warning' else 'ok' end,
         coalesce(nullif(concat_ws('; ', 'a circuit breaker is open: ' || array_to_string(tripped[:10], ', '),
                                   'workers run and receive nothing: ' || array_to_string(stopped[:10], ', '),
                                   'paused: ' || array_to_string(paused[:10], ', ')), ''),
                  'no queue with messages is stopped'),
         'repair what the handlers fail of, or spanmq queue resume; spanmq queue attention shows every reason'),
        ('dead letters', case when dead is not null then 'warning' else 'ok' end,
         coalesce('messages that workers have given up wait: ' || array_to_string(dead[:10], ', '), 'none'),
         'spanmq dead-letter list shows their errors; redrive them after a repair, or discard them'),
        ('leases', case when stuck is not null or abandoned is not null then 'warning' else 'ok' end,
         coalesce(nullif(concat_ws('; ', 'held for over an hour: ' || array_to_string(stuck[:10], ', '),
                                   'expired, and without a receiver: ' || array_to_string(abandoned[:10], ', ')), ''),
                                   'no lease is older than an hour'),
         'check whether the receivers run; set_vt(queue, msg_id, 0) makes a message visible at once'),
        ('bounds', case when unseen is not null then 'problem' else 'ok' end,
         coalesce('messages that no receiver finds, as after the server''s clock was set back: ' || left(unseen, 500),
                  'every message is found'),
         'set_vt(queue, msg_id, 0) makes a message visible; let NTP slow the clock down instead of setting it back'),
        ('streams', case when silent is not null then 'warning' else 'ok' end,
         coalesce(array_to_string(silent[:10], '; '), 'no stopped stream holds messages'),
         'start the stream again with its checkpoint; spanmq receiver release QUEUE RECEIVER returns its messages'
         ' to the queue'),
        ('table grants', case when unfollowed is not null then 'warning' else 'ok' end,
         coalesce('they give no right here: ' || left(unfollowed, 500),
                  'no role has table privileges without their verb'),
         'select spanmq.follow_table_grants() makes verbs of them; or revoke them'),
        ('triggers', case when triggers is not null then 'warning' else 'ok' end,
         coalesce('no send or receive calls ' || left(triggers, 500), 'no queue has a trigger of yours'),
         'drop it; to act on each message, let a worker handle it, or a second queue (spanmq.create_subscription) or a'
         ' notification'),
        ('segments', case when missing_ids > 0 then 'problem' when lagging is not null then 'warning' else 'ok' end,
         case when missing_ids > 0 then format('%s had no row in the log', spanmq_core.counted(missing_ids, 'message'))
              else coalesce('settled segments are not truncated yet: ' || array_to_string(lagging[:10], ', '),
                            'settled segments are truncated') end,
         case when missing_ids > 0 then 'see spanmq_core.missing; was a table of the log truncated or restored by hand?'
              else 'see "snapshots", "slots" and "maintenance"' end);
end $$;

-- What programs that were written for PGMQ do without an error and without effect, as far as it is in the catalogs.
create or replace function spanmq_core.check_pgmq_programs() returns table (check_name text, level text, finding text,
                                                                            advice text)
language plpgsql set jit = off as $$
declare
    -- PGMQ's SQL file, or an update of its extension, replaces those that it has too.
    replaced text := (select string_agg(known.name, ', ' order by known.name)
                      from spanmq_core.object_checksum known
                      left join (:snapshot) live on live.kind = known.kind and live.name = known.name
                      where known.kind = 'function' and known.name ~ '^pgmq[.]'
                        and live.checksum is distinct from known.checksum);
    replica text := (select string_agg(
                         coalesce('role ' || quote_ident(r.rolname), 'database ' || quote_ident(b.datname),
                                  'all roles'), ', ')
                     from pg_db_role_setting s
                     left join pg_roles r on r.oid = s.setrole left join pg_database b on b.oid = s.setdatabase
                     where 'session_replication_role=replica' = any (s.setconfig)
                       and (s.setdatabase = 0 or b.datname = current_database()));
    publications text := (select string_agg(quote_ident(p.pubname), ', ' order by p.pubname) from pg_publication p
                          where p.puballtables
                             or exists (select from pg_publication_namespace n where n.pnpubid = p.oid
                                        and n.pnnspid = 'pgmq'::regnamespace));
begin
    return query values
        ('functions', case when replaced is not null then 'problem' else 'ok' end,
         coalesce('these are not as spanmq made them: ' || left(replaced, 500), 'PGMQ''s interface is spanmq''s'),
         'spanmq schema upgrade restores them; remove PGMQ''s SQL, or ALTER EXTENSION pgmq UPDATE, from what was run'),
        ('replica role', case when replica is not null then 'warning' else 'ok' end,
         coalesce('session_replication_role is replica for ' || replica, 'no role or database has it set'),
         'reset it: statements on pgmq.q_<name> are refused then, and an insert of all seven columns is lost'),
        ('publications', case when publications is not null then 'warning' else 'ok' end,
         coalesce('they contain no messages of queues, but spanmq''s tables: ' || publications,
                  'none contains all tables, or all of schema pgmq'),
         'publish tables by name, such as pgmq.a_<name>, or let a subscription feed the reader'),
        ('catalogue', 'ok', 'queues are views: programs that list tables, sequences of columns, indexes or sizes of'
         ' pgmq.q_<name> do not find them', null);
end $$;
