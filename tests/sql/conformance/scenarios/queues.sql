-- scenario: create, list and drop
select pgmq.create_non_partitioned('invoices');
select pgmq.create_unlogged('clicks');
select * from pgmq.list_queues();
select * from pgmq.meta;
select * from pgmq.drop_queue('invoices');
select * from pgmq.list_queues();
select queue_name, is_partitioned, is_unlogged, created_at from pgmq.meta;
select pgmq.drop_queue(queue_name => 'orders');

-- scenario: creating twice changes nothing
select * from pgmq.send('orders', '{"a": 1}');
select pgmq.create('orders');
select pgmq.create_non_partitioned('orders');
select * from pgmq.list_queues();
select * from pgmq.read('orders', 100, 10);

-- scenario: creating a queue of another kind under the same name changes nothing
select pgmq.create_unlogged('orders');
select pgmq.create_non_partitioned('orders');
select * from pgmq.list_queues();

-- scenario: dropping a queue that is not there says so and is false
select * from pgmq.drop_queue('orders');
select pgmq.create('orders');
select * from pgmq.drop_queue('orders');
select * from pgmq.drop_queue('orders');

-- scenario: the old form of drop_queue warns and is always true
select pgmq.drop_queue('orders', false);
select pgmq.drop_queue('orders', partitioned => true);
select * from pgmq.list_queues();

-- scenario: a queue made again under an old name starts anew
select * from pgmq.send_batch('orders', array['{"a": 1}', '{"a": 2}']::jsonb[]);
select pgmq.archive('orders', 1);
select pgmq.drop_queue('orders');
select pgmq.create('orders');
select * from pgmq.a_orders;
select * from pgmq.send('orders', '{"a": 3}');

-- scenario: dropping takes the tables with it
select pgmq.drop_queue('orders');
select to_regclass('pgmq.q_orders'), to_regclass('pgmq.a_orders'), to_regclass('pgmq.q_orders_msg_id_seq');
select * from pgmq.q_orders;
select pgmq.send('orders', '{}');

-- scenario: creating and dropping are transactional
begin;
select pgmq.create('orders');
select * from pgmq.send('orders', '{}');
rollback;
select * from pgmq.list_queues();
select pgmq.create('orders');
select * from pgmq.send('orders', '{}');
begin;
select pgmq.drop_queue('orders');
rollback;
select * from pgmq.send('orders', '{}');

-- scenario: purge empties the queue and leaves ids and archive
select * from pgmq.send_batch('orders', array['1', '2', '3', '4']::jsonb[]);
select pgmq.archive('orders', 4);
select * from pgmq.read('orders', 100, 1);
select pgmq.purge_queue('orders');
select pgmq.purge_queue(queue_name => 'orders');
select * from pgmq.read('orders', 100, 1);
select * from pgmq.send('orders', '5');
select msg_id from pgmq.a_orders;

-- scenario: detach_archive is a no-op that warns
select pgmq.detach_archive('orders');
select pgmq.detach_archive('missing');
select pgmq.detach_archive('bad;name');

-- scenario: fifo indexes
select pgmq.create_fifo_index('orders');
select pgmq.create_fifo_index('orders');
select pgmq.create_fifo_indexes_all();
select pgmq.create_fifo_index('missing');

-- scenario: acquire_queue_lock holds to the end of the transaction
begin;
select pgmq.acquire_queue_lock('orders');
select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid() and granted;
commit;
select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid();

-- scenario: partitioned queues need no pg_partman here
-- differs: W19, every log is segmented
-- upstream: error P0001: pg_partman is required for partitioned queues
-- here: ''
select pgmq.create_partitioned('orders');
-- differs: W19
-- upstream: error P0001: pg_partman is required for partitioned queues
-- here: ''
select pgmq.create_partitioned('events', '1 day', '7 days', 2);
-- differs: W19
-- upstream: error P0001: pg_partman is required for partitioned queues
-- here: error P0001: premake must be at least 1, got 0
select pgmq.create_partitioned('clicks', premake => 0);
-- differs: W19
-- upstream: nothing
-- here: events | true | false
-- here: orders | true | false
select queue_name, is_partitioned, is_unlogged from pgmq.list_queues();

-- scenario: converting the archive of a missing queue is said and does nothing
-- differs: PGMQ's text has %s where % was meant
-- upstream: notice: Table a_missings does not exists
-- upstream: ''
-- here: notice: Table a_missing does not exists
-- here: ''
select pgmq.convert_archive_partitioned('missing');

-- scenario: an unknown queue
select pgmq.send('missing', '{}');
select pgmq.send_batch('missing', array['{}']::jsonb[]);
select * from pgmq.read('missing', 100, 1);
select * from pgmq.read_with_poll('missing', 100, 1, 1, 10);
select * from pgmq.pop('missing');
select * from pgmq.read_grouped('missing', 100, 1);
select * from pgmq.read_grouped_rr('missing', 100, 1);
select * from pgmq.read_grouped_head('missing', 100, 1);
select pgmq.delete('missing', 1);
select pgmq.delete('missing', array[1]);
select pgmq.archive('missing', 1);
select pgmq.archive('missing', array[1]);
select * from pgmq.set_vt('missing', 1, 100);
select * from pgmq.set_vt('missing', array[1], 100);
select pgmq.purge_queue('missing');
select * from pgmq.metrics('missing');

-- scenario: an archive is given a retention without pg_partman
select pgmq.send('orders', '1');
select pgmq.archive('orders', 1);
-- differs: W19
-- upstream: error 22004: null values cannot be formatted as an SQL identifier
-- here: ''
select pgmq.convert_archive_partitioned('orders', '10000', '7 days');
select msg_id from pgmq.a_orders;
