-- scenario: read_grouped fills from the oldest group
select * from pgmq.send_batch('orders', array['1', '2', '3', '4', '5', '6']::jsonb[], array['{"x-pgmq-group": "a"}', '{"x-pgmq-group": "b"}', '{"x-pgmq-group": "a"}', '{"x-pgmq-group": "c"}', '{"x-pgmq-group": "b"}', '{"x-pgmq-group": "a"}']::jsonb[]);
select * from pgmq.read_grouped('orders', 100, 4);
select * from pgmq.read_grouped('orders', 100, 10);
select * from pgmq.read_grouped('orders', 100, 10);
select * from pgmq.delete('orders', array[1, 3, 6]);
select * from pgmq.read_grouped('orders', 100, 10);

-- scenario: a group in work is left alone until it is settled
select * from pgmq.send_batch('orders', array['1', '2', '3', '4']::jsonb[], array['{"x-pgmq-group": "a"}', '{"x-pgmq-group": "a"}', '{"x-pgmq-group": "b"}', '{"x-pgmq-group": "a"}']::jsonb[]);
select msg_id from pgmq.read_grouped('orders', 100, 1);
select msg_id from pgmq.read_grouped('orders', 100, 10);
select msg_id from pgmq.read_grouped('orders', 100, 10);
select pgmq.delete('orders', 1);
select msg_id from pgmq.read_grouped('orders', 100, 1);
select pgmq.archive('orders', 2);
select msg_id, read_ct from pgmq.read_grouped('orders', 100, 10);

-- scenario: read_grouped_rr takes one of each group in turn
select * from pgmq.send_batch('orders', array['1', '2', '3', '4', '5', '6']::jsonb[], array['{"x-pgmq-group": "a"}', '{"x-pgmq-group": "a"}', '{"x-pgmq-group": "b"}', '{"x-pgmq-group": "a"}', '{"x-pgmq-group": "b"}', '{"x-pgmq-group": "c"}']::jsonb[]);
-- in order
select * from pgmq.read_grouped_rr('orders', 100, 10);
select * from pgmq.read_grouped_rr('orders', 100, 10);

-- scenario: read_grouped_rr with fewer than there are
select * from pgmq.send_batch('orders', array['1', '2', '3', '4', '5', '6']::jsonb[], array['{"x-pgmq-group": "a"}', '{"x-pgmq-group": "a"}', '{"x-pgmq-group": "b"}', '{"x-pgmq-group": "a"}', '{"x-pgmq-group": "b"}', '{"x-pgmq-group": "c"}']::jsonb[]);
-- in order
select msg_id from pgmq.read_grouped_rr('orders', 100, 4);
select msg_id from pgmq.read_grouped_rr('orders', 100, 4);
select pgmq.delete('orders', array[1, 2]);
-- in order
select msg_id from pgmq.read_grouped_rr('orders', 100, 4);

-- scenario: read_grouped_rr with fewer than there are groups takes the oldest
select * from pgmq.send_batch('orders', array['1', '2', '3', '4']::jsonb[], array['{"x-pgmq-group": "b"}', '{"x-pgmq-group": "a"}', '{"x-pgmq-group": "c"}', '{"x-pgmq-group": "b"}']::jsonb[]);
-- in order
select msg_id from pgmq.read_grouped_rr('orders', 100, 2);
-- in order
select msg_id from pgmq.read_grouped_rr('orders', 100, 2);

-- scenario: read_grouped_head takes the first of each group
select * from pgmq.send_batch('orders', array['1', '2', '3', '4', '5', '6']::jsonb[], array['{"x-pgmq-group": "a"}', '{"x-pgmq-group": "a"}', '{"x-pgmq-group": "b"}', '{"x-pgmq-group": "a"}', '{"x-pgmq-group": "b"}', '{"x-pgmq-group": "c"}']::jsonb[]);
select * from pgmq.read_grouped_head('orders', 100, 2);
select * from pgmq.read_grouped_head('orders', 100, 10);
select * from pgmq.read_grouped_head('orders', 100, 10);
select pgmq.delete('orders', 1);
select * from pgmq.read_grouped_head('orders', 100, 10);

-- scenario: messages without a group are one group
select * from pgmq.send_batch('orders', array['1', '2', '3', '4', '5']::jsonb[], array[null, '{}', '{"x-pgmq-group": null}', '{"x-pgmq-group": "a"}', '{"other": 1}']::jsonb[]);
select msg_id from pgmq.read_grouped_head('orders', 100, 10);
select pgmq.delete('orders', 1);
-- in order
select msg_id from pgmq.read_grouped_rr('orders', 100, 10);

-- scenario: the empty group is a group of its own
select * from pgmq.send_batch('orders', array['1', '2', '3']::jsonb[], array['{"x-pgmq-group": ""}', null, '{"x-pgmq-group": ""}']::jsonb[]);
select msg_id from pgmq.read_grouped_head('orders', 100, 10);

-- scenario: a group that is called as PGMQ calls those without
select * from pgmq.send_batch('orders', array['1', '2']::jsonb[], array['{"x-pgmq-group": "_default_fifo_group"}', null]::jsonb[]);
select msg_id from pgmq.read_grouped_head('orders', 100, 10);

-- scenario: groups named by other JSON than text
select * from pgmq.send_batch('orders', array['1', '2', '3', '4']::jsonb[], array['{"x-pgmq-group": 7}', '{"x-pgmq-group": "7"}', '{"x-pgmq-group": true}', '{"x-pgmq-group": {"a": 1}}']::jsonb[]);
select msg_id from pgmq.read_grouped_head('orders', 100, 10);

-- scenario: a delayed head holds its group for rr and head
select * from pgmq.send('orders', '1', '{"x-pgmq-group": "a"}', 200);
select * from pgmq.send('orders', '2', '{"x-pgmq-group": "a"}'::jsonb);
select * from pgmq.send('orders', '3', '{"x-pgmq-group": "b"}'::jsonb);
select msg_id from pgmq.read_grouped_rr('orders', 0, 10);
select msg_id from pgmq.read_grouped_head('orders', 0, 10);
select msg_id from pgmq.read_grouped('orders', 0, 10);
select msg_id from pgmq.set_vt('orders', 1, 0);
select msg_id from pgmq.read_grouped('orders', 100, 10);

-- scenario: an ended lease gives the group free from its head
select * from pgmq.send_batch('orders', array['1', '2', '3']::jsonb[], array['{"x-pgmq-group": "a"}', '{"x-pgmq-group": "a"}', '{"x-pgmq-group": "a"}']::jsonb[]);
select msg_id from pgmq.read_grouped('orders', 0, 2);
select msg_id, read_ct from pgmq.read_grouped('orders', 100, 10);

-- scenario: grouped polls
select * from pgmq.send_batch('orders', array['1', '2', '3', '4']::jsonb[], array['{"x-pgmq-group": "a"}', '{"x-pgmq-group": "b"}', '{"x-pgmq-group": "a"}', '{"x-pgmq-group": "c"}']::jsonb[]);
select * from pgmq.read_grouped_with_poll('orders', 100, 2);
select * from pgmq.read_grouped_rr_with_poll('orders', 100, 1, 5);
select * from pgmq.read_grouped_head_with_poll(queue_name => 'orders', vt => 100, qty => 5, max_poll_seconds => 5, poll_interval_ms => 100);

-- scenario: plain reads take no notice of groups
select * from pgmq.send_batch('orders', array['1', '2', '3']::jsonb[], array['{"x-pgmq-group": "a"}', '{"x-pgmq-group": "a"}', '{"x-pgmq-group": "b"}']::jsonb[]);
select msg_id from pgmq.read('orders', 100, 1);
select msg_id from pgmq.read('orders', 100, 1);
select msg_id from pgmq.pop('orders');

-- scenario: grouped reads outside READ COMMITTED
select * from pgmq.send('orders', '1');
begin isolation level repeatable read;
-- differs: whether a group is free can be judged only by a statement begun after its lock was taken
-- upstream: 1
-- here: error MQ003: a grouped read needs READ COMMITTED, not REPEATABLE READ
select msg_id from pgmq.read_grouped('orders', 100, 1);
rollback;

-- scenario: grouped reads of no quantity
select * from pgmq.send('orders', '1');
-- differs: refused as everywhere
-- upstream: nothing
-- here: error MQ002: qty cannot be NULL
select msg_id from pgmq.read_grouped('orders', 0, null);
-- differs: refused as everywhere
-- upstream: nothing
-- here: error MQ002: qty cannot be NULL
select msg_id from pgmq.read_grouped_rr('orders', 0, null);
-- differs: refused as everywhere
-- upstream: nothing
-- here: error 2201W: LIMIT must not be negative
select msg_id from pgmq.read_grouped_rr('orders', 0, -1);

-- scenario: a message that was put back holds its group until it is visible
select * from pgmq.send_batch('orders', array['1', '2', '3']::jsonb[], array['{"x-pgmq-group": "a"}', '{"x-pgmq-group": "a"}', '{"x-pgmq-group": "b"}']::jsonb[]);
select msg_id from pgmq.read_grouped('orders', 100, 1);
select msg_id from pgmq.set_vt('orders', 1, 200);
select msg_id from pgmq.read_grouped_head('orders', 100, 10);
select msg_id from pgmq.read_grouped_rr('orders', 100, 10);
select msg_id from pgmq.set_vt('orders', 1, 0);
-- in order
select msg_id, read_ct from pgmq.read_grouped_rr('orders', 100, 10);

-- scenario: plain and grouped reads beside each other
select * from pgmq.send_batch('orders', array['1', '2', '3', '4']::jsonb[], array['{"x-pgmq-group": "a"}', '{"x-pgmq-group": "a"}', '{"x-pgmq-group": "b"}', null]::jsonb[]);
select msg_id from pgmq.read('orders', 100, 1);
select msg_id from pgmq.read_grouped('orders', 100, 10);
select pgmq.delete('orders', 1);
select msg_id from pgmq.read_grouped('orders', 100, 10);

-- scenario: many groups, and many messages of each
select count(*) from pgmq.send_batch('orders', array(select to_jsonb(n) from generate_series(0, 599) n), array(select jsonb_build_object('x-pgmq-group', n % 20) from generate_series(0, 599) n));
-- in order
select msg_id from pgmq.read_grouped_rr('orders', 100, 30);
-- in order
select msg_id from pgmq.read_grouped('orders', 100, 50);
select count(*) from pgmq.read_grouped_head('orders', 100, 50);
select count(*) from pgmq.delete('orders', array(select msg_id from pgmq.q_orders where vt > now() + interval '50 seconds'));
select msg_id from pgmq.read_grouped_head('orders', 100, 50);

-- scenario: a group goes on when all of it that was in work is settled, in whatever order
select count(*) from pgmq.send_batch('orders', array_fill('1'::jsonb, array[40]), array_fill('{"x-pgmq-group": "a"}'::jsonb, array[40]));
select count(*) from pgmq.read_grouped('orders', 1000, 30);
select pgmq.delete('orders', 30);
select count(*) from pgmq.archive('orders', array(select n::bigint from generate_series(2, 29) n));
select count(*) from pgmq.read_grouped('orders', 1000, 30);
select pgmq.delete('orders', 1);
select count(*) from pgmq.read_grouped('orders', 1000, 30);

-- scenario: the oldest free groups come first, behind many that are in work
select count(*) from pgmq.send_batch('orders', array_fill('1'::jsonb, array[800]), array(select jsonb_build_object('x-pgmq-group', (i % 400)::text) from generate_series(1, 800) i));
select count(*) from pgmq.read_grouped_head('orders', 1000, 400);
select count(*) from pgmq.send_batch('orders', array_fill('1'::jsonb, array[100]), array(select jsonb_build_object('x-pgmq-group', (400 + i % 50)::text) from generate_series(1, 100) i));
-- in order
select msg_id from pgmq.read_grouped_rr('orders', 1000, 3);
select msg_id from pgmq.read_grouped('orders', 1000, 3);
select msg_id from pgmq.read_grouped_head('orders', 1000, 3);
