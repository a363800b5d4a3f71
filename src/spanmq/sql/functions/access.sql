-- Names, rights and arguments: what every public function checks before it acts.

-- The table name of a queue, as PGMQ forms it. Raises MQ001 for characters that PGMQ refuses.
create or replace function pgmq.format_table_name(queue_name text, prefix text) returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    if queue_name ~ '[$]|;|--|''' then
        raise exception E'queue name contains invalid characters: $, ;, --, or \\'''
            using errcode = 'MQ001', hint = 'Use letters, digits, underscores and hyphens.';
    end if;
    return lower(prefix || '_' || queue_name);
end $$;

-- Raises MQ001 for a name that can't be a queue's: null, empty, over 47 characters or bytes (a table name has 63 bytes).
create or replace function pgmq.validate_queue_name(queue_name text) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    if queue_name is null or queue_name = '' then
        raise exception 'queue name cannot be NULL or empty'
            using errcode = 'MQ001', hint = 'Name the queue.';
    end if;
    if length(queue_name) > 47 then
        raise exception 'queue name is too long, maximum length is 47 characters'
            using errcode = 'MQ001', detail = format('%s has %s characters.', queue_name, length(queue_name)), hint = 'Choose a shorter name.';
    end if;
    if greatest(octet_length(queue_name), octet_length(lower(queue_name))) > 47 then
        raise exception 'queue name is too long, maximum length is 47 bytes'
            using errcode = 'MQ001', detail = format('%s has %s bytes.', queue_name, octet_length(queue_name)), hint = 'Choose a shorter name.';
    end if;
end $$;

-- The role on whose behalf a SECURITY DEFINER function runs: what SET ROLE says, else the one that connected.
create or replace function spanmq_core.caller() returns name
language sql stable as $$
    select coalesce(nullif(pg_catalog.current_setting('role'), 'none'), session_user)::name
$$;

-- Whether each statement of this transaction sees what was committed before it. READ UNCOMMITTED, which some drivers ask for, is the same here.
create or replace function spanmq_core.sees_now() returns boolean
language sql stable as $$ select pg_catalog.current_setting('transaction_isolation') in ('read committed', 'read uncommitted') $$;

-- The queue of that name, if the caller has the privilege on its view.
-- Raises 42P01 (with PGMQ's text) for a queue that is unknown, or on which the caller has no right, 42501 for a missing right, MQ060
-- for `insert` into a subscription.
create or replace function spanmq_core.find_queue(queue_name text, privilege text) returns spanmq_core.queue
language plpgsql stable as $$
declare
    this spanmq_core.queue;
begin
    select * into this from spanmq_core.queue q
        where q.folded_name = lower(queue_name)
          and has_table_privilege(coalesce(nullif(current_setting('role'), 'none'), session_user), q.queue_view, privilege)
          and (privilege <> 'insert' or not q.is_subscription);
    if not found then
        perform spanmq_core.raise_not_found(queue_name, privilege);
    end if;
    return this;
end $$;

-- Whether the caller has any right on a queue, or may read its archive. Of others it does not learn that they are there.
create or replace function spanmq_core.may_see(queue_view regclass, archive regclass) returns boolean
language sql stable as $$
    select pg_catalog.has_table_privilege(spanmq_core.caller(), queue_view, 'select, insert, update, delete, truncate, trigger')
        or pg_catalog.has_table_privilege(spanmq_core.caller(), archive, 'select')
$$;

-- The table that bears the archive's name: it counts, as in PGMQ, where one was renamed and another made. Null where it was dropped.
create or replace function spanmq_core.archive_of(this spanmq_core.queue) returns regclass
language sql stable as $$
    select pg_catalog.to_regclass(pg_catalog.format('pgmq.%I', 'a_' operator(pg_catalog.||) this.folded_name))
$$;

create or replace function spanmq_core.raise_no_archive(this spanmq_core.queue) returns void
language plpgsql as $$
begin
    raise exception 'relation "pgmq.a_%" does not exist', this.folded_name
        using errcode = '42P01', hint = format('Make it again: select pgmq.create(%L)', this.name);
end $$;

-- Raises 42501 for a table that is to be an archive and has an owner below the schema's: its triggers would run with our rights.
create or replace function spanmq_core.check_archive(archive regclass) returns void
language plpgsql stable as $$
declare
    its_owner oid := (select c.relowner from pg_catalog.pg_class c where c.oid = archive);
begin
    if not pg_has_role(its_owner, current_user, 'usage') then
        raise exception '% can''t be the archive: it is %''s', archive, pg_get_userbyid(its_owner)
            using errcode = '42501', hint = format('alter table %s owner to %I, or drop or rename it.', archive, current_user);
    end if;
end $$;

-- What who makes or manages a queue may do with its archive: everything but triggers. Our functions write there with the rights of
-- the schema's owner, and so would whatever a trigger calls.
create or replace function spanmq_core.archive_privileges() returns text
language sql immutable as $$
    select 'select, insert, update, delete, truncate, references'
$$;

create or replace function spanmq_core.may_see_queue(queue_name text) returns boolean
language sql stable as $$
    select exists (select from spanmq_core.queue q where q.folded_name operator(pg_catalog.=) pg_catalog.lower(queue_name) and spanmq_core.may_see(q.queue_view, q.archive))
$$;

-- Whether a queue that was found has been dropped since; the catalog says so to old snapshots, too.
create or replace function spanmq_core.is_gone(this spanmq_core.queue) returns boolean
language sql volatile as $$ select pg_catalog.has_table_privilege(this.queue_view, 'select') is null $$;

create or replace function spanmq_core.raise_not_found(queue_name text, privilege text) returns void
language plpgsql as $$
declare
    this spanmq_core.queue;
    table_name text := pgmq.format_table_name(queue_name, 'q');
begin
    if queue_name is null then
        raise exception 'queue name cannot be NULL or empty'
            using errcode = 'MQ001', hint = 'Name the queue.';
    end if;
    select * into this from spanmq_core.queue q where q.folded_name = lower(queue_name);
    if found and privilege = 'insert' and this.is_subscription and spanmq_core.may_see(this.queue_view, this.archive) then
        raise exception 'queue % is a subscription: nothing is sent into it', this.name
            using errcode = 'MQ060', hint = (
                select format('Send into queue %s: it comes here, too.', q.name)
                from spanmq_core.subscription s join spanmq_core.queue q on q.queue_id = s.log_id where s.queue_id = this.queue_id);
    elsif found and spanmq_core.is_gone(this) and spanmq_core.may_see(this.queue_view, this.archive) then
        raise exception 'relation "pgmq.%" does not exist', table_name
            using errcode = '42P01', hint = format('Make its view again: select pgmq.create(%L)', this.name);
    elsif found and spanmq_core.may_see(this.queue_view, this.archive) then
        raise exception 'permission denied for queue %', this.name
            using errcode = '42501', hint = format('grant %s on %s to %I', privilege, this.queue_view, spanmq_core.caller());
    end if;
    raise exception 'relation "pgmq.%" does not exist', table_name
        using errcode = '42P01', hint = format('Create the queue first: select pgmq.create(%L). If it is there, you have no right on it.', queue_name);
end $$;

create or replace function spanmq_core.check_quantity(qty int) returns void
language plpgsql immutable as $$
begin
    if qty is null then
        raise exception 'qty cannot be NULL'
            using errcode = 'MQ002', hint = 'Say how many; there is no number for all.';
    end if;
    if qty < 0 then
        raise exception 'LIMIT must not be negative'
            using errcode = 'MQ002', detail = format('qty is %s.', qty), hint = 'Say how many, 0 or more.';
    end if;
end $$;

-- When a message that is sent, read or hidden now comes back after `seconds`. Raises MQ002 for null and what no timestamp holds.
create or replace function spanmq_core.after(seconds double precision, what text, at_ timestamptz default clock_timestamp()) returns timestamptz
language plpgsql volatile as $$
begin
    if seconds is null then
        raise exception '% cannot be NULL', what
            using errcode = 'MQ002', hint = 'Give a number of seconds.';
    end if;
    -- NaN is greater than any number.
    if abs(seconds) > 3e9 then
        raise exception '% is out of range: % seconds', what, seconds
            using errcode = 'MQ002', hint = 'Up to 3,000,000,000 seconds (95 years).';
    end if;
    return at_ + make_interval(secs => seconds);
end $$;

-- A 64-bit advisory lock key of our own for a thing of a queue: never PGMQ's 32-bit space that applications share.
create or replace function spanmq_core.lock_key(thing text, queue_id int) returns bigint
language sql immutable as $$
    select pg_catalog.hashtextextended('spanmq.' || thing || '.' || queue_id, 0)
$$;

-- For views over spanmq_core.queue that stand where PGMQ has tables: a row that is changed there is a queue that is half gone.
create or replace function spanmq_core.refuse_change() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    raise exception '% of % is not possible: it shows what the functions do', tg_op, tg_table_name
        using errcode = 'MQ004', hint = 'Call ' || tg_argv[0] || '.';
end $$;
