-- since 0.1.0
-- One logical queue over several queues, its shards, in this database and in others. Each of these holds a copy of the
-- map.
--   epoch    rises by one with each change; a send by an older map raises an error
--   shards   {"queue": "server", ...}: where a message may go. The client interprets the server's name.
--   former   null, or the shards before a change that is under way: a group stays where it has messages
create table spanmq_core.shard_map (
    name text primary key,
    epoch bigint not null check (epoch > 0),
    routing text not null check (routing in ('group', 'key', 'turn')),
    shards jsonb not null check (jsonb_typeof(shards) = 'object' and shards <> '{}'),
    former jsonb check (jsonb_typeof(former) = 'object' and former <> '{}')
);
