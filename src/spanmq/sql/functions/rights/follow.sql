-- Table privileges as verbs, for an installation that follows them: roles that PGMQ's programs granted table privileges
-- to work without a grant of a verb. What the owner granted on pgmq.q_<name> and pgmq.a_<name> is compared with what
-- was followed before, and each difference granted or revoked. A verb needs the privileges for all that it shows or
-- changes, so that it opens nothing that the table privileges leave closed.

create or replace function spanmq_core.is_following() returns boolean
language sql stable as $$ select exists (select from spanmq_core.following) $$;

-- The verbs that roles have by privileges on the view and the archive of a queue, or (null) of each. Left out are a
-- verb that the role has on all queues, which comes with SELECT, and pg_monitor, to which the installation grants
-- SELECT. A privilege that another role than the owner passed on does not count: the owner could not revoke it.
create or replace function spanmq_core.verbs_by_privileges(
    this_queue int
) returns table (queue_id int, role text, verb text)
language sql stable as $$
    select g.queue_id, g.role, v.verb
    from (select q.queue_id, case when a.grantee = 0 then 'public' else pg_get_userbyid(a.grantee)::text end as role,
                 array_agg(a.privilege_type) filter (where c.oid = q.queue_view) as on_queue,
                 array_agg(a.privilege_type) filter (where c.oid <> q.queue_view) as on_archive
          from spanmq_core.queue q
          cross join lateral unnest(array[q.queue_view, spanmq_core.archive_of(q)]) r (relation)
          join pg_class c on c.oid = r.relation
          cross join lateral aclexplode(c.relacl) a
          where (this_queue is null or q.queue_id = this_queue) and a.grantee <> c.relowner and a.grantor = c.relowner
          group by 1, 2) g
    cross join lateral (values
        ('send', '{INSERT}'::text[], '{}'::text[]),
        ('look', '{SELECT}', '{SELECT}'),
        ('receive', '{SELECT,UPDATE,DELETE}', '{SELECT,INSERT}'),
        ('manage', '{SELECT,INSERT,UPDATE,DELETE,TRUNCATE}', '{SELECT,INSERT,UPDATE,DELETE,TRUNCATE}')
    ) v (verb, needs_on_queue, needs_on_archive)
    where g.on_queue @> v.needs_on_queue and (v.needs_on_archive = '{}' or g.on_archive @> v.needs_on_archive)
      and (v.verb <> 'manage' or g.role <> 'public') and g.role <> 'pg_monitor'
      and g.role not in (select spanmq_core.grantees_of(v.verb, null))
$$;

-- The queues, this one or (null) of all, whose table privileges are not as they were when they were last followed.
create or replace function spanmq_core.queues_to_follow(this_queue int) returns setof int
language sql stable as $$
    with by_privileges as (select p.queue_id, p.role, p.verb from spanmq_core.verbs_by_privileges(this_queue) p),
    followed as (select f.queue_id, f.role, f.verb from spanmq_core.followed_grant f
                 where this_queue is null or f.queue_id = this_queue)
    select d.queue_id from (select * from by_privileges except select * from followed) d
    union
    select d.queue_id from (select * from followed except select * from by_privileges) d
$$;

-- Grants and revokes what the privileges on a queue's relations have gained and lost, and revokes those to close.
create or replace function spanmq_core.follow(this spanmq_core.queue) returns void
language plpgsql as $$
declare
    each record;
begin
    -- As in grant_queue(): a queue that is about to be dropped gets no wrappers.
    perform spanmq_core.lock_name('queue', this.folded_name);
    if not exists (select from spanmq_core.queue q where q.queue_id = this.queue_id) then
        return;
    end if;
    perform spanmq_core.lock(this.queue_id, 'rights');
    perform spanmq_core.close_privileges(this.queue_id);
    for each in
        select f.role, f.verb from spanmq_core.followed_grant f where f.queue_id = this.queue_id
        except select p.role, p.verb from spanmq_core.verbs_by_privileges(this.queue_id) p
    loop
        perform spanmq_core.unfollow(this, each.role, each.verb);
    end loop;
    for each in
        select p.role, p.verb from spanmq_core.verbs_by_privileges(this.queue_id) p
        except select f.role, f.verb from spanmq_core.followed_grant f where f.queue_id = this.queue_id
    loop
        insert into spanmq_core.followed_grant (queue_id, role, verb, was_granted)
            values (this.queue_id, each.role, each.verb,
                    each.role in (select spanmq_core.grantees_of(each.verb, this.queue_id)));
        execute format('grant execute on function %s to %s',
                       array_to_string(spanmq_core.make_wrappers(this, each.verb), ', '),
                       spanmq_core.role_name(each.role));
    end loop;
end $$;

-- Revokes a verb that was followed, with those that include it. A role that was dropped has none.
create or replace function spanmq_core.unfollow(this spanmq_core.queue, role_name text, verb_lost text) returns void
language plpgsql as $$
declare
    verbs text[] := array(select v from unnest(spanmq_core.verbs_of('manage')) v
                          where verb_lost = any (spanmq_core.verbs_of(v)));
    each text;
begin
    delete from spanmq_core.followed_grant f where f.queue_id = this.queue_id and f.role = role_name
        and f.verb = any (verbs);
    foreach each in array verbs loop
        if spanmq_core.has_wrappers(this.queue_id, each)
            and (role_name = 'public' or to_regrole(quote_ident(role_name)) is not null) then
            execute format('revoke execute on function %s from %s cascade',
                           array_to_string(spanmq_core.make_wrappers(this, each), ', '),
                           spanmq_core.role_name(role_name));
        end if;
    end loop;
end $$;

-- Revokes the table privileges by which a role would have these verbs on a queue again; open_to() revokes SELECT.
create or replace function spanmq_core.close_verbs(this spanmq_core.queue, grantee text, verbs text[]) returns void
language plpgsql as $$
begin
    execute format('revoke %s on %s from %s cascade', (
        select string_agg(p.privileges, ', ')
        from (values ('send', 'insert'), ('receive', 'update, delete'), ('manage', 'truncate')) p (verb, privileges)
        where p.verb = any (verbs)), this.queue_view, grantee);
end $$;

-- The part of maintain() for table privileges, a row for each queue whose privileges have changed.
create or replace function spanmq_core.follow_changes(budget int) returns table (action text, queue text, detail text)
language plpgsql as $$
declare
    this spanmq_core.queue;
begin
    -- By chance: one at which this fails must not keep the others.
    for this in
        select q.* from spanmq_core.queue q where q.queue_id in (select spanmq_core.queues_to_follow(null))
        order by random() limit budget
    loop
        begin
            perform spanmq_core.follow(this);
            action := 'followed table grants';
            queue := this.name;
            return next;
        exception
            when lock_not_available then
                continue;
            when others then
                raise warning 'maintain() can''t follow the table grants of queue "%": %', this.name, sqlerrm;
                continue;
        end;
    end loop;
end $$;

-- Follows the table privileges of a queue at a call whose caller lacks the verb: so a grant counts at once, also where
-- no maintenance runs. Returns whether something was followed. It waits no longer than five seconds for another session
-- that does so, and whatever keeps it from following (a standby, an old snapshot), it returns false. Any role may call
-- it: it does only what maintain() does next.
create or replace function spanmq_call.follow_now(this_queue int) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
begin
    if not spanmq_core.is_following() or this_queue not in (select spanmq_core.queues_to_follow(this_queue)) then
        return false;
    end if;
    perform spanmq_core.follow(q) from spanmq_core.queue q where q.queue_id = this_queue;
    return true;
exception when others then
    return false;
end $$;

-- Makes table grants count as verbs. On pgmq.q_<name>, INSERT is the verb send, SELECT is look, SELECT with UPDATE and
-- DELETE is receive, and all of these with TRUNCATE, as by GRANT ALL, are manage. On the archive, look also needs
-- SELECT, receive SELECT and INSERT, and manage all of these. Default privileges and later grants count too, from the
-- next call of the role. If a grant is revoked, its verb ends when this function is called again or maintain() runs.
-- Grants of TRIGGER and REFERENCES on these relations, and of more than SELECT on the sequence of ids, are revoked.
-- false: stops that, and revokes the verbs that came by it. Returns the verbs that roles have by table grants. Only
-- the owner of the schema and superusers may call it.
create or replace function spanmq_call.follow_table_grants(
    follow boolean default true
) returns table (queue_name text, role text, verb text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform spanmq_core.raise_if(follow is null, 'follow cannot be NULL',
                                 'Pass true to follow table grants, false to stop.');
    perform spanmq_core.lock(0, 'rights');
    if follow then
        insert into spanmq_core.following default values on conflict do nothing;
        perform spanmq_core.close_privileges(null);
        perform spanmq_core.follow(q) from spanmq_core.queue q
            where q.queue_id in (select spanmq_core.queues_to_follow(null)) order by q.queue_id;
    else
        delete from spanmq_core.following;
        delete from spanmq_core.followed_grant f where f.was_granted;
        perform spanmq_core.unfollow(q, f.role, f.verb) from spanmq_core.followed_grant f join spanmq_core.queue q
            using (queue_id);
    end if;
    return query
        select q.name::text, f.role, f.verb from spanmq_core.followed_grant f join spanmq_core.queue q using (queue_id)
        where not f.was_granted order by 1, 2, array_position(spanmq_core.all_verbs(), f.verb);
end $$;
