-- scenario: tables are named in lower case, queues as given
select pgmq.create('MyOrders');
select queue_name from pgmq.list_queues();
select * from pgmq.send('MyOrders', '{"a": 1}');
select * from pgmq.send('myorders', '{"a": 2}');
select * from pgmq.read('MYORDERS', 100, 10);
select msg_id from pgmq.q_myorders;
select pgmq.archive('MyOrders', 1);
select msg_id from pgmq.a_myorders;
select queue_name, queue_length from pgmq.metrics('MyOrders');
select queue_name, queue_length from pgmq.metrics('myorders');
select pgmq.drop_queue('MyOrders');
select * from pgmq.list_queues();

-- scenario: spaces, dots, hyphens, quotes, backslashes and percent signs
select pgmq.create('my orders');
select pgmq.create('my.orders');
select pgmq.create('my-orders');
select pgmq.create('my"orders');
select pgmq.create('my\orders');
select pgmq.create('100%');
select queue_name from pgmq.list_queues();
select * from pgmq.send('my orders', '1');
select * from pgmq.send('my.orders', '2');
select * from pgmq.send('my-orders', '3');
select * from pgmq.send('my"orders', '4');
select * from pgmq.send('my\orders', '5');
select * from pgmq.send('100%', '6');
select message from pgmq.read('my orders', 100, 1);
select message from pgmq.read('my.orders', 100, 1);
select message from pgmq.read('my-orders', 100, 1);
select message from pgmq.read('my"orders', 100, 1);
select message from pgmq.read('my\orders', 100, 1);
select message from pgmq.read('100%', 100, 1);
select message from pgmq."q_my orders";
select message from pgmq."q_my.orders";
select message from pgmq."q_my""orders";
select pgmq.archive('my"orders', 1);
select message from pgmq."a_my""orders";
select queue_name, queue_length, total_messages from pgmq.metrics_all();
select pgmq.drop_queue('my"orders');
select pgmq.drop_queue('my orders');
select queue_name from pgmq.list_queues();

-- scenario: letters beyond ASCII
select pgmq.create('bestellungen_für_größe');
select pgmq.create('注文');
select * from pgmq.send('注文', '{"品": "本"}');
select * from pgmq.read('注文', 100, 1);
select queue_name from pgmq.list_queues();
select pgmq.drop_queue('注文');

-- scenario: reserved words
select pgmq.create('select');
select pgmq.create('user');
select * from pgmq.send('select', '1');
select * from pgmq.read('select', 100, 1);
select message from pgmq.q_select;

-- scenario: forbidden characters
select pgmq.create('a$b');
select pgmq.create('a;b');
select pgmq.create('a--b');
select pgmq.create('a''b');
select pgmq.create_unlogged('a;b');
select pgmq.create_non_partitioned('a;b');
select pgmq.send('a;b', '1');
select * from pgmq.read('a''; drop table x; --', 100, 1);
select pgmq.purge_queue('a;b');
select pgmq.drop_queue('a;b');
select pgmq.archive('a;b', 1);
select pgmq.metrics('a;b');

-- scenario: the longest name
select pgmq.create('a23456789012345678901234567890123456789012345_7');
select pgmq.send('a23456789012345678901234567890123456789012345_7', '1');
select message from pgmq.read('a23456789012345678901234567890123456789012345_7', 100, 1);
select pgmq.create('a23456789012345678901234567890123456789012345__8');
select pgmq.create_unlogged('a23456789012345678901234567890123456789012345__8');
select pgmq.validate_queue_name('a23456789012345678901234567890123456789012345__8');
select pgmq.validate_queue_name('a23456789012345678901234567890123456789012345_7');
select queue_name from pgmq.list_queues();

-- scenario: format_table_name
select pgmq.format_table_name('orders', 'q');
select pgmq.format_table_name('My Orders', 'a');
select pgmq.format_table_name(queue_name => 'x', prefix => 'Q');
select pgmq.format_table_name('a''b', 'q');
select pgmq.format_table_name(null, 'q');

-- scenario: empty and absent names are refused
-- differs: W15
-- upstream: ''
-- here: error P0001: queue name cannot be NULL or empty
select pgmq.create('');
-- differs: PGMQ says what its last INSERT says
-- upstream: error 22004: null values cannot be formatted as an SQL identifier
-- here: error P0001: queue name cannot be NULL or empty
select pgmq.create(null);
-- differs: W15
-- upstream: ''
-- here: error P0001: queue name cannot be NULL or empty
select pgmq.validate_queue_name('');
-- differs: PGMQ formats the statement with a null in it
-- upstream: error 22004: null values cannot be formatted as an SQL identifier
-- here: error P0001: queue name cannot be NULL or empty
select pgmq.send(null, '{}');
