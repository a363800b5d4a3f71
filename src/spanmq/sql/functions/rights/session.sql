-- Sessions of the service's pages: each stands for the token whose secret was presented. Roles that may check tokens
-- may manage sessions, because without a valid secret, or the key of a session, neither has any effect.

-- Opens a session for the token with that secret, if it is valid now, otherwise no row. It ends after `seconds`, and no
-- later than its token or that secret. Deletes some sessions that have ended. Raises MQ002 for an invalid hash or time.
create or replace function spanmq.open_session(
    secret_hash text, key_hash text, seconds double precision default 43200
) returns setof spanmq.token
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    until_ timestamptz := spanmq_core.after(seconds, 'seconds');
    token spanmq_core.token;
begin
    perform spanmq_core.check_secret_hash(secret_hash);
    perform spanmq_core.check_secret_hash(key_hash);
    perform spanmq_core.raise_if(seconds <= 0,
        format('seconds must be a positive number, got: %s', seconds), 'Pass a number of seconds above 0.');
    delete from spanmq_core.session s where s.key_hash in (
        select o.key_hash from spanmq_core.session o where o.expires_at < clock_timestamp() order by o.expires_at
            limit 100 for update skip locked);
    select t.* into token from spanmq_core.token t
        where spanmq_core.is_good(t, open_session.secret_hash)
        -- A concurrent revocation waits, and deletes the session, too.
        for key share;
    if found then
        insert into spanmq_core.session (key_hash, token_id, secret_hash, expires_at)
            values (open_session.key_hash, token.token_id, open_session.secret_hash, until_);
        return next spanmq_core.token_row(token);
    end if;
end $$;

-- The token of an open session, in its current state; no row if no such session is open.
create or replace function spanmq.check_session(key_hash text) returns setof spanmq.token
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
    return query
        select (spanmq_core.token_row(t)).*
        from spanmq_core.session s join spanmq_core.token t on t.token_id = s.token_id
        where s.key_hash = check_session.key_hash and s.expires_at > clock_timestamp()
        and spanmq_core.is_good(t, s.secret_hash);
end $$;

-- Ends a session; false if no such session was open. Services are notified at once.
create or replace function spanmq.close_session(key_hash text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    delete from spanmq_core.session s where s.key_hash = close_session.key_hash;
    return spanmq_core.tell_access(found);
end $$;
