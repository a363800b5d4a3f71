-- The upgrade waits two seconds for a table that another transaction uses, because other calls wait behind it.
do $bound$
declare
    milliseconds int := (select s.setting from pg_catalog.pg_settings s where s.name = 'lock_timeout');
begin
    if milliseconds not between 1 and 2000 then
        set local lock_timeout = '2s';
    end if;
end
$bound$;
