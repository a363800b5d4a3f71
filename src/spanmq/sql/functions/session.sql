-- Sessions of people in the service's pages: each stands for the token whose secret was shown. Who may check tokens may keep sessions,
-- for without a secret that is good, or the key of a session, neither gives anything.

-- Opens a session for the token with that secret, if it is good now: no row otherwise, whatever the reason. It ends after `seconds`, and
-- no later than its token or that secret. Deletes some sessions that have ended. Raises MQ002 for what is no hash or no time, 42501
-- without the right to look at tokens.
create or replace function pgmq.open_session(secret_hash text, key_hash text, seconds double precision default 43200) returns setof pgmq.token
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    until_ timestamptz := spanmq.after(seconds, 'seconds');
    token spanmq.token;
begin
    perform spanmq.check_token_right('select');
    perform spanmq.check_secret_hash(secret_hash);
    perform spanmq.check_secret_hash(key_hash);
    if seconds <= 0 then
        raise exception 'seconds must be a positive number, got: %', seconds
            using errcode = 'MQ002', hint = 'Give a number of seconds above 0.';
    end if;
    delete from spanmq.session s where s.key_hash in (
        select o.key_hash from spanmq.session o where o.expires_at < clock_timestamp() order by o.expires_at limit 100 for update skip locked);
    select t.* into token from spanmq.token t
        where spanmq.is_good(t, open_session.secret_hash)
        -- Who revokes it meanwhile waits, and takes the session along.
        for key share;
    if found then
        insert into spanmq.session (key_hash, token_id, secret_hash, expires_at)
            values (open_session.key_hash, token.token_id, open_session.secret_hash, until_);
        return next spanmq.token_row(token);
    end if;
end $$;

-- The token of a session that runs, as it is now: no row otherwise. Raises 42501 without the right to look at tokens.
create or replace function pgmq.check_session(key_hash text) returns setof pgmq.token
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform spanmq.check_token_right('select');
    return query
        select (spanmq.token_row(t)).*
        from spanmq.session s join spanmq.token t on t.token_id = s.token_id
        where s.key_hash = check_session.key_hash and s.expires_at > clock_timestamp() and spanmq.is_good(t, s.secret_hash);
end $$;

-- Ends a session; false if there was none. Services hear of it at once. Raises 42501 without the right to look at tokens.
create or replace function pgmq.close_session(key_hash text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform spanmq.check_token_right('select');
    delete from spanmq.session s where s.key_hash = close_session.key_hash;
    if found then
        perform spanmq.tell_access();
        return true;
    end if;
    return false;
end $$;
