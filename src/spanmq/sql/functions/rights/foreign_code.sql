-- Code of other roles on archives. Our functions write an archive with the rights of the schemas' owner, and a trigger
-- there would run with them. Owners may have triggers on their archives; those of other roles are refused.

-- A table with its partitions and children.
create or replace function spanmq_core.tree_of(root regclass) returns setof regclass
language sql stable as $$
    with recursive tree (relation) as (
        select root::oid union select i.inhrelid from tree t join pg_inherits i on i.inhparent = t.relation)
    select t.relation::regclass from tree t
$$;

-- Locks an archive for writing, as a write does, and checks it. By its name: the number of a table that is dropped
-- meanwhile would be an error of syntax. From then on no trigger is made, and nothing renames or drops the archive: so
-- its queue, of which the drop begins with the archive, is there, too.
create or replace function spanmq_core.hold_archive(folded_name text, place regclass, kinds text[]) returns void
language plpgsql as $$
begin
    execute format('lock table pgmq.%I in row exclusive mode', 'a_' || folded_name);
    perform spanmq_core.check_held_archive(folded_name, place, kinds);
end $$;

-- Raises 42501 if other roles have hung code of a kind on an archive that is locked, 42P01 if the table of that name is
-- not `place`.
create or replace function spanmq_core.check_held_archive(folded_name text, place regclass, kinds text[]) returns void
language plpgsql as $$
begin
    if to_regclass(spanmq_core.archive_name(folded_name)) is distinct from place then
        raise exception 'relation "pgmq.a_%" does not exist', folded_name
            using errcode = '42P01', hint = 'It was replaced meanwhile. Call again.';
    elsif (select c.relhastriggers or c.relhassubclass from pg_class c where c.oid = place) then
        perform spanmq_core.check_code(place, kinds);
    end if;
    if not spanmq_core.sees_now() then
        perform spanmq_core.check_no_trigger_can_be_new(place);
    end if;
end $$;

create or replace function spanmq_core.check_code(place regclass, kinds text[]) returns void
language plpgsql stable as $$
declare
    foreign_code record;
begin
    select f.kind, f.name, f.detail into foreign_code from (:foreign_code) f
        where f.kind = any (kinds) and f.relation in (select t from spanmq_core.tree_of(place) t)
        order by 1, 2 limit 1;
    if found then
        raise exception '% % %: it would act with the rights of the owner', foreign_code.kind, foreign_code.name,
            foreign_code.detail
            using errcode = '42501', hint = case foreign_code.kind when 'trigger' then
                'Drop it. A trigger of the owner calls a function of the owner, without arguments and conditions'
                ' unless only the owner may execute that function.' else 'Drop it.' end;
    end if;
end $$;

-- Raises MQ003 if a role may make triggers on an archive. For transactions with an old snapshot, which doesn't show
-- triggers that were made since; has_table_privilege() looks at the present.
create or replace function spanmq_core.check_no_trigger_can_be_new(place regclass) returns void
language plpgsql stable as $$
declare
    its_owner oid := (select c.relowner from pg_class c where c.oid = place);
begin
    perform spanmq_core.raise_if(
        exists (select from pg_roles r cross join spanmq_core.tree_of(place) t
                where has_table_privilege(r.oid, t, 'trigger') and not pg_has_role(r.oid, its_owner, 'usage')),
        format('archiving into %s needs READ COMMITTED, not %s: a role has TRIGGER on it', place,
               upper(current_setting('transaction_isolation'))),
        'Revoke TRIGGER, as maintain() does.', 'MQ003');
end $$;
