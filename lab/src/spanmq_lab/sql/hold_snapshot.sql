-- In a transaction that repeats its reads: what is deleted from now on stays on disk until it ends.
select pg_current_snapshot()
