-- The bindings of topics, which was pgmq.topic_bindings: with a privilege on a table there, a role could run code with
-- the owner's rights, and lock what all queues share. pgmq.topic_bindings is a view of it: functions/catalog_views.sql.
alter table pgmq.topic_bindings set schema spanmq_core;
alter table spanmq_core.topic_bindings rename to topic_binding;

-- How many changes of its role, and of its token or command, a change is in its day: a look at the last one is enough
-- to bound them. Null: of an older release.
alter table spanmq_core.change add column of_role int, add column of_actor int;
create index change_actor on spanmq_core.change (role, coalesce(actor, ''), changed_at);

-- A process that registers deletes those that have expired, and looks at no other.
create index listener_expiry on spanmq_core.listener (expires_at);
