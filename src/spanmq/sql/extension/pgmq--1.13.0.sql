-- An extension without objects, for programs that begin with CREATE EXTENSION pgmq. It does not fail in a database
-- without spanmq, because a restore creates extensions before all else.
do $$
begin
    if pg_catalog.to_regprocedure('spanmq.version()') is null then
        raise warning 'this database has no queues of spanmq yet'
            using hint = 'Unless it is being restored: spanmq schema install.';
    end if;
end $$;
