-- scenario: enable, change, list and disable
select pgmq.create('invoices');
select * from pgmq.list_notify_insert_throttles();
select pgmq.enable_notify_insert('orders');
select pgmq.enable_notify_insert(queue_name => 'invoices', throttle_interval_ms => 0);
-- in order
select * from pgmq.list_notify_insert_throttles();
select * from pgmq.notify_insert_throttle;
select pgmq.update_notify_insert('orders', 1000);
select pgmq.update_notify_insert(queue_name => 'invoices', throttle_interval_ms => 5);
-- in order
select * from pgmq.list_notify_insert_throttles();
select pgmq.enable_notify_insert('orders', 300);
select pgmq.disable_notify_insert('invoices');
select pgmq.disable_notify_insert(queue_name => 'invoices');
select queue_name, throttle_interval_ms from pgmq.list_notify_insert_throttles();
select pgmq.drop_queue('orders');
select * from pgmq.list_notify_insert_throttles();

-- scenario: when a queue last notified can be read
select pgmq.enable_notify_insert('orders', 100);
select pgmq.send('orders', '1');
select * from pgmq.list_notify_insert_throttles();
select * from pgmq.notify_insert_throttle;
select pgmq.update_notify_insert('orders', 200);
select * from pgmq.list_notify_insert_throttles();

-- scenario: wrong throttles and queues
select pgmq.enable_notify_insert('orders', -1);
select pgmq.enable_notify_insert('missing');
select pgmq.enable_notify_insert('bad;name');
select pgmq.update_notify_insert('missing', 100);
select pgmq.update_notify_insert('orders', 100);
select pgmq.update_notify_insert('orders', -1);
select pgmq.disable_notify_insert('missing');
select pgmq.disable_notify_insert('orders');
select * from pgmq.list_notify_insert_throttles();

-- scenario: no throttle at all
-- differs: typed
-- upstream: error 23502: null value in column "throttle_interval_ms" of relation "notify_insert_throttle" violates not-null constraint
-- here: error P0001: throttle_interval_ms must be non-negative
select pgmq.enable_notify_insert('orders', null);
