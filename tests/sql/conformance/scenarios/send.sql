-- scenario: every form of send
select * from pgmq.send('orders', '{"a": 1}');
select * from pgmq.send(queue_name => 'orders', msg => '{"a": 2}');
select * from pgmq.send('orders', '{"a": 3}', '{"x": 1}'::jsonb);
select * from pgmq.send(queue_name => 'orders', msg => '{"a": 4}', headers => '{"x": 2}');
select * from pgmq.send('orders', '{"a": 5}', 200);
select * from pgmq.send(queue_name => 'orders', msg => '{"a": 6}', delay => 300);
select * from pgmq.send('orders', '{"a": 7}', now() + interval '400 seconds');
select * from pgmq.send(queue_name => 'orders', msg => '{"a": 8}', delay => '2100-01-01 00:00:00+00'::timestamptz);
select * from pgmq.send('orders', '{"a": 9}', '{"x": 3}', 500);
select * from pgmq.send(queue_name => 'orders', msg => '{"a": 10}', headers => '{"x": 4}', delay => 0);
select * from pgmq.send('orders', '{"a": 11}', '{"x": 5}', clock_timestamp() + interval '600 seconds');
select * from pgmq.send(queue_name => 'orders', msg => '{"a": 12}', headers => null, delay => '2100-01-01 00:00:00+00'::timestamptz);
select * from pgmq.q_orders order by msg_id;
select * from pgmq.read('orders', 100, 20);

-- scenario: every form of send_batch
select * from pgmq.send_batch('orders', array['{"a": 1}', '{"a": 2}']::jsonb[]);
select * from pgmq.send_batch(queue_name => 'orders', msgs => array['{"a": 3}']::jsonb[]);
select * from pgmq.send_batch('orders', array['{"a": 4}', '{"a": 5}']::jsonb[], array['{"x": 1}', '{"x": 2}']::jsonb[]);
select * from pgmq.send_batch(queue_name => 'orders', msgs => array['{"a": 6}']::jsonb[], headers => array['{"x": 3}']::jsonb[]);
select * from pgmq.send_batch('orders', array['{"a": 7}', '{"a": 8}']::jsonb[], 200);
select * from pgmq.send_batch(queue_name => 'orders', msgs => array['{"a": 9}']::jsonb[], delay => 300);
select * from pgmq.send_batch('orders', array['{"a": 10}']::jsonb[], now() + interval '400 seconds');
select * from pgmq.send_batch(queue_name => 'orders', msgs => array['{"a": 11}']::jsonb[], delay => '2100-01-01 00:00:00+00'::timestamptz);
select * from pgmq.send_batch('orders', array['{"a": 12}', '{"a": 13}']::jsonb[], array['{"x": 4}', '{"x": 5}']::jsonb[], 500);
select * from pgmq.send_batch('orders', array['{"a": 14}']::jsonb[], array['{"x": 6}']::jsonb[], now() + interval '600 seconds');
select * from pgmq.send_batch(queue_name => 'orders', msgs => array['{"a": 15}', '{"a": 16}']::jsonb[], headers => null, delay => 0);
select * from pgmq.send_batch(queue_name => 'orders', msgs => array['{"a": 17}']::jsonb[], headers => array[null]::jsonb[], delay => '2020-01-01 00:00:00+00'::timestamptz);
select * from pgmq.q_orders where msg_id < 17 order by msg_id;
-- differs: what was never delayed has no vt of its own
-- upstream: 17 | 0 | now | null | 2020-01-01T00:00:00+00:00 | {"a": 17} | null
-- here: 17 | 0 | now | null | now | {"a": 17} | null
select * from pgmq.q_orders where msg_id = 17;

-- scenario: functions that return sets also stand in the select list
select pgmq.send('orders', '{"a": 1}');
select pgmq.send_batch('orders', array['{"a": 2}', '{"a": 3}']::jsonb[]);
select pgmq.delete('orders', array[1, 2]);
select array(select pgmq.send_batch('orders', array['4', '5']::jsonb[]));

-- scenario: bodies of every kind of JSON
select * from pgmq.send('orders', 'null');
select * from pgmq.send('orders', 'true');
select * from pgmq.send('orders', '-1.50');
select * from pgmq.send('orders', '"text"');
select * from pgmq.send('orders', '[1, {"a": []}]');
select * from pgmq.send('orders', '{}');
select * from pgmq.send('orders', null);
select * from pgmq.send('orders', 'not json');
select msg_id, message, message is null as is_null, message::text as text from pgmq.read('orders', 100, 10);

-- scenario: wrong batches
select * from pgmq.send_batch('orders', null);
select * from pgmq.send_batch('orders', '{}'::jsonb[]);
select * from pgmq.send_batch('orders', array['1', '2']::jsonb[], array['{}']::jsonb[]);
select * from pgmq.send_batch('orders', array['1', '2']::jsonb[], '{}'::jsonb[]);
select * from pgmq.send_batch('orders', array['1']::jsonb[], array['{}', '{}']::jsonb[], 100);
select * from pgmq.send_batch('orders', array['1']::jsonb[], array['{}', '{}']::jsonb[], now());
select * from pgmq.send_batch('orders', '{}'::jsonb[], 100);
select * from pgmq.send_batch('orders', null, now());
select * from pgmq.q_orders;

-- scenario: an untyped third argument is ambiguous
select pgmq.send('orders', '{}', '{"a": 1}');
select pgmq.send('orders', '{}', '10');
select pgmq.send_batch('orders', array['{}']::jsonb[], '{}');

-- scenario: null and negative delays
-- differs: typed, and checked before anything is drawn
-- upstream: error 23502: null value in column "vt" of relation "q_orders" violates not-null constraint
-- here: error MQ002: delay cannot be NULL
select pgmq.send('orders', '{}', null::int);
-- differs: typed
-- upstream: error 23502: null value in column "vt" of relation "q_orders" violates not-null constraint
-- here: error MQ002: delay cannot be NULL or infinite
select pgmq.send('orders', '{}', null::timestamptz);
-- differs: W18, send_topic refuses it too
-- upstream: 3
-- here: error P0001: delay cannot be negative, got: -1
select pgmq.send('orders', '{}', -1);
-- differs: W18
-- upstream: 4
-- here: error P0001: delay cannot be negative, got: -1
select pgmq.send_batch('orders', array['{}']::jsonb[], -1);
-- differs: no client can read such a time
-- upstream: 5
-- here: error MQ002: delay cannot be NULL or infinite
select pgmq.send('orders', '{}', 'infinity'::timestamptz);

-- scenario: a rollback leaves a gap and nothing else
select * from pgmq.send('orders', '1');
begin;
select * from pgmq.send('orders', '2');
select * from pgmq.read('orders', 100, 10);
rollback;
select * from pgmq.send('orders', '3');
select * from pgmq.read('orders', 100, 10);

-- scenario: large batches and bodies
select count(*), min(id), max(id) from pgmq.send_batch('orders', array(select to_jsonb(n) from generate_series(1, 1000) n)) id;
select count(*) from pgmq.send('orders', to_jsonb(repeat('x', 1000000)));
select count(*), min(msg_id), max(msg_id), sum(message::text::int) from pgmq.read('orders', 100, 1000);
select msg_id, length(message #>> '{}') from pgmq.read('orders', 100, 1000);

-- scenario: a message sent in this transaction can be read, settled and sent again in it
begin;
select * from pgmq.send_batch('orders', array['1', '2', '3']::jsonb[]);
select * from pgmq.read('orders', 100, 2);
select pgmq.delete('orders', 1);
select pgmq.archive('orders', 2);
select * from pgmq.pop('orders');
select * from pgmq.send('orders', '4');
commit;
select msg_id from pgmq.q_orders;
select msg_id from pgmq.a_orders;
