-- scenario: a message that was read is hidden
select * from pgmq.send_batch('orders', array['1', '2', '3']::jsonb[]);
select * from pgmq.read('orders', 100, 2);
select * from pgmq.read('orders', 200, 2);
select * from pgmq.read('orders', 100, 2);
select * from pgmq.q_orders;

-- scenario: read takes the lowest ids
select count(*) from pgmq.send_batch('orders', array(select to_jsonb(n) from generate_series(1, 20) n));
select msg_id from pgmq.read('orders', 100, 3);
select msg_id from pgmq.read('orders', 100, 3);
select msg_id from pgmq.set_vt('orders', 2, 0);
select msg_id, read_ct from pgmq.read('orders', 100, 3);

-- scenario: a visibility timeout of nothing, or less, hides nothing
select * from pgmq.send('orders', '1');
select * from pgmq.read('orders', 0, 1);
select * from pgmq.read('orders', -200, 1);
select * from pgmq.read('orders', 100, 1);
select * from pgmq.read('orders', 100, 1);

-- scenario: quantities of nothing, and less
select * from pgmq.send('orders', '1');
select * from pgmq.read('orders', 100, 0);
select * from pgmq.read('orders', 100, -1);
select * from pgmq.pop('orders', 0);
select * from pgmq.pop('orders', -1);
select * from pgmq.read_grouped('orders', 100, 0);
select * from pgmq.read_grouped('orders', 100, -1);
select * from pgmq.read_grouped_rr('orders', 100, 0);
select * from pgmq.read_grouped_head('orders', 100, 0);
select * from pgmq.read_grouped_head('orders', 100, -1);
select * from pgmq.read('orders', 100, 1);

-- scenario: null arguments
select * from pgmq.send_batch('orders', array['1', '2']::jsonb[]);
-- differs: W18, a null must not lease the whole queue
-- upstream: 1
-- upstream: 2
-- here: error MQ002: qty cannot be NULL
select msg_id from pgmq.read('orders', 0, null);
-- differs: typed
-- upstream: error 23502: null value in column "vt" of relation "q_orders" violates not-null constraint
-- here: error MQ002: vt cannot be NULL
select msg_id from pgmq.read('orders', null, 1);
select msg_id from pgmq.read('orders', 0, 1, null);
-- differs: W18
-- upstream: 1
-- upstream: 2
-- here: error MQ002: qty cannot be NULL
select msg_id from pgmq.pop('orders', null);

-- scenario: conditional reads
select * from pgmq.send_batch('orders', array['{"type": "a", "n": 1}', '{"type": "b", "n": 2}', '{"type": "a", "n": 3}', '{"type": "b", "tags": ["x", "y"]}', '[1, 2]', 'null']::jsonb[]);
select * from pgmq.read('orders', 100, 1, '{"type": "b"}');
select * from pgmq.read('orders', 100, 10, '{"type": "c"}');
select * from pgmq.read('orders', 100, 10, conditional => '{"tags": ["y"]}');
select * from pgmq.read('orders', 100, 10, '{"type": "b"}');
select * from pgmq.read('orders', 100, 10, '[2]');
select * from pgmq.read('orders', 100, 10, '{}');
select * from pgmq.send('orders', '{"type": "b"}');
select * from pgmq.read_with_poll('orders', 100, 10, 5, 10, '{"type": "b"}');

-- scenario: a conditional read finds delayed messages when they are due, and leased ones when the lease ended
select * from pgmq.send('orders', '{"type": "a"}', 100);
select * from pgmq.send('orders', '{"type": "a"}');
select * from pgmq.read('orders', 0, 1, '{"type": "a"}');
select * from pgmq.set_vt('orders', 1, -1);
select * from pgmq.read('orders', 100, 10, '{"type": "a"}');

-- scenario: a conditional read of a null body
select * from pgmq.send('orders', null);
select * from pgmq.read('orders', 100, 1, '{"a": 1}');
select * from pgmq.read('orders', 100, 1);

-- scenario: pop takes out and leaves read counts
select * from pgmq.send_batch('orders', array['1', '2', '3', '4', '5']::jsonb[], array['{"x": 1}', null, null, null, null]::jsonb[]);
select * from pgmq.read('orders', 0, 2);
select * from pgmq.pop('orders');
select * from pgmq.pop('orders', 2);
select * from pgmq.pop(queue_name => 'orders', qty => 10);
select * from pgmq.pop('orders');
select * from pgmq.q_orders;

-- scenario: pop leaves what is hidden
select * from pgmq.send('orders', '1', 100);
select * from pgmq.send('orders', '2');
select * from pgmq.send('orders', '3');
select * from pgmq.read('orders', 100, 1);
select * from pgmq.pop('orders', 10);
select * from pgmq.pop('orders', 10);

-- scenario: a poll that finds messages returns at once
select * from pgmq.send_batch('orders', array['1', '2', '3', '4']::jsonb[]);
select * from pgmq.read_with_poll('orders', 100, 1);
select * from pgmq.read_with_poll('orders', 100, 2, 5);
select * from pgmq.read_with_poll(queue_name => 'orders', vt => 100, qty => 10, max_poll_seconds => 5, poll_interval_ms => 100, conditional => '{}');
select * from pgmq.q_orders;

-- scenario: a poll that finds nothing returns nothing
select * from pgmq.read_with_poll('orders', 100, 1, 1, 50);

-- scenario: a poll of no seconds does not even look
select * from pgmq.send('orders', '1');
select * from pgmq.read_with_poll('orders', 100, 1, 0);
select * from pgmq.read_grouped_with_poll('orders', 100, 1, 0);
select * from pgmq.read_grouped_rr_with_poll('orders', 100, 1, 0);
select * from pgmq.read_grouped_head_with_poll('orders', 100, 1, 0);
select * from pgmq.read_with_poll('orders', 100, 1, -1);

-- scenario: reading in a transaction that rolls back
select * from pgmq.send('orders', '1');
begin;
select * from pgmq.read('orders', 100, 1);
select * from pgmq.pop('orders');
rollback;
select * from pgmq.read('orders', 100, 1);

-- scenario: reading in REPEATABLE READ
select * from pgmq.send_batch('orders', array['1', '2', '3']::jsonb[]);
begin isolation level repeatable read;
select * from pgmq.read('orders', 100, 1);
select * from pgmq.pop('orders');
select pgmq.delete('orders', 1);
select * from pgmq.set_vt('orders', 3, 100);
commit;
select msg_id, read_ct, vt from pgmq.q_orders;
