-- Omits large bodies when many messages are listed.

-- The body, or in place of one that takes more bytes (as it is stored, which may be compressed) {"spanmq.cut": bytes}.
-- Reads nothing of what it cuts.
create or replace function spanmq_core.cut(body jsonb, bytes_max integer) returns jsonb
language sql stable as $$
    select case when body is null or bytes_max is null or pg_catalog.pg_column_size(body) <= bytes_max then body
                else pg_catalog.jsonb_build_object('spanmq.cut', pg_catalog.pg_column_size(body)) end
$$;

-- Raises MQ002 for an invalid limit.
create or replace function spanmq_core.check_body_bytes(body_bytes_max integer) returns void
language plpgsql immutable as $$
begin
    perform spanmq_core.raise_if(body_bytes_max < 0,
        format('body_bytes_max cannot be negative, got: %s', body_bytes_max), 'Omit it for whole bodies.');
end $$;
