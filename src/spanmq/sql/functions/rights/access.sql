-- Names, rights and arguments: what every public function checks before it acts.

-- Raises an error if so. Its texts are put together in any case: not for calls by the thousand.
create or replace function spanmq_core.raise_if(
    is_wrong boolean, message text, hint text, code text default 'MQ002'
) returns void
language plpgsql as $$
begin
    if is_wrong then
        raise exception using message = message, errcode = code, hint = hint;
    end if;
end $$;

-- The same with PGMQ's SQLSTATE, and ours as the constraint.
create or replace function spanmq_core.raise_as_pgmq(is_wrong boolean, code text, message text, hint text) returns void
language plpgsql as $$
begin
    if is_wrong then
        raise exception using message = message, errcode = 'P0001', constraint = code, hint = hint;
    end if;
end $$;

-- Raises MQ003 unless each statement of this transaction sees what was committed before it. `why` is one more sentence.
create or replace function spanmq_core.check_isolation(what text, why text default null) returns void
language plpgsql as $$
declare
    level text := current_setting('transaction_isolation');
begin
    perform spanmq_core.raise_if(not spanmq_core.sees_now(), format('%s needs READ COMMITTED, not %s', what,
                                                                    upper(level)),
        concat_ws(' ', why, case when level = current_setting('default_transaction_isolation')
            then 'It is the value of default_transaction_isolation, of the server, database, role or session: set it'
                 ' to read committed, or begin the transaction with isolation level read committed.'
            else 'Call it in a transaction with isolation level read committed.' end), 'MQ003');
end $$;

-- The table name of a queue, as PGMQ forms it. Raises MQ001 for characters that PGMQ refuses.
create or replace function pgmq.format_table_name(queue_name text, prefix text) returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    if queue_name ~ '[$]|;|--|''' then
        raise exception E'queue name contains invalid characters: $, ;, --, or \\'''
            using errcode = 'P0001', constraint = 'MQ001', hint = 'Use letters, digits, underscores and hyphens.';
    end if;
    return lower((prefix || '_' || queue_name) collate "C");
end $$;

-- Raises MQ001 for a name that can't be a queue's: null, empty, over 47 characters or bytes (a table name has 63
-- bytes).
create or replace function pgmq.validate_queue_name(queue_name text) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    if queue_name is null or queue_name = '' then
        raise exception 'queue name cannot be NULL or empty'
            using errcode = 'P0001', constraint = 'MQ001', hint = 'Name the queue.';
    end if;
    if length(queue_name) > 47 then
        raise exception 'queue name is too long, maximum length is 47 characters'
            using errcode = 'P0001', constraint = 'MQ001',
            detail = format('%s has %s characters.', queue_name, length(queue_name)), hint = 'Choose a shorter name.';
    end if;
    if octet_length(queue_name) > 47 then
        raise exception 'queue name is too long, maximum length is 47 bytes'
            using errcode = 'P0001', constraint = 'MQ001',
            detail = format('%s has %s bytes.', queue_name, octet_length(queue_name)), hint = 'Choose a shorter name.';
    end if;
end $$;

-- Whether each statement of this transaction sees what was committed before it. READ UNCOMMITTED, which some drivers
-- ask for, is the same here.
create or replace function spanmq_core.sees_now() returns boolean
language sql stable as $$ select pg_catalog.current_setting('transaction_isolation') in ('read committed',
    'read uncommitted') $$;

-- The queue of that name. Raises 42P01, with PGMQ's text, if it does not exist. Rights are checked by the callers: see
-- rights.sql. Pinned, as are bound_of(), policy_of() and segment_of(): a plan made for a pinned caller costs more than
-- reading a small table, so that a caller without pins would plan anew at each call.
create or replace function spanmq_core.find_queue(queue_name text) returns spanmq_core.queue
language plpgsql stable :pinned as $$
declare
    this spanmq_core.queue;
begin
    -- The catalog tells old snapshots, too, that a queue was dropped.
    select * into this from spanmq_core.queue q where q.folded_name = lower(queue_name collate "C")
        and has_table_privilege(q.queue_view, 'select');
    if not found then
        perform spanmq_core.raise_not_found(queue_name);
    end if;
    return this;
end $$;

-- The queue of that name, to send into. Raises what find_queue() raises, and MQ060 for a subscription.
create or replace function spanmq_core.find_target(queue_name text) returns spanmq_core.queue
language plpgsql stable as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue_name);
begin
    if this.is_subscription then
        raise exception 'queue % is a subscription: nothing is sent into it', this.name
            using errcode = 'MQ060', hint = (
                select format('Send into queue %s: it comes here, too.', q.name)
                from spanmq_core.subscription s join spanmq_core.queue q on q.queue_id = s.log_id
                where s.queue_id = this.queue_id);
    end if;
    return this;
end $$;

-- Keeps a queue from being dropped, to the end of the transaction. Raises what find_queue() raises if it was dropped
-- meanwhile.
create or replace function spanmq_core.hold_queue(this spanmq_core.queue) returns void
language plpgsql as $$
begin
    perform from spanmq_core.queue q where q.queue_id = this.queue_id for key share;
    if not found then
        perform spanmq_core.raise_not_found(this.name);
    end if;
end $$;

create or replace function spanmq_core.archive_name(folded_name text) returns text
language sql immutable as $$
    select 'pgmq.' operator(pg_catalog.||) pg_catalog.quote_ident('a_' operator(pg_catalog.||) folded_name)
$$;

-- The table that bears the archive's name: it counts, as in PGMQ, where one was renamed and another made. Null where it
-- was dropped.
create or replace function spanmq_core.archive_of(this spanmq_core.queue) returns regclass
language sql stable as $$
    select pg_catalog.to_regclass(spanmq_core.archive_name(this.folded_name))
$$;

create or replace function spanmq_core.raise_no_archive(this spanmq_core.queue) returns void
language plpgsql as $$
begin
    raise exception 'relation "pgmq.a_%" does not exist', this.folded_name
        using errcode = '42P01', hint = format('Create it again: select pgmq.create(%L)', this.name);
end $$;

-- Raises 42501 for a table that is to be an archive and has an owner below the schema's: its triggers would run with
-- our rights.
create or replace function spanmq_core.check_archive(archive regclass) returns void
language plpgsql stable as $$
declare
    its_owner oid := (select c.relowner from pg_catalog.pg_class c where c.oid = archive);
begin
    if not pg_has_role(its_owner, current_user, 'usage') then
        raise exception '% can''t be the archive: it belongs to %', archive, pg_get_userbyid(its_owner)
            using errcode = '42501', hint = format('alter table %s owner to %I, or drop or rename it.', archive,
                                                   current_user);
    end if;
end $$;

-- Whether a queue that was found has been dropped since; the catalog says so to old snapshots, too.
create or replace function spanmq_core.is_gone(this spanmq_core.queue) returns boolean
language sql volatile as $$ select pg_catalog.has_table_privilege(this.queue_view, 'select') is null $$;

-- Raises MQ001 for an invalid name, otherwise 42P01: the queue does not exist, or its view was dropped.
create or replace function spanmq_core.raise_not_found(queue_name text) returns void
language plpgsql as $$
declare
    table_name text := pgmq.format_table_name(queue_name, 'q');
begin
    if queue_name is null then
        raise exception 'queue name cannot be NULL or empty'
            using errcode = 'P0001', constraint = 'MQ001', hint = 'Name the queue.';
    end if;
    raise exception 'relation "pgmq.%" does not exist', table_name
        using errcode = '42P01', hint = format('Create the queue first: select pgmq.create(%L)', queue_name);
end $$;

create or replace function spanmq_core.check_quantity(qty int) returns void
language plpgsql immutable as $$
begin
    if qty is null then
        raise exception 'qty cannot be NULL'
            using errcode = 'MQ002', hint = 'Pass a number; null does not mean all.';
    end if;
    if qty < 0 then
        raise exception 'LIMIT must not be negative'
            using errcode = '2201W', constraint = 'MQ002', detail = format('qty is %s.', qty), hint = 'Pass 0 or more.';
    end if;
end $$;

-- The time at_ less an interval; no time lies more than 5,000 years before it.
create or replace function spanmq_core.before(at_ timestamptz, length interval) returns timestamptz
language sql stable strict as $$ select at_ - least(length, interval '5000 years') $$;

-- When a message that is sent, read or hidden now comes back after `seconds`. Raises MQ002 for null and what no
-- timestamp holds.
create or replace function spanmq_core.after(
    seconds double precision, what text, at_ timestamptz default clock_timestamp()
) returns timestamptz
language plpgsql volatile as $$
begin
    if seconds is null then
        raise exception '% cannot be NULL', what
            using errcode = 'MQ002', hint = 'Pass a number of seconds.';
    end if;
    -- NaN is greater than any number.
    if abs(seconds) > 3e9 then
        raise exception '% is out of range: % seconds', what, seconds
            using errcode = 'MQ002', hint = 'Up to 3,000,000,000 seconds (95 years).';
    end if;
    return at_ + make_interval(secs => seconds);
end $$;

-- Locks an object of a queue (0: of no queue) to the end of the transaction. A row of an inner table, not an advisory
-- lock, which any session could take.
create or replace function spanmq_core.lock(this_queue int, what text) returns void
language plpgsql as $$
begin
    loop
        perform from spanmq_core.lock l where l.queue_id = this_queue and l.what = lock.what for update;
        exit when found;
        -- Once more: another transaction may delete the row before this one has locked it.
        insert into spanmq_core.lock (queue_id, what) values (this_queue, lock.what) on conflict do nothing;
    end loop;
end $$;

-- As lock(), with others that share it.
create or replace function spanmq_core.lock_shared(this_queue int, what text) returns void
language plpgsql as $$
begin
    loop
        perform from spanmq_core.lock l where l.queue_id = this_queue and l.what = lock_shared.what for share;
        exit when found;
        insert into spanmq_core.lock (queue_id, what) values (this_queue, lock_shared.what) on conflict do nothing;
    end loop;
end $$;

-- Locks a name to the end of the transaction, as lock() does, and leaves no row: there are more names over time than
-- objects. Others wait for the end of a transaction that has inserted the row, although it has deleted it, too.
create or replace function spanmq_core.lock_name(kind text, name text) returns void
language plpgsql as $$
begin
    loop
        insert into spanmq_core.lock (queue_id, what) values (0, kind || ' ' || name) on conflict do nothing;
        delete from spanmq_core.lock l where l.queue_id = 0 and l.what = kind || ' ' || name;
        -- Not if the row was there before, and another transaction has deleted it since.
        exit when found;
    end loop;
end $$;

-- Takes a lock that has a row, and returns true, unless another transaction holds it. Never waits.
create or replace function spanmq_core.try_lock(this_queue int, what text) returns boolean
language plpgsql as $$
begin
    perform from spanmq_core.lock l where l.queue_id = this_queue and l.what = try_lock.what for update skip locked;
    return found;
end $$;

-- For views over spanmq_core.queue in place of PGMQ's tables: a change of such a row would damage the queue.
create or replace function spanmq_core.refuse_change() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    raise exception '% of % is not possible: it shows what the functions do', tg_op, tg_table_name
        using errcode = 'MQ004', hint = 'Call ' || tg_argv[0] || '.';
end $$;
