-- scenario: metrics of one queue
select * from pgmq.metrics('orders');
select * from pgmq.send_batch('orders', array['1', '2', '3']::jsonb[]);
select * from pgmq.send('orders', '4', 100);
select * from pgmq.metrics('orders');
select msg_id from pgmq.read('orders', 100, 1);
select * from pgmq.metrics(queue_name => 'orders');
select * from pgmq.delete('orders', array[1, 2]);
select * from pgmq.metrics('orders');
select msg_id from pgmq.set_vt('orders', 4, 0);
select pgmq.archive('orders', 3);
select * from pgmq.metrics('orders');
select pgmq.purge_queue('orders');
select * from pgmq.metrics('orders');

-- scenario: a lease that ended counts as visible
select * from pgmq.send_batch('orders', array['1', '2', '3']::jsonb[]);
select msg_id from pgmq.read('orders', 0, 2);
select pgmq.delete('orders', 1);
select queue_length, queue_visible_length from pgmq.metrics('orders');

-- scenario: metrics of all queues
select * from pgmq.metrics_all();
select pgmq.create('orders');
select pgmq.create('invoices');
select * from pgmq.send_batch('orders', array['1', '2']::jsonb[]);
select * from pgmq.metrics_all();

-- scenario: total_messages counts ids, with those that a rollback drew
begin;
select * from pgmq.send_batch('orders', array['1', '2']::jsonb[]);
rollback;
select queue_length, total_messages from pgmq.metrics('orders');
