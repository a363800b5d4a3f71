-- Tokens of the HTTP service. A token lets its bearer act with the rights of the service's role, so only roles
-- with the verb `admin` handle them, and the service, which has the verb `serve`, checks them.

-- Raises MQ002 for what is no SHA-256 in hexadecimal digits.
create or replace function spanmq_core.check_secret_hash(secret_hash text) returns void
language plpgsql immutable as $$
begin
    if secret_hash is null or secret_hash !~ '^[0-9a-f]{64}$' then
        -- Without the value: a secret that was passed by mistake must not appear in the server's log.
        raise exception 'secret_hash must be the SHA-256 of a secret, in 64 hexadecimal digits'
            using errcode = 'MQ002', hint = 'Pass the hash, not the secret.';
    end if;
end $$;

-- Raises MQ002 for a hash that is not valid, or that a token has or had before its last rotation.
create or replace function spanmq_core.check_new_secret_hash(secret_hash text) returns void
language plpgsql as $$
begin
    perform spanmq_core.check_secret_hash(secret_hash);
    perform spanmq_core.raise_if(exists (select from spanmq_core.token t
                                         where check_new_secret_hash.secret_hash in (t.secret_hash, t.previous_hash)),
        'a token has this secret already', 'Make a new secret.');
end $$;

-- Raises MQ002 for patterns that fit no queue's name, and verbs that there are not.
create or replace function spanmq_core.check_scope(queues text[], verbs text[]) returns void
language plpgsql immutable as $$
declare
    unfit text;
begin
    perform spanmq_core.raise_if(queues is null or cardinality(queues) not between 1 and 100,
        '1 to 100 patterns of queues are needed', '* stands for all queues.');
    select q into unfit from unnest(queues) q where q is null or q !~ '^[^$;''[:cntrl:]]{1,47}$' limit 1;
    perform spanmq_core.raise_if(found, format('no queue has a name like %L', unfit),
                                 'Use the characters of names, and * for any of them.');
    perform spanmq_core.raise_if(verbs is null or cardinality(verbs) = 0, 'a scope needs a verb',
                                 'send, receive, look, manage.');
    select v into unfit from unnest(verbs) v where v is null or v not in ('send', 'receive', 'look', 'manage') limit 1;
    perform spanmq_core.raise_if(found, format('there is no verb %L', unfit), 'send, receive, look, manage.');
end $$;

-- Tells services that they should ask again if a token, a key or a session is not any more what it was, and returns
-- whether. They hear it at commit.
create or replace function spanmq_core.tell_access(has_changed boolean) returns boolean
language plpgsql as $$
begin
    if has_changed then
        perform spanmq_core.notify_channel('spanmq.access');
    end if;
    return has_changed;
end $$;

create or replace function spanmq_core.token_row(this spanmq_core.token) returns spanmq.token
language sql immutable as $$
    select row(this.name, this.queues, this.verbs, this.created_at, this.expires_at, this.rotated_at)::spanmq.token
$$;

-- Whether that is the hash of a token's secret, and the token is good now. One expression: what asks by it finds the
-- index.
create or replace function spanmq_core.is_good(this spanmq_core.token, hash text) returns boolean
language sql volatile as $$
    select (this.secret_hash = hash or this.previous_hash = hash and this.previous_until > pg_catalog.clock_timestamp())
        and (this.expires_at is null or this.expires_at > pg_catalog.clock_timestamp())
$$;

-- Creates a token from the hash of its secret. Raises MQ002 for a name that is in use or empty, a pattern that no name
-- of a queue can match, an unknown verb, or a time in the past.
create or replace function spanmq_call.create_token(name text, secret_hash text, queues text[], verbs text[],
                                                    expires_at timestamptz default null)
returns spanmq.token
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    made spanmq_core.token;
begin
    perform spanmq_core.check_new_secret_hash(secret_hash);
    perform spanmq_core.raise_if(name is null or octet_length(name) not between 1 and 100,
        'the name of a token must have 1 to 100 bytes', 'Choose another name.');
    perform spanmq_core.check_scope(queues, verbs);
    perform spanmq_core.raise_if(expires_at <= clock_timestamp(),
        format('the token would have expired at %s', expires_at), 'Pass a future time, or none.');
    insert into spanmq_core.token as t (name, secret_hash, queues, verbs, expires_at)
        values (create_token.name, create_token.secret_hash, create_token.queues,
                array(select distinct v from unnest(create_token.verbs) v order by v), create_token.expires_at)
        on conflict do nothing
        returning * into made;
    perform spanmq_core.raise_if(not found, format('there is a token %s', quote_literal(name)),
                                 'spanmq.rotate_token() gives it a new secret.');
    return spanmq_core.token_row(made);
end $$;

-- The tokens by name, including expired ones, without the hashes of their secrets.
create or replace function spanmq.list_tokens() returns setof spanmq.token
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
    return query select (spanmq_core.token_row(t)).* from spanmq_core.token t order by t.name;
end $$;

-- Revokes a token; false if no token has this name. Services that listen are notified at once, others see it within
-- seconds.
create or replace function spanmq_call.revoke_token(name text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    delete from spanmq_core.token t where t.name = revoke_token.name;
    return spanmq_core.tell_access(found);
end $$;

-- Replaces the secret of a token. The previous one is valid for `overlap` more seconds; older ones end at once. False
-- if none of that name exists. Raises MQ002 for an invalid hash or time.
create or replace function spanmq_call.rotate_token(
    name text, secret_hash text, overlap double precision default 0
) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    until_ timestamptz := spanmq_core.after(overlap, 'overlap');
begin
    perform spanmq_core.check_new_secret_hash(secret_hash);
    perform spanmq_core.raise_if(overlap < 0, format('overlap cannot be negative, got: %L', overlap),
                                 '0 ends the secret before at once.');
    update spanmq_core.token t
        set previous_hash = case when overlap > 0 then t.secret_hash end,
        previous_until = case when overlap > 0 then until_ end,
            secret_hash = rotate_token.secret_hash, rotated_at = clock_timestamp()
        where t.name = rotate_token.name;
    return spanmq_core.tell_access(found);
end $$;

-- The token with that hash, if it is valid now, otherwise no row.
create or replace function spanmq.check_token(secret_hash text) returns setof spanmq.token
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
    return query
        select (spanmq_core.token_row(t)).* from spanmq_core.token t
        where spanmq_core.is_good(t, check_token.secret_hash);
end $$;
