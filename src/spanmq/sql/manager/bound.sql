-- The upgrade waits two seconds for a table that another transaction uses, because other calls wait behind it.
select pg_catalog.set_config('lock_timeout', case when t.ms between 1 and 2000 then t.ms::text else '2000' end, true)
from (select setting::int as ms from pg_catalog.pg_settings where name = 'lock_timeout') t;
