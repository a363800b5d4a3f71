-- Keys of the SQS protocol. The owner of a key acts with the rights of the service's role, so only roles with the verb
-- `admin` manage keys, and the service, which has the verb `serve`, looks them up.

-- Creates a key. Raises MQ002 for an id that is in use, a pattern that no name of a queue can match, an unknown verb,
-- or a time in the past.
create or replace function spanmq_call.create_access_key(access_key_id text, secret text, queues text[], verbs text[],
                                                         expires_at timestamptz default null)
returns spanmq.access_key
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    made spanmq_core.access_key;
begin
    perform spanmq_core.check_scope(queues, verbs);
    perform spanmq_core.raise_if(
        (access_key_id ~ '^[A-Z0-9]{16,128}$' and octet_length(secret) between 16 and 200) is not true,
        'an access key needs an id of 16 to 128 capitals and digits, and a secret of 16 to 200 bytes',
        'Pass both, or use the client, which creates them.');
    perform spanmq_core.raise_if(expires_at <= clock_timestamp(),
        format('the key would have expired at %s', expires_at), 'Pass a future time, or none.');
    insert into spanmq_core.access_key as k (access_key_id, secret, queues, verbs, expires_at)
        values (create_access_key.access_key_id, create_access_key.secret, create_access_key.queues,
                array(select distinct v from unnest(create_access_key.verbs) v order by v),
                create_access_key.expires_at)
        on conflict do nothing
        returning * into made;
    perform spanmq_core.raise_if(not found, format('key %s exists', quote_literal(access_key_id)), 'Use another id.');
    return row(made.access_key_id, made.queues, made.verbs, made.created_at, made.expires_at)::spanmq.access_key;
end $$;

-- The keys by id, without their secrets, including expired ones.
create or replace function spanmq.list_access_keys() returns setof spanmq.access_key
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
    return query select k.access_key_id, k.queues, k.verbs, k.created_at, k.expires_at from spanmq_core.access_key k
        order by k.access_key_id;
end $$;

-- Revokes a key; false if no key has this id. Services that listen are notified at once, others see it within seconds.
create or replace function spanmq_call.revoke_access_key(access_key_id text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    delete from spanmq_core.access_key k where k.access_key_id = revoke_access_key.access_key_id;
    return spanmq_core.tell_access(found);
end $$;

-- The key with its secret if it is valid now, for checking signatures; otherwise no row.
create or replace function spanmq.find_access_key(access_key_id text)
returns table (secret text, queues text[], verbs text[])
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
    return query select k.secret, k.queues, k.verbs from spanmq_core.access_key k
        where k.access_key_id = find_access_key.access_key_id
        and (k.expires_at is null or k.expires_at > clock_timestamp());
end $$;
