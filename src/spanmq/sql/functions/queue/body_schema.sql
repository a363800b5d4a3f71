-- A JSON Schema for each queue, which describes its bodies and, on request, is checked at each send by any function.
-- Checked are the keywords that spanmq_core.schema_of_schemas() names.

-- Sets the JSON Schema of a queue's bodies; null removes it. Without `checked`, it only describes the bodies. With
-- `checked`, calls that begin later can only send bodies that fit (MQ065 otherwise, and nothing is sent). Messages in
-- the queue do not change. Raises MQ002 and names the place where the schema is not valid or, if `checked`, has a
-- keyword that is not checked here; MQ060 for a subscription.
create or replace function spanmq_call.set_schema(queue text, schema jsonb, checked boolean default false) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_target(queue);
    fault text;
begin
    perform spanmq_core.raise_if(checked is null, 'checked cannot be NULL', 'Pass true or false.');
    fault := spanmq_core.schema_fault(schema, checked);
    perform spanmq_core.raise_if(fault is not null, 'the schema is not valid at $' || fault,
        'docs/guides/sending.md has the keywords of a schema that is checked; one that only describes may'
        ' have others.');
    update spanmq_core.queue q set checks_bodies = checked and set_schema.schema is not null
        where q.queue_id = this.queue_id;
    if not found then
        perform spanmq_core.raise_not_found(queue);
    end if;
    delete from spanmq_core.body_schema b where b.queue_id = this.queue_id;
    insert into spanmq_core.body_schema (queue_id, schema) select this.queue_id, set_schema.schema
        where set_schema.schema is not null;
end $$;

-- The JSON Schema of a queue's bodies, null if it has none, and whether sends are checked. A subscription has the
-- schema of its queue.
create or replace function spanmq_call.get_schema(queue text) returns table (schema jsonb, is_checked boolean)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
begin
    return query
        select b.schema, q.checks_bodies from spanmq_core.queue q left join spanmq_core.body_schema b
        on b.queue_id = q.queue_id
        where q.queue_id = coalesce((select s.log_id from spanmq_core.subscription s where s.queue_id = this.queue_id),
                                    this.queue_id);
end $$;

-- Raises what keeps these messages from being sent: MQ062 in a full queue, MQ065 for a body that does not fit.
create or replace function spanmq_core.check_sent(this spanmq_core.queue, messages jsonb[]) returns void
language plpgsql as $$
begin
    perform spanmq_core.check_room(this, cardinality(messages));
    perform spanmq_core.check_bodies(this, messages);
end $$;

-- The schema that what is sent, or repaired in a subscription, must fit; null if it is not checked.
create or replace function spanmq_core.checked_schema(this spanmq_core.queue) returns jsonb
language plpgsql as $$
begin
    if this.is_subscription then
        this := (select q from spanmq_core.subscription s join spanmq_core.queue q on q.queue_id = s.log_id
                 where s.queue_id = this.queue_id);
    end if;
    return case when this.checks_bodies then (select b.schema from spanmq_core.body_schema b
                                              where b.queue_id = this.queue_id) end;
end $$;

create or replace function spanmq_core.check_bodies(
    this spanmq_core.queue, messages jsonb[], what text default 'a body'
) returns void
language plpgsql as $$
declare
    its_schema jsonb := spanmq_core.checked_schema(this);
    body jsonb;
    found record;
    steps int := spanmq_core.schema_steps_max();
    n int := 0;
begin
    if its_schema is null then
        return;
    end if;
    -- Not by index: the array of a caller may begin anywhere, and have more than one dimension.
    foreach body in array messages loop
        n := n + 1;
        found := spanmq_core.find_misfit(body, its_schema, its_schema, steps);
        steps := found.steps;
        if found.fault is not null then
            perform spanmq_core.raise_misfit(
                this, case when cardinality(messages) > 1 then format('body %s of %s', n, cardinality(messages))
                    else what end, found.fault);
        end if;
    end loop;
end $$;

-- The same for rows of a log that are not published yet.
create or replace function spanmq_core.check_logged(
    this spanmq_core.queue, log_name text, first_id bigint, last_id bigint
) returns void
language plpgsql as $$
declare
    its_schema jsonb := spanmq_core.checked_schema(this);
    fault text;
begin
    if its_schema is null then
        return;
    end if;
    execute format('select m.fault from spanmq_core.%I l cross join lateral (select spanmq_core.misfit(l.message, $3,'
                   ' $3) as fault offset 0) m'
                   ' where l.msg_id between $1 and $2 and m.fault is not null order by l.msg_id limit 1', log_name)
        into fault using first_id, last_id, its_schema;
    if fault is not null then
        perform spanmq_core.raise_misfit(this, 'a body', fault);
    end if;
end $$;

create or replace function spanmq_core.raise_misfit(this spanmq_core.queue, what text, fault text) returns void
language plpgsql as $$
begin
    raise exception '% does not fit the schema of queue %: $%', what, this.name, left(fault, 500)
        using errcode = 'MQ065',
        hint = format('Nothing was sent. select * from spanmq.get_schema(%L) shows the schema.', this.name);
end $$;

-- How many steps the check of all bodies of one call may take: a few seconds.
create or replace function spanmq_core.schema_steps_max() returns int
language sql immutable as $$
    select 250000
$$;

-- Where and why a value does not fit a schema that is valid, as a path that follows $ and a reason; null if it fits. It
-- does not quote the value.
create or replace function spanmq_core.misfit(body jsonb, schema jsonb, root jsonb) returns text
language sql immutable as $$
    select f.fault from spanmq_core.find_misfit(body, schema, root, spanmq_core.schema_steps_max()) f
$$;

-- The same within a number of steps; returns those that are left. A step is a comparison of a value with a schema, more
-- if the schema is large. Without a limit, 60 levels of two references each would take 2^60 comparisons.
create or replace function spanmq_core.find_misfit(body jsonb, schema jsonb, root jsonb, inout steps int,
                                                   out fault text)
language plpgsql immutable as $$
declare
    kind text := coalesce(jsonb_typeof(body), 'null');
    types jsonb := schema->'type';
    properties jsonb;
    others jsonb;
    reasons text;
    name text;
    n int := 0;
    part jsonb;
    part_schema jsonb;
    found record;
begin
    steps := steps - 1 - pg_column_size(schema) / 1000;
    if steps < 0 then
        fault := format(' takes more than %s steps to check', spanmq_core.schema_steps_max());
        return;
    end if;
    fault := ' ' || case
        when schema = 'false' then 'is not allowed'
        when not (types ? kind or kind = 'number' and types ? 'integer') then
            format('must be %s, not %s', case jsonb_typeof(types) when 'array' then format('one of %s', types)
                   else types #>> '{}' end, kind)
        when schema ? 'const' and coalesce(body, 'null') <> schema->'const' then format('must be %s', schema->'const')
        when kind = 'number' then case
            when types ? 'integer' and not types ? 'number' and body::numeric % 1 <> 0 then 'must be an integer'
            when body::numeric < (schema->'minimum')::numeric then format('must be at least %s', schema->'minimum')
            when body::numeric > (schema->'maximum')::numeric then format('must be at most %s', schema->'maximum')
            when body::numeric <= (schema->'exclusiveMinimum')::numeric then format('must be more than %s',
                schema->'exclusiveMinimum')
            when body::numeric >= (schema->'exclusiveMaximum')::numeric then format('must be less than %s',
                schema->'exclusiveMaximum') end
        when kind = 'string' and schema ?| '{minLength,maxLength}' then case
            when length(body #>> '{}') < (schema->'minLength')::numeric then format('must have at least %s characters',
                schema->'minLength')
            when length(body #>> '{}') > (schema->'maxLength')::numeric then format('must have at most %s characters',
                schema->'maxLength') end
        when kind = 'array' and schema ?| '{minItems,maxItems}' then case
            when jsonb_array_length(body) < (schema->'minItems')::numeric then format('must have at least %s items',
                schema->'minItems')
            when jsonb_array_length(body) > (schema->'maxItems')::numeric then format('must have at most %s items',
                schema->'maxItems') end
        end;
    if fault is null and schema ? 'enum' and not exists (select from jsonb_array_elements(schema->'enum') e
                                                         where e = coalesce(body, 'null')) then
        fault := format(' must be one of %s', schema->'enum');
    end if;
    if fault is null and kind = 'object' and schema ? 'required' then
        name := (select r from jsonb_array_elements_text(schema->'required') r where not body ? r limit 1);
        fault := case when name is not null then spanmq_core.member_place(name) || ' is missing' end;
    end if;
    if fault is not null then
        return;
    end if;
    if schema ? 'anyOf' then
        for part_schema in select * from jsonb_array_elements(schema->'anyOf') loop
            found := spanmq_core.find_misfit(body, part_schema, root, steps);
            steps := found.steps;
            reasons := case
                when found.fault is not null then concat_ws(', or ', reasons, left(ltrim(found.fault), 500)) end;
            exit when reasons is null or steps < 0;
        end loop;
        if reasons is not null then
            fault := case when steps < 0 then found.fault else ' fits nothing of anyOf: ' || left(reasons, 1000) end;
            return;
        end if;
    end if;
    for part_schema in
        select a from jsonb_array_elements(schema->'allOf') a
        union all select spanmq_core.schema_at(root, schema->>'$ref') where schema ? '$ref'
    loop
        found := spanmq_core.find_misfit(body, part_schema, root, steps);
        steps := found.steps;
        fault := found.fault;
        if fault is not null then
            return;
        end if;
    end loop;
    if kind = 'object' and schema ?| '{properties,additionalProperties}' then
        properties := schema->'properties';
        others := schema->'additionalProperties';
        for name, part in select * from jsonb_each(body) loop
            part_schema := coalesce(properties->name, others);
            if part_schema is null then
                steps := steps - 1;
                continue;
            end if;
            found := spanmq_core.find_misfit(part, part_schema, root, steps);
            steps := found.steps;
            if found.fault is not null then
                fault := spanmq_core.member_place(name) || found.fault;
                return;
            end if;
        end loop;
    elsif kind = 'array' and schema ? 'items' then
        part_schema := schema->'items';
        for part in select * from jsonb_array_elements(body) loop
            found := spanmq_core.find_misfit(part, part_schema, root, steps);
            steps := found.steps;
            if found.fault is not null then
                fault := format('[%s]', n) || found.fault;
                return;
            end if;
            n := n + 1;
        end loop;
    end if;
end $$;

-- A member of an object, as a part of a path.
create or replace function spanmq_core.member_place(name text) returns text
language sql immutable as $$
    select case when name ~ '^[A-Za-z_$][A-Za-z0-9_$]*$' then '.' || left(name, 100)
        else format('[%s]', to_json(left(name, 100))) end
$$;

-- The schema to which a $ref points: the root, or one of its definitions.
create or replace function spanmq_core.schema_at(root jsonb, ref text) returns jsonb
language sql immutable as $$
    select root #> string_to_array(substr(ref, 3), '/')
$$;

-- Where and why a schema is not valid or, if `checked`, can't be checked; null if it is valid.
create or replace function spanmq_core.schema_fault(schema jsonb, checked boolean) returns text
language plpgsql immutable as $$
declare
    rules jsonb := spanmq_core.schema_of_schemas();
    ref text;
    fault text;
begin
    if octet_length(schema::text) > 100000 then
        return ' has more than 100,000 bytes';
    end if;
    if not checked then
        rules := rules - 'additionalProperties';
    end if;
    fault := case when schema is not null then spanmq_core.misfit(schema, rules, rules) end;
    if fault is not null or schema is null or not checked then
        return fault;
    end if;
    ref := (select min(s->>'$ref') from spanmq_core.schemas_in(schema, true) s
            where not coalesce(s->>'$ref' ~ '^#(/([$]defs|definitions)/[^/~%]+)?$'
                               and spanmq_core.schema_at(schema, s->>'$ref') is not null, not s ? '$ref'));
    if ref is not null then
        return format('..$ref must be # or name one of $defs or definitions, got: %s', left(ref, 100));
    end if;
    ref := spanmq_core.endless_ref(schema);
    return '..$ref leads back to itself, or through more than 32 others: ' || left(ref, 100);
end $$;

-- A schema and all those within it, or only those for the same value. A value of const, enum, default or examples is
-- none.
create or replace function spanmq_core.schemas_in(schema jsonb, for_parts boolean) returns setof jsonb
language sql immutable as $$
    with recursive found (schema) as (
        select schemas_in.schema
        union all
        select s.value
        from found f
        cross join lateral (
            select e.value from jsonb_each(f.schema) k cross join lateral jsonb_array_elements(k.value) e
                where k.key in ('anyOf', 'allOf')
            union all
            select e.value from jsonb_each(f.schema) k cross join lateral jsonb_each(k.value) e
            where for_parts and k.key in ('properties', '$defs', 'definitions')
            union all
            select k.value from jsonb_each(f.schema) k where for_parts and k.key in ('items', 'additionalProperties')) s
        where jsonb_typeof(f.schema) = 'object')
    select f.schema from found f
$$;

-- A reference from which one can follow more than 32 references for one and the same value, as in a circle; null if
-- none exists.
create or replace function spanmq_core.endless_ref(root jsonb) returns text
language plpgsql immutable as $$
declare
    sources text[];
    targets text[];
    sources_left text[];
begin
    select array_agg(r.ref), array_agg(t.ref) into sources, targets
    from (select distinct s->>'$ref' as ref from spanmq_core.schemas_in(root, true) s where s ? '$ref') r
    cross join lateral (
        select distinct s->>'$ref' as ref from spanmq_core.schemas_in(spanmq_core.schema_at(root, r.ref), false) s
            where s ? '$ref') t;
    sources_left := sources;
    -- In each round those stay that lead to one that stayed: after n rounds the first of chains of n references.
    for n in 1 .. 32 loop
        exit when sources_left is null;
        sources_left := (select array_agg(distinct e.source) from unnest(sources, targets) e (source, target)
                         where e.target = any (sources_left));
    end loop;
    return (select min(l) from unnest(sources_left) l);
end $$;

-- The JSON Schema of the schemas that are checked, in terms of itself. The last line has keywords that say nothing
-- about what fits.
create or replace function spanmq_core.schema_of_schemas() returns jsonb
language sql immutable as $$
    select '{
        "type": ["object", "boolean"],
        "additionalProperties": false,
        "properties": {
            "type": {"anyOf": [{"$ref": "#/$defs/type"}, {"type": "array", "minItems": 1,
            "items": {"$ref": "#/$defs/type"}}]},
            "enum": {"type": "array", "minItems": 1}, "const": true,
            "properties": {"$ref": "#/$defs/schemas"}, "additionalProperties": {"$ref": "#"},
            "required": {"type": "array", "items": {"type": "string"}},
            "items": {"$ref": "#"}, "minItems": {"$ref": "#/$defs/size"}, "maxItems": {"$ref": "#/$defs/size"},
            "minLength": {"$ref": "#/$defs/size"}, "maxLength": {"$ref": "#/$defs/size"},
            "minimum": {"type": "number"}, "maximum": {"type": "number"},
            "exclusiveMinimum": {"type": "number"}, "exclusiveMaximum": {"type": "number"},
            "anyOf": {"$ref": "#/$defs/list"}, "allOf": {"$ref": "#/$defs/list"},
            "$ref": {"type": "string"}, "$defs": {"$ref": "#/$defs/schemas"},
            "definitions": {"$ref": "#/$defs/schemas"},
            "$schema": true, "$id": true, "$comment": true, "title": true, "description": true, "default": true,
            "examples": true,
            "deprecated": true, "readOnly": true, "writeOnly": true, "format": true
        },
        "$defs": {
            "type": {"enum": ["object", "array", "string", "number", "integer", "boolean", "null"]},
            "size": {"type": "integer", "minimum": 0},
            "schemas": {"type": "object", "additionalProperties": {"$ref": "#"}},
            "list": {"type": "array", "minItems": 1, "items": {"$ref": "#"}}
        }
    }'::jsonb
$$;
