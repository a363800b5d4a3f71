-- JSON Patch (RFC 6902) on bodies, without its copy: a hundred of these would make 2^100 values of one.

-- The keys of a JSON pointer; null for text that is not one.
create or replace function spanmq_core.pointer_keys(pointer text) returns text[]
language sql immutable as $$
    select case when pointer = '' then '{}' when pointer ~ '^/' and pointer !~ '~(?![01])' then array(
        select replace(replace(k.key, '~1', '/'), '~0', '~')
            from unnest(string_to_array(pointer, '/')) with ordinality k (key, n)
        where k.n > 1 order by k.n) end
$$;

-- Return the value at these keys of a body; null if nothing has them. Unlike #>, an element of an array has one name
-- only: not -1 or 01.
create or replace function spanmq_core.value_at(body jsonb, keys text[]) returns jsonb
language plpgsql immutable as $$
declare
    key text;
begin
    foreach key in array keys loop
        body := case jsonb_typeof(body)
            when 'object' then body -> key
            when 'array' then case when key ~ '^(0|[1-9][0-9]{0,8})$' then body -> key::int end end;
    end loop;
    return body;
end $$;

-- Raises MQ002 for what is not a JSON Patch of 1 to 100 operations. The body as a whole can be replaced, but not
-- removed.
create or replace function spanmq_core.check_patch(patch jsonb) returns void
language plpgsql immutable as $$
declare
    operation jsonb;
    example text := 'Such as [{"op": "replace", "path": "/customer/id", "value": 17}].';
begin
    if (case jsonb_typeof(patch) when 'array' then jsonb_array_length(patch) not between 1 and 100
        else patch is not null end) then
        raise exception 'patch must be a JSON array of 1 to 100 operations, got: %', left(patch::text, 100)
            using errcode = 'MQ002', hint = example;
    end if;
    for operation in select o from jsonb_array_elements(patch) o loop
        if (jsonb_typeof(operation) = 'object' and jsonb_typeof(operation -> 'path') = 'string'
            and spanmq_core.pointer_keys(operation ->> 'path') is not null
            and case when operation ->> 'op' in ('add', 'replace', 'test') then operation ? 'value'
                     when operation ->> 'op' = 'move' then jsonb_typeof(operation -> 'from') = 'string'
                                                           and spanmq_core.pointer_keys(operation ->> 'from')
                                                           is not null
                     when operation ->> 'op' = 'remove' then operation ->> 'path' <> '' end) is not true then
            raise exception 'this is not an operation of JSON Patch, or it is copy: %', left(operation::text, 200)
                using errcode = 'MQ002', hint = example;
        end if;
    end loop;
end $$;

-- The body of a message after a patch, which was checked. Raises MQ002 where an operation does not fit, MQ004 for an
-- encrypted body.
create or replace function spanmq_core.patched(body jsonb, patch jsonb, msg_id bigint) returns jsonb
language plpgsql immutable as $$
declare
    operation jsonb;
    op text;
    keys text[];
    from_keys text[];
    key text;
    value jsonb;
    target jsonb;
    holder jsonb;
    problem text;
begin
    perform spanmq_core.raise_if(jsonb_typeof(body) = 'object' and body ? 'spanmq.sealed',
        format('message %s cannot be patched: its body is encrypted', msg_id),
        'Edit it by itself, with a client that has its key.', 'MQ004');
    for operation in select o.operation from jsonb_array_elements(patch) with ordinality o (operation, n)
        order by o.n loop
        op := operation ->> 'op';
        keys := spanmq_core.pointer_keys(operation ->> 'path');
        from_keys := spanmq_core.pointer_keys(operation ->> 'from');
        value := case op when 'move' then spanmq_core.value_at(body, from_keys) else operation -> 'value' end;
        target := spanmq_core.value_at(body, keys);
        problem := case
            when op = 'move' and value is null then 'nothing is at its "from"'
            when op = 'move' and keys <> from_keys
            and keys[:cardinality(from_keys)] = from_keys then 'a value cannot be moved into itself'
            when op in ('remove', 'replace', 'test') and target is null then 'nothing is there'
            when op = 'test' and target <> value then 'another value is there' end;
        continue when problem is null and op = 'move' and keys = from_keys;
        if problem is null and op = 'replace' then
            body := case when keys = '{}' then value else jsonb_set(body, keys, value) end;
        elsif problem is null and op in ('remove', 'move') then
            body := body #- case op when 'move' then from_keys else keys end;
        end if;
        if problem is null and op in ('add', 'move') then
            key := keys[cardinality(keys)];
            holder := spanmq_core.value_at(body, keys[:cardinality(keys) - 1]);
            if keys = '{}' then
                body := value;
            elsif jsonb_typeof(holder) = 'object' then
                body := jsonb_set(body, keys, value);
            elsif jsonb_typeof(holder) = 'array' then
                key := case key when '-' then jsonb_array_length(holder)::text else key end;
                if (case when key ~ '^(0|[1-9][0-9]{0,8})$' then key::int <= jsonb_array_length(holder) end) then
                    body := jsonb_insert(body, keys[:cardinality(keys) - 1] || key, value);
                else
                    problem := 'the array has no such place';
                end if;
            else
                problem := 'nothing is there that could hold it';
            end if;
        end if;
        perform spanmq_core.raise_if(problem is not null,
            format('the patch does not fit message %s: %s: %s', msg_id, left(operation::text, 200), problem),
            'Nothing was redriven. Choose fewer dead letters, or change the patch.');
    end loop;
    return body;
end $$;
