-- Which of the columns that the statements need are there.
select attname from pg_attribute
where attrelid = to_regclass('msg_queue') and attnum > 0 and not attisdropped
