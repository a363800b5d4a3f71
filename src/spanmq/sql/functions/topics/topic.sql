-- Topics: a message sent with a routing key goes to every queue with a pattern that matches. `*` is one word, `#` any
-- text: as in PGMQ, logs.# does not match logs. Of these queues the sender reaches those into which it may send.

-- True, or raises MQ005.
create or replace function pgmq.validate_routing_key(routing_key text) returns boolean
language plpgsql immutable security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform spanmq_core.check_topic(routing_key, 'routing_key', '^[a-zA-Z0-9._-]+$',
        'Only alphanumeric, dots, hyphens, and underscores are allowed.');
    return true;
end $$;

-- True, or raises MQ005.
create or replace function pgmq.validate_topic_pattern(pattern text) returns boolean
language plpgsql immutable security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform spanmq_core.check_topic(pattern, 'pattern', '^[a-zA-Z0-9._*#-]+$',
        'Only alphanumeric, dots, hyphens, underscores, *, and # are allowed.');
    return true;
end $$;

-- Raises MQ005 with PGMQ's texts. A key has neither * nor #: the last three are of patterns.
create or replace function spanmq_core.check_topic(given text, what text, allowed text, allowed_words text) returns void
language plpgsql immutable as $$
declare
    wrong text := case
        when given is null or given = '' then 'cannot be NULL or empty'
        when length(given) > 255 then format('length cannot exceed 255 characters, got %s characters', length(given))
        when given !~ allowed then format('contains invalid characters. %s Got: %s', allowed_words, given)
        when given ~ '^[.]' then 'cannot start with a dot. Got: ' || given
        when given ~ '[.]$' then 'cannot end with a dot. Got: ' || given
        when given ~ '[.][.]' then 'cannot contain consecutive dots. Got: ' || given
        when given ~ '[*][*]' then 'cannot contain consecutive stars (**). Use # for multi-segment matching. Got: ' ||
        given
        when given ~ '##' then 'cannot contain consecutive hashes (##). A single # already matches zero or more'
                               ' segments. Got: ' || given
        when given ~ '[*]#|#[*]' then 'cannot contain adjacent wildcards (*# or #*). Separate wildcards with'
                                      ' dots. Got: ' || given end;
begin
    if wrong is not null then
        raise exception '% %', what, wrong
            using errcode = 'P0001', constraint = 'MQ005', hint = 'Use up to 255 characters: words separated by dots.';
    end if;
end $$;

-- Binds a queue to a pattern. Needs manage on all queues, because a binding copies messages that other roles send.
-- EXECUTE on this function is not enough, because programs written for PGMQ grant it on all functions of this schema.
create or replace function spanmq_call.bind_topic(pattern text, queue_name text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
declare
    this spanmq_core.queue;
begin
    perform pgmq.validate_topic_pattern(pattern);
    perform spanmq_core.raise_as_pgmq(queue_name is null or queue_name = '', 'MQ001',
                                      'queue_name cannot be NULL or empty', 'Name the queue.');
    perform spanmq_core.raise_as_pgmq(not exists (select from spanmq_core.queue q
                                                  where q.folded_name = lower(queue_name collate "C")), '42P01',
        format('Queue "%s" does not exist. Create the queue first using pgmq.create()', queue_name),
        'pgmq.list_queues() lists the queues.');
    this := spanmq_core.find_target(queue_name);
    perform spanmq_core.hold_queue(this);
    insert into spanmq_core.topic_binding (pattern, queue_name) values (bind_topic.pattern, this.name)
        on conflict on constraint topic_bindings_unique_pattern_queue do nothing;
end $$;

-- Removes a binding; false if there was none.
create or replace function spanmq_call.unbind_topic(pattern text, queue_name text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
begin
    perform spanmq_core.raise_as_pgmq(pattern is null or pattern = '', 'MQ005',
        'pattern cannot be NULL or empty', 'Use words separated by dots, * for one word and # for any number.');
    perform spanmq_core.raise_as_pgmq(queue_name is null or queue_name = '', 'MQ001',
                                      'queue_name cannot be NULL or empty', 'Name the queue.');
    delete from spanmq_core.topic_binding b using spanmq_core.queue q
        where q.folded_name = lower(unbind_topic.queue_name collate "C") and b.queue_name = q.name
        and b.pattern = unbind_topic.pattern;
    return found;
end $$;

-- The bindings that a key matches, of queues into which the caller may look.
create or replace function pgmq.test_routing(
    routing_key text
) returns table (pattern text, queue_name text, compiled_regex text)
language plpgsql stable as $$
begin
    perform pgmq.validate_routing_key(routing_key);
    return query select b.pattern, b.queue_name, b.compiled_regex from pgmq.list_topic_bindings() b
        where routing_key operator(pg_catalog.~) b.compiled_regex order by b.pattern;
end $$;

-- For the queues into which the caller may look.
create or replace function pgmq.list_topic_bindings()
returns table (pattern text, queue_name text, bound_at timestamptz, compiled_regex text)
language sql stable as $$
    select b.* from spanmq_call.names_for('look') n cross join lateral spanmq.list_bindings(n) b
        order by b.bound_at desc, b.pattern, b.queue_name
$$;

create or replace function pgmq.list_topic_bindings(queue_name text)
returns table (pattern text, queue_name text, bound_at timestamptz, compiled_regex text)
language sql stable as $$
    select b.* from spanmq_call.names_for('look', array[list_topic_bindings.queue_name]) n
        cross join lateral spanmq.list_bindings(n) b
        order by b.bound_at desc, b.pattern
$$;

-- The bindings of a queue.
create or replace function spanmq_call.list_bindings(queue text)
returns table (pattern text, queue_name text, bound_at timestamptz, compiled_regex text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
begin
    return query select b.pattern, b.queue_name, b.bound_at, b.compiled_regex from spanmq_core.topic_binding b
        where b.queue_name = this.name;
end $$;

-- The queues that a routing key reaches, each once, by name. Of patterns that begin with a literal word only those are
-- matched that begin with this key's.
create or replace function spanmq_call.routed_queues(routing_key text) returns setof text
language plpgsql stable rows 5 security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan as $$
begin
    return query
        select distinct b.queue_name from (
            select t.queue_name, t.compiled_regex from spanmq_core.topic_binding t
            where (case when split_part(t.pattern, '.', 1) ~ '[*#]' then '*' else split_part(t.pattern, '.', 1) end)
                  = any (array[split_part(routing_key, '.', 1), '*'])
            -- A fence: the planner assumes that the regex is cheaper than the lookup, and would evaluate it first.
            offset 0) b
        where routing_key ~ b.compiled_regex
        order by b.queue_name;
end $$;

-- The queues, by name, to which the caller's message with that key is sent. Raises MQ005 for an invalid key.
create or replace function spanmq_call.targets_of(routing_key text) returns setof text
language plpgsql stable as $$
begin
    perform pgmq.validate_routing_key(routing_key);
    return query select *
        from spanmq_call.names_for('send', array(select * from spanmq_call.routed_queues(routing_key))) n order by n;
end $$;

-- Raises MQ002 for a delay that is null or negative, and for a batch that is empty or has as many headers as it has not
-- messages: also where no queue is bound.
create or replace function spanmq_call.check_topic_send(
    messages jsonb[], headers jsonb[], delay integer default 0
) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform spanmq_core.check_batch(messages, headers);
    perform spanmq_core.delayed(delay);
end $$;

-- Sends a message to each queue that the key reaches and into which the caller may send; returns the number of these
-- queues.
create or replace function pgmq.send_topic(routing_key text, msg jsonb, headers jsonb, delay integer) returns integer
language plpgsql as $$
declare
    n integer;
begin
    if msg is null then
        perform pgmq.validate_routing_key(routing_key);
        raise exception 'msg cannot be NULL'
            using errcode = 'P0001', constraint = 'MQ002', hint = 'Pass a JSON value; JSON has a null of its own.';
    end if;
    perform spanmq_call.check_topic_send(array[msg], null::pg_catalog.jsonb[], delay);
    select count(*) into n from spanmq_call.targets_of(routing_key) t
        cross join lateral pgmq.send(t, msg, headers, delay) s;
    return n;
end $$;

create or replace function pgmq.send_topic(routing_key text, msg jsonb) returns integer
language plpgsql as $$
declare
    n integer;
begin
    select * into n from pgmq.send_topic(routing_key, msg, null::pg_catalog.jsonb, 0);
    return n;
end $$;

create or replace function pgmq.send_topic(routing_key text, msg jsonb, delay integer) returns integer
language plpgsql as $$
declare
    n integer;
begin
    select * into n from pgmq.send_topic(routing_key, msg, null::pg_catalog.jsonb, delay);
    return n;
end $$;

-- Sends a batch to each queue that the key reaches and into which the caller may send.
create or replace function pgmq.send_batch_topic(routing_key text, msgs jsonb[])
returns table (queue_name text, msg_id bigint)
language plpgsql as $$
begin
    perform spanmq_call.check_topic_send(msgs, null::pg_catalog.jsonb[]);
    return query select t, s from spanmq_call.targets_of(routing_key) t cross join lateral pgmq.send_batch(t, msgs) s;
end $$;

create or replace function pgmq.send_batch_topic(routing_key text, msgs jsonb[], headers jsonb[])
returns table (queue_name text, msg_id bigint)
language plpgsql as $$
begin
    perform spanmq_call.check_topic_send(msgs, headers);
    return query select t, s from spanmq_call.targets_of(routing_key) t
        cross join lateral pgmq.send_batch(t, msgs, headers) s;
end $$;

create or replace function pgmq.send_batch_topic(routing_key text, msgs jsonb[], delay integer)
returns table (queue_name text, msg_id bigint)
language plpgsql as $$
begin
    perform spanmq_call.check_topic_send(msgs, null::pg_catalog.jsonb[], delay);
    return query select t, s from spanmq_call.targets_of(routing_key) t
        cross join lateral pgmq.send_batch(t, msgs, delay) s;
end $$;

create or replace function pgmq.send_batch_topic(routing_key text, msgs jsonb[], delay timestamptz)
returns table (queue_name text, msg_id bigint)
language plpgsql as $$
begin
    perform spanmq_call.check_topic_send(msgs, null::pg_catalog.jsonb[]);
    return query select t, s from spanmq_call.targets_of(routing_key) t
        cross join lateral pgmq.send_batch(t, msgs, delay) s;
end $$;

create or replace function pgmq.send_batch_topic(routing_key text, msgs jsonb[], headers jsonb[], delay integer)
returns table (queue_name text, msg_id bigint)
language plpgsql as $$
begin
    perform spanmq_call.check_topic_send(msgs, headers, delay);
    return query select t, s from spanmq_call.targets_of(routing_key) t
        cross join lateral pgmq.send_batch(t, msgs, headers, delay) s;
end $$;

create or replace function pgmq.send_batch_topic(routing_key text, msgs jsonb[], headers jsonb[], delay timestamptz)
returns table (queue_name text, msg_id bigint)
language plpgsql as $$
begin
    perform spanmq_call.check_topic_send(msgs, headers);
    return query select t, s from spanmq_call.targets_of(routing_key) t
        cross join lateral pgmq.send_batch(t, msgs, headers, delay) s;
end $$;
