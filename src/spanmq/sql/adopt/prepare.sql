-- The tables in which a take-over records what it finds. Their schema is dropped before the transaction ends.
do $name$
begin
    if to_regnamespace('spanmq_adopt') is not null then
        raise exception 'schema spanmq_adopt exists, and a take-over needs its name for itself'
            using errcode = 'MQ004', hint = 'Rename it, and run it again.';
    end if;
end
$name$;
create schema spanmq_adopt;

-- A row of pgmq.meta a queue; names that differ in case only are one queue, under the name that was there first.
create table spanmq_adopt.queue (
    name text primary key,
    folded_name text collate "C" not null unique,
    other_names text[] not null,
    is_partitioned boolean not null,
    is_unlogged boolean not null,
    created_at timestamptz not null,
    source regclass,                  -- pgmq.q_...; null: the table is missing
    archive regclass,                 -- pgmq.a_...; null: likewise
    owner name,
    messages bigint not null default 0,
    hidden bigint not null default 0,
    archived bigint not null default 0,
    first_id bigint,
    last_id bigint,                   -- of the sequence; null: none was drawn
    repeated bigint not null default 0,  -- messages whose id another has too: a partitioned table has no key
    notify_ms int,
    topics text[] not null default '{}',
    grantees text[] not null default '{}',
    retention text,                   -- as pg_partman has it for the archive
    notes text[] not null default '{}',
    queue_id int                      -- once it is ours
);

create table spanmq_adopt.topic (
    pattern text not null, folded_name text collate "C" not null, bound_at timestamptz not null);

-- The functions of PGMQ 1.4 to 1.13, by name and argument types: any other function in the schema is the user's own.
create table spanmq_adopt.signature (name text not null, arguments text not null, primary key (name, arguments));
insert into spanmq_adopt.signature
select name, known.arguments from (values
    ('', '{_ensure_pg_partman_installed,_get_pg_partman_major_version,_get_pg_partman_schema,create_fifo_indexes_all,
        list_notify_insert_throttles,
        list_queues,list_topic_bindings,metrics_all,notify_queue_listeners}'),
    ('text', '{_belongs_to_pgmq,_create_fifo_index_if_not_exists,_extension_exists,_get_partition_col,
        acquire_queue_lock,create,create_fifo_index,
        create_non_partitioned,create_unlogged,detach_archive,disable_notify_insert,drop_queue,enable_notify_insert,
        list_topic_bindings,metrics,pop,
        purge_queue,test_routing,validate_queue_name,validate_routing_key,validate_topic_pattern}'),
    ('jsonb[], jsonb[]', '{_validate_batch_params}'),
    ('text, bigint', '{archive,delete}'),
    ('text, bigint[]', '{archive,delete}'),
    ('text, boolean', '{drop_queue}'),
    ('text, integer', '{enable_notify_insert,pop,update_notify_insert}'),
    ('text, jsonb', '{send,send_topic}'),
    ('text, jsonb[]', '{send_batch,send_batch_topic}'),
    ('text, text', '{bind_topic,format_table_name,unbind_topic}'),
    ('text, bigint, integer', '{set_vt}'),
    ('text, bigint, timestamp with time zone', '{set_vt}'),
    ('text, bigint[], integer', '{set_vt}'),
    ('text, bigint[], timestamp with time zone', '{set_vt}'),
    ('text, integer, integer', '{read,read_grouped,read_grouped_head,read_grouped_rr}'),
    ('text, jsonb, integer', '{send,send_topic}'),
    ('text, jsonb, jsonb', '{send}'),
    ('text, jsonb, timestamp with time zone', '{send}'),
    ('text, jsonb[], integer', '{send_batch,send_batch_topic}'),
    ('text, jsonb[], jsonb[]', '{send_batch,send_batch_topic}'),
    ('text, jsonb[], timestamp with time zone', '{send_batch,send_batch_topic}'),
    ('text, text, text', '{create_partitioned}'),
    ('text, integer, integer, jsonb', '{read}'),
    ('text, jsonb, jsonb, integer', '{send,send_topic}'),
    ('text, jsonb, jsonb, timestamp with time zone', '{send}'),
    ('text, jsonb[], jsonb[], integer', '{send_batch,send_batch_topic}'),
    ('text, jsonb[], jsonb[], timestamp with time zone', '{_send_batch,send_batch,send_batch_topic}'),
    ('text, text, text, integer', '{convert_archive_partitioned,create_partitioned}'),
    ('text, integer, integer, integer, integer',
     '{read_grouped_head_with_poll,read_grouped_rr_with_poll,read_grouped_with_poll,read_with_poll}'),
    ('text, integer, integer, integer, integer, jsonb', '{read_with_poll}')
) known (arguments, names), unnest(known.names::text[]) name;

-- The objects to drop, as pg_depend names them. An extension has its own list.
create table spanmq_adopt.doomed (classid oid not null, objid oid not null, primary key (classid, objid));
-- With the right to execute a function, where it is not the default: it goes over to ours of the same arguments.
create table spanmq_adopt.function_grant (name text not null, arguments text not null, grants aclitem[] not null,
                                          owner oid not null);
-- The readers of PGMQ's tables of settings: they may read the replacements.
create table spanmq_adopt.reader (table_name name not null, role text not null);
-- The user's own functions in the schema, to see afterwards that none was replaced.
create table spanmq_adopt.own_function (oid oid primary key, source text not null);


-- The relations of which the take-over reads rows or keeps the table, with their partitions and children. Place: names
-- (pgmq.meta), settings (the other two tables), partman (pg_partman's settings), queue or archive.
create table spanmq_adopt.relation (oid oid primary key, place text not null, folded_name text collate "C");
-- The obstacles that are found before any row is read; folded_name: whose messages are not counted therefore.
create table spanmq_adopt.obstacle (object text not null, reason text not null, folded_name text collate "C");
