-- Positions that are kept outside of the database: a lake's manifest, an offset of a stream over an archive. Each is
-- noted here under a random token, in a transaction that commits before the position is used. A database that went back
-- in time (a cold copy, a recovery to a point in time, a standby that lagged) does not know the tokens of what it lost,
-- whichever ids and transactions it has assigned since.

-- Records a position, and returns its token, which is valid when the transaction has committed. follows is the token
-- of the position before it (null: the first of a lake or stream). witnesses are tokens that sessions recorded after
-- they had read the rows of the position. All these tokens must be known here. The hundred positions of a lake or
-- stream before `follows` are kept, and 10,000 positions of a role in a queue. Raises MQ055 for an unknown token.
create or replace function spanmq_call.note_position(queue text, follows uuid default null,
                                                     witnesses uuid[] default '{}', of_caller uuid default null)
returns uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    by_role name := spanmq_core.take_caller(of_caller);
    before spanmq_core.position;
    noted uuid := gen_random_uuid();
begin
    perform spanmq_core.commit_durably();
    select * into before from spanmq_core.position p where p.token = note_position.follows
        and p.queue_id = this.queue_id;
    if before.token is distinct from note_position.follows
            or spanmq_call.known_positions(queue, witnesses) is distinct from array(select distinct w
                from unnest(witnesses) w order by w) then
        perform spanmq_core.raise_unknown_position(this.name);
    end if;
    perform spanmq_core.hold_queue(this);
    insert into spanmq_core.position (token, queue_id, chain, noted_by)
        values (noted, this.queue_id, coalesce(before.chain, noted), by_role);
    -- With a savepoint, it is not the transaction that pg_current_xact_id() names.
    update spanmq_core.position p set written_by = p.xmin where p.token = noted;
    delete from spanmq_core.position p where p.token = any (witnesses) and p.chain = p.token
        and p.queue_id = this.queue_id and p.noted_by = by_role;
    -- Those after `follows` stay: one of them may be in use, by a run that was killed.
    delete from spanmq_core.position p where p.chain = before.chain and p.position_id < (
        select o.position_id from spanmq_core.position o where o.chain = before.chain
            and o.position_id <= before.position_id
        order by o.position_id desc offset 100 limit 1);
    delete from spanmq_core.position p where p.queue_id = this.queue_id and p.noted_by = by_role and p.position_id < (
        select o.position_id from spanmq_core.position o where o.queue_id = this.queue_id and o.noted_by = by_role
        order by o.position_id desc offset 9999 limit 1);
    return noted;
end $$;

-- The tokens of positions, and of batches of receivers, that are known for a queue, among those given, sorted.
create or replace function spanmq_call.known_positions(queue text, tokens uuid[]) returns uuid[]
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
begin
    return array(
        select p.token from spanmq_core.position p where p.queue_id = this.queue_id and p.token = any (tokens)
        union
        select t.token from spanmq_core.receiver_batch b cross join unnest(array[b.token, b.follows]) t (token)
        where b.queue_id = this.queue_id and t.token = any (tokens)
        order by 1);
end $$;

-- Raises MQ055.
create or replace function spanmq_core.raise_unknown_position(queue text) returns void
language plpgsql as $$
begin
    raise exception 'this database does not know the position in queue %', queue
        using errcode = 'MQ055',
        detail = 'It was restored to an earlier time, is a standby that lagged, or the position is of'
                 ' another database.',
            hint = '`spanmq pipeline restored` shows the difference and continues with this database.';
end $$;

-- Makes the commit of this transaction wait for the disk, whatever the session set: what it returns is used outside of
-- the database.
create or replace function spanmq_core.commit_durably() returns void
language plpgsql as $$
begin
    if current_setting('synchronous_commit') = 'off' then
        perform set_config('synchronous_commit', 'on', true);
    end if;
end $$;
