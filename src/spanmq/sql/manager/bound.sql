-- A table that a long transaction uses is waited for only so long: calls that need it wait behind this one.
select pg_catalog.set_config('lock_timeout', case when t.ms between 1 and 2000 then t.ms::text else '2000' end, true)
from (select setting::int as ms from pg_catalog.pg_settings where name = 'lock_timeout') t;
