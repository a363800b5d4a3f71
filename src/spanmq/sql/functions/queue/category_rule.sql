-- Classification of errors into categories. A handler may name the category; otherwise the rules decide, which are
-- rows.

-- The category of an error by the rules: those of the queue (null: of none) first, then those of all, in their order.
-- UNKNOWN where none matches. Looks at the first 200 characters of the class and 2,000 of the text: with patterns that
-- set_category_rule lets through, a match takes time in proportion to that.
create or replace function spanmq_core.classify_error(this_queue int, error_class text, error text) returns text
language plpgsql stable as $$
declare
    rule record;
begin
    error_class := left(error_class, 200);
    error := left(error, 2000);
    if error_class is null and error is null then
        return 'UNKNOWN';
    end if;
    -- One after the other: the first match ends it, and PostgreSQL keeps no more than 32 patterns compiled.
    for rule in
        select r.error_class, r.error, r.category from spanmq_core.category_rule r
        where r.queue_id = this_queue or r.queue_id is null
        order by r.queue_id nulls last, r.place, r.name
    loop
        if (rule.error_class is null or error_class ~* rule.error_class)
            and (rule.error is null or error ~* rule.error) then
            return rule.category;
        end if;
    end loop;
    return 'UNKNOWN';
end $$;

-- The category that an error would get, by the rules of the queue, if one is named, and of all queues. Changes nothing.
create or replace function spanmq_call.classify(
    error_class text default null, error text default null, queue text default null
) returns text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := case when queue is not null then spanmq_core.find_queue(queue) end;
begin
    return spanmq_core.classify_error(this.queue_id, error_class, error);
end $$;

-- Raises MQ002 unless it is one of the five.
create or replace function spanmq_core.check_category(category text) returns void
language plpgsql immutable as $$
begin
    perform spanmq_core.raise_if(category is null
                                 or category not in ('TRANSIENT', 'DEPENDENCY', 'PERMANENT', 'BUSINESS', 'UNKNOWN'),
        format('there is no category %L', category), 'TRANSIENT, DEPENDENCY, PERMANENT, BUSINESS or UNKNOWN.');
end $$;

-- How much a pattern becomes when its bounds ({m,n}) are written out: PostgreSQL does so before it matches. Each group
-- is taken to contain all others, which may be too much, and never too little.
create or replace function spanmq_core.pattern_size(pattern text) returns numeric
language plpgsql immutable as $$
declare
    bound text[];
    size numeric := length(pattern);
    factor numeric := 1;
begin
    for bound in select regexp_matches(pattern, '([)]?)[{]([0-9]+)(?:,([0-9]*))?[}]', 'g') loop
        if bound[1] = ')' then
            factor := factor * greatest(left(coalesce(nullif(bound[3], ''), bound[2]), 5)::int, 1);
        else
            size := size + left(coalesce(nullif(bound[3], ''), bound[2]), 5)::int;
        end if;
    end loop;
    return size * factor;
end $$;

-- Raises MQ020 for a pattern that is not a regular expression, or that could take too long. Without back-references and
-- lookarounds, which are refused, the matching time is proportional to the length of the text and to the size of the
-- pattern, which is bounded here.
create or replace function spanmq_core.check_pattern(pattern text, what text) returns void
language plpgsql volatile as $$
declare
    started_at timestamptz := clock_timestamp();
begin
    perform spanmq_core.raise_if(length(pattern) not between 1 and 500,
        format('the pattern of %s must have 1 to 500 characters, got %s', what, length(pattern)),
        'Pass a shorter pattern, or none.', 'MQ020');
    perform spanmq_core.raise_if(pattern ~ E'\\\\[1-9]' or pattern ~ '[(][?]<?[=!]' or pattern ~ '^[*][*][*]',
        format('the pattern of %s has a back-reference, looks around itself, or begins with ***: %s', what, pattern),
        'Such a pattern may take unlimited time; write it without.', 'MQ020');
    perform spanmq_core.raise_if(spanmq_core.pattern_size(pattern) > 1000,
        format('the pattern of %s repeats too much: %s', what, pattern),
        'Use smaller numbers in braces, or * and +, above all after groups.', 'MQ020');
    begin
        perform repeat('aB 0', 500) ~* pattern;
    exception
        when invalid_regular_expression then
            raise exception 'the pattern of % is not a regular expression: %', what, sqlerrm
                using errcode = 'MQ020', detail = pattern,
                hint = 'Use the syntax of PostgreSQL''s regular expressions.';
        -- Not a time limit, which this does not catch: what is left is memory.
        when others then
            raise exception 'the pattern of % takes too much: %', what, sqlerrm
                using errcode = 'MQ020', detail = pattern, hint = 'Make it simpler.';
    end;
    if clock_timestamp() - started_at > interval '1 second' then
        raise exception 'the pattern of % takes too long: %', what, clock_timestamp() - started_at
            using errcode = 'MQ020', detail = pattern, hint = 'Make it simpler: each failure is matched against it.';
    end if;
end $$;

-- The queue that rules or a run are for, held to the end of the transaction; null: all.
create or replace function spanmq_core.find_and_hold(queue text) returns int
language plpgsql as $$
declare
    this spanmq_core.queue := case when queue is not null then spanmq_core.find_queue(queue) end;
begin
    if queue is not null then
        perform spanmq_core.hold_queue(this);
    end if;
    return this.queue_id;
end $$;

-- Creates the rule of this name, or replaces it: errors whose text and whose class match these patterns (null: any;
-- regular expressions, without regard to case) are of this category. `place` orders the rules, the lowest first. queue
-- null: for all queues. It holds from the next failure on. Raises MQ020 for a bad pattern, MQ002 for the rest: then
-- nothing has changed.
create or replace function spanmq_call.set_category_rule(
    name text, category text, error text default null, error_class text default null, place integer default 100,
    queue text default null
) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    this_queue int := spanmq_core.find_and_hold(queue);
begin
    perform spanmq_core.raise_if(name is null or length(name) not between 1 and 100,
        format('the name of a rule must have 1 to 100 characters, got: %L', name), 'Choose a short name.');
    perform spanmq_core.check_category(category);
    perform spanmq_core.raise_if(error is null and error_class is null or place is null,
        'a rule needs a place and a pattern, of the error, of its class or of both',
        'Pass a place and at least one pattern.');
    perform spanmq_core.check_pattern(error, 'error');
    perform spanmq_core.check_pattern(error_class, 'error_class');
    insert into spanmq_core.category_rule as r (queue_id, place, name, error_class, error, category)
        values (this_queue, place, name, error_class, error, category)
        on conflict ((coalesce(queue_id, 0)), name) do update
            set place = excluded.place, error_class = excluded.error_class, error = excluded.error,
            category = excluded.category;
end $$;

-- Drops the rule of this name. False if it does not exist.
create or replace function spanmq_call.drop_category_rule(name text, queue text default null) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    this_queue int := spanmq_core.find_and_hold(queue);
begin
    delete from spanmq_core.category_rule r where r.queue_id is not distinct from this_queue
        and r.name = drop_category_rule.name;
    return found;
end $$;

-- The rules in the order of their evaluation: first those of this queue, then those for all queues (queue null: only
-- the latter).
create or replace function spanmq_call.list_category_rules(queue text default null)
returns table (name text, category text, error text, error_class text, place integer, queue_name text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := case when queue is not null then spanmq_core.find_queue(queue) end;
begin
    return query
        select r.name, r.category, r.error, r.error_class, r.place,
        case when r.queue_id is not null then this.name::text end
        from spanmq_core.category_rule r
        where r.queue_id = this.queue_id or r.queue_id is null
        order by r.queue_id nulls last, r.place, r.name;
end $$;
