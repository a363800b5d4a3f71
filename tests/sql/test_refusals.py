"""What can't be meant is refused by the SQLSTATE that says so, and a secret is in no error's text."""

import psycopg
from tests.schemas import qualified
from tests.sql.queue import Connection, kill, rows

SECRETS = ("s" * 40, "my secret")
# A call a line, and what it is made with in place of the question mark.
REFUSED = {
    "MQ002": r"""
        create_access_key(?, repeat('s', 40), array['*'], array['send']) <- 'short'
        create_access_key('SPANMQ00000000000001', ?, array['*'], array['send']) <- 'short'
        create_access_key('SPANMQ00000000000001', repeat('s', 40), ?, array['send']) <- array['a;b']
        create_access_key('SPANMQ00000000000001', repeat('s', 40), array['*'], ?) <- null | array['steal']
        create_access_key('SPANMQ00000000000001', repeat('s', 40), '{*}', '{send}', now() - interval '1 s')
        create_token('a', ?, array['*'], array['send']) <- 'my secret'
        open_session(?) <- 'my secret', repeat('a', 64) | repeat('a', 64), 'my secret'
        peek_archive('orders', ?) <- null
        create_batch('orders', '1', ?) <- '[]'
        add_to_batch('orders', ?, array[1]) <- 0 | null
        add_to_batch('orders', 1, ?) <- null | array[null::bigint] | array[0] | array[9223372036854775807]
        list_batches(qty => ?) <- null
        signal('orders', ?) <- '' | null | repeat('é', 128)
        signal('orders', 'x', ?) <- to_jsonb(repeat('a', 65535))
        signal('orders', 'x', keep_for => ?) <- null | 'NaN'
        wait_for_signal('orders', ?, '1', 60) <- '' | null
        wait_for_signal('orders', 'x', '1', ?) <- null | 'NaN'
        wait_for_signal('orders', 'x', '1', 60, ?) <- '[]'
        list_signals('orders', qty => ?) <- null
        set_category_rule('x', 'BUSINESS')
        set_category_rule('x', 'BUSINESS', error => 'a', place => ?) <- null
        set_category_rule('x', ?, error => 'a') <- 'business' | null
        set_category_rule(?, 'BUSINESS', error => 'a') <- '' | null
        set_category_policy('orders', ?, '{}') <- 'transient' | null
        dead_letters('orders', qty => ?) <- null
        redrive('orders', delay => ?) <- -1 | 'NaN'
        redrive('orders', rate => ?) <- 0 | -1 | 'NaN'
        redrive_message('orders', 1, headers => ?) <- '[]'
        redrive_message('orders', 1, delay => ?) <- -1
        redrive('orders', dead_letter_ids => ?) <- array(select generate_series(1::bigint, 10001))
        redrive('orders', match => ?) <- '$.a >' | '$ ? (@ like_regex "(")' | '$ ? (@ like_regex "a" flag "x")'
        redrive('orders', patch => ?) <- 'null' | '{}' | '[]' | '[1]' | to_jsonb(array_fill(1, '{101}'))
        redrive('orders', patch => ?) <- '[{"op": "add", "path": "/a"}]' | '[{"op": "add", "path": "a", "value": 1}]'
        redrive('orders', patch => ?) <- '[{"op": "put", "path": "/a", "value": 1}]' | '[{"path": "/a", "value": 1}]'
        redrive('orders', patch => ?) <- '[{"op": "move", "path": "/a"}]' | '[{"op": "copy", "path": "", "from": ""}]'
        redrive('orders', patch => ?) <- '[{"op": "remove", "path": ""}]' | '[{"op": "remove", "path": "/~2"}]'
        redrive('orders', new_messages => ?) <- '{}' | '{1,2}', dead_letter_ids => '{1}'
        redrive('orders', patch => '[]', new_messages => ?) <- '{1}', dead_letter_ids => '{1}'
        grant_queue(?, 'orders', 'send') <- 'nobody_there' | null | '' | 'x; drop table spanmq_core.state'
        grant_queue(current_user, 'orders', ?) <- 'read' | 'create' | null
        grant_queue('public', 'orders', ?) <- 'manage'
        statistics('orders', ?) <- 0 | -1 | 'NaN' | null
        extend('orders', ?) <- 0, '{1}', 60 | 5, null, 60 | 5, '{1}', 0 | 5, '{1}', 'nan'
        nack('orders', ?, array[1]) <- null | 0
        nack('orders', 5, ?) <- null
        nack('orders', 5, array[1], category => ?) <- 'permanent' | ''
        nack('orders', 5, array[1], retry_in => ?) <- -1 | 'NaN' | 1e10
        reject('orders', ?) <- -1, array[1] | 5, array[1], category => 'BAD'
        release('orders', ?, array[1]) <- null
        extend('orders', ?) <- null, '{1}', 5 | 5, '{1}', null | 5, '{1}', -1 | 5, '{1}', 'Infinity'
        state('orders', ?) <- null
        failures('orders', ?) <- null
        schedule(?, 'orders', '* * * * *', '1') <- '' | null | repeat('a', 256)
        schedule('a', 'orders', ?, '1') <- null
        schedule('a', 'orders', '* * * * *', '1', ?) <- null | 'Nowhere' | '' | headers => '[]' | catch_up => null
        plan_schedule('tick', now(), ?, now()) <- null | array[null]::timestamptz[]
        plan_schedule('tick', now(), ?, now()) <- '{infinity}' | '{-infinity}'
        plan_schedule('tick', now(), '{}', ?) <- 'infinity'
        send_messages('orders', '{1}', ?) <- array['3'::jsonb], max_attempts => 3 | ordered => null
        send_messages('orders', '{1}', ?) <- array['3'::jsonb] | array['null'::jsonb]
        send_messages('orders', '{1,2}', array[null, '[]'::jsonb])
        send_messages('orders', '{1}', delay => ?) <- -1 | null | 'NaN' | 1e300
        send_messages('orders', '{1}', priority => ?) <- -1 | 10 | null
        send_messages('orders', '{1}', expires_in => ?) <- 0 | -5 | 'infinity' | 'NaN'
        send_messages('orders', '{1}', max_attempts => ?) <- 0 | 1001
        send_messages('orders', '{1}', dedup_ids => ?) <- '{a,b}' | '{}' | array['']
        send_messages('orders', '{1}', dedup_ids => array[repeat('a', 513)])
        send_messages('orders', '{1}', dedup_ids => '{a}', dedup_for => ?) <- 0 | 'NaN' | null | 1209601
        send_messages('orders', '{1}', fingerprint => ?) <- 'a' | repeat('a', 513), dedup_ids => '{a}'
        store_result('orders', ?) <- null, '1' | 1, '1', 0 | 1, '1', 2592001
        store_result('orders', 1, ?) <- to_jsonb(repeat('x', 65535))
        unsettled('orders', ?) <- null
        await_settled('orders', ?) <- 0 | 61
        await_messages('{orders}', ?) <- null
        report_worker('{orders}', ?) <- null, 1 | '', 1 | 'a', -1 | 'a', 'nan' | 'a', 1, -1 | 'a', 1, 1, null
        report_worker('{orders}', ?) <- repeat('a', 1001), 1
        report_worker('{orders}', 'a', 1, 1, ?) <- '[]' | '{"orders": {"held": -1}}' | '{"orders": {"held": "a"}}'
        report_worker('{orders}', 'a', 1, 1, ?) <- '{"orders": {"times": {}}}' | '{"orders": {"breaker": {}}}'
        report_worker('{a}', 'a', 1, 1, ?) <- '{"a": {"breaker": {"open_for": -1, "opening": 1}}}'
        report_worker('{a}', 'a', 1, 1, ?) <- '{"a": {"breaker": {"open_for": 86401, "opening": 1}}}'
        report_worker('{a}', 'a', 1, 1, ?) <- '{"a": {"breaker": {"open_for": 5, "opening": null}}}'
        report_worker('{a}', 'a', 1, 1, ?) <- '{"a": {"breaker": 5}}'
        receive('orders', ?) <- retries => -1 | newest => null
        report_worker('{orders}', 'a', 1, 1, '{"orders": {"times": ?}}') <- [1] | [null] | [[]]
        report_worker('{a}', 'a', 1, 1, '{"a": {"times": [{"failed": ?}]}}') <- "maybe", "kind": "", "bucket": 1, "n": 1
        report_worker('{a}', 'a', 1, 1, '{"a": {"times": [{"bucket": ?}]}}') <- 1.5, "kind": "a", "failed": true, "n": 1
        report_worker('{a}', 'a', 1, 1, '{"a": {"times": [{"n": ?}]}}') <- 1e30, "kind": "", "failed": true, "bucket": 1
        report_worker('{a}', 'a', 1, 1, '{"a": {"times": [{"kind": ?}]}}') <- null, "failed": true, "bucket": 1, "n": 1
        report_worker('{a}', 'a', 1, 1, '{"a": {"slow": ?}}') <- [{"seconds": 1}] | [{"msg_id": 1}] | {}
        report_worker('{a}', 'a', 1, 1, '{"a": {"slow": [{"msg_id": ?}]}}') <- "x" | 1, "seconds": -1
        report_worker('{a}', 'a', 1, 1, '{"a": {"stacks": ?}}') <- [{"seconds": 1}] | [{"msg_id": 1}] | {}
        report_worker('{a}', 'a', 1, 1, '{"a": {"stacks": [{"msg_id": ?}]}}') <- "x" | 1, "seconds": -1
        task_statistics('orders', 'ship', ?) <- 0, 60 | 86401, 60 | 3600, 90 | 3600, 30 | 3600, null
        redrive('orders', dry_run => ?) <- null
        redrive('orders', match => ?) <- '$x > 1' | '$."$" ? (@ == "$" && $"y" == 1)'
        purge_dead_letters('orders', ?) <- dry_run => null | match => '$x'
        open_session(repeat('a', 64), repeat('b', 64), ?) <- 0 | -1 | 'nan' | 1e30
        begin_pipeline_run(?) <- '' | repeat('x', 101)
        list_pipeline_runs(qty => ?) <- 0
        count_messages(most => ?) <- 0 | -1 | 100001
        sum_statistics(null, ?) <- 0, 1 | 60, 0.5 | 60, 61 | 60, 'nan' | 4e9, 1e6 | 1e6, 1 | 'nan', 1
        explain('orders', ?) <- null
        copy_begin('orders', ?) <- null | 0 | -1 | 1000001
        replay('orders', 'full', ?) <- match => '$.' | qty => 0 | after => -1
        create_subscription('past', 'orders', ?) <- true, now() | true, since_id => 1 | since => now(), since_id => 1
        create_subscription('past', 'orders', since_id => ?) <- 0 | 100000
        report_worker('{a}', 'a', 1, 1, ?) <- '{"a": {"times": [{"kind": "a", "failed": false, "bucket": 49, "n": 1}]}}'
        report_worker('{a}', 'a', 1, 1, ?) <- '{"a": {"times": [{"kind": "a", "failed": false, "bucket": 1}]}}'
        report_worker('{a}', 'a', 1, 1, ?) <- '{"a": {"times": [{"failed": false, "bucket": 1, "n": 1}]}}'
    """,
    "MQ007": r"""
        pause_schedule(?) <- 'nothing'
        run_schedule(?) <- 'nothing'
        resume_schedule(?) <- 'nothing'
        plan_schedule('nothing', now(), '{}', now())
    """,
    "MQ008": r"""
        set_policy('orders', ?) <- '[]' | 'null' | '3'
        set_policy('orders', '{"?}') <- attempts": 3 | queue_id": 3 | max_attempts": 3, "attempts": 3
        set_policy('orders', '{"max_attempts": ?}') <- -1 | 1001 | 1.5 | "many"
        set_policy('orders', '{"lease": ?}') <- 0 | -1 | "NaN" | "infinity"
        set_policy('orders', '{"backoff_base": ?}') <- -1
        set_policy('orders', '{"backoff_factor": ?}') <- 0.5
        set_policy('orders', '{"jitter": ?}') <- "sometimes"
        set_policy('orders', '{"dead_letter_retention": ?}') <- "-1 day" | "soon"
        set_policy('orders', '{"archive_retention": ?}') <- "-1 day" | "soon"
        set_policy('orders', '{"archive_on_ack": ?}') <- "sometimes"
        set_policy('orders', '{"max_backlog": ?}') <- 0 | -1 | "many" | 1.5
        set_policy('orders', '{"keep": ?}') <- "0"
        set_policy('orders', '{"rate_limit": ?}') <- 0
        set_policy('orders', '{"rate_burst": ?}') <- 0
        set_policy('orders', '{"max_in_flight": ?}') <- 0
        set_policy('orders', '{"group_by": ?}') <- "tenant" | "$" | "$.a", "ordered": true
        set_policy('orders', '{"rate_cost": ?}') <- "$..a"
        set_policy('orders', '{"rate_limit_per_group": ?}') <- 0
        set_policy('orders', '{"rate_burst_per_group": ?}') <- 0.5
        set_policy('orders', '{"group_shares": ?}') <- [] | {"a": 0} | {"a": "1"} | {"a": 1e-400}
        set_category_policy('orders', 'TRANSIENT', ?) <- '[]' | '{"tries": 1}' | '{"queue_id": 1}'
        set_category_policy('orders', 'TRANSIENT', ?) <- '{"category": "BUSINESS"}' | '{"retries": "often"}'
        set_category_policy('orders', 'TRANSIENT', ?) <- '{"max_attempts": 0}' | '{"max_attempts": 1.5}'
        set_category_policy('orders', 'TRANSIENT', ?) <- '{"backoff_base": -1}' | '{"backoff_factor": 0.5}'
        set_category_policy('orders', 'TRANSIENT', ?) <- '{"backoff_max": "long"}'
        set_category_policy('orders', 'TRANSIENT', '{"backoff_base": ?}') <- "NaN" | "Infinity" | "-1"
        set_category_policy('orders', 'TRANSIENT', '{"backoff_factor": ?}') <- "NaN" | "Infinity" | "-1"
        set_category_policy('orders', 'TRANSIENT', '{"backoff_max": ?}') <- "NaN" | "Infinity" | "-1"
        set_category_policy(null, 'TRANSIENT', ?) <- '[]' | '{"tries": 1}' | '{"queue_id": 1}'
        set_category_policy(null, 'TRANSIENT', ?) <- '{"category": "BUSINESS"}' | '{"retries": "often"}'
        set_category_policy(null, 'TRANSIENT', ?) <- '{"max_attempts": 0}' | '{"max_attempts": 1.5}'
        set_category_policy(null, 'TRANSIENT', ?) <- '{"backoff_base": -1}' | '{"backoff_factor": 0.5}'
        set_category_policy(null, 'TRANSIENT', ?) <- '{"backoff_max": "long"}'
        set_category_policy(null, 'TRANSIENT', ?) <- null
    """,
    "MQ020": r"""
        dead_letters('orders', error => ?) <- '(' | '(a)\1'
        purge_dead_letters('orders', error => ?) <- '('
        redrive('orders', error => ?) <- '*'
        set_category_rule('x', 'BUSINESS', error_class => ?) <- '*'
        set_category_rule('x', 'BUSINESS', error => ?) <- '[' | '(a' | 'a{1,300}' | '' | repeat('a', 501)
        set_category_rule('x', 'BUSINESS', error => ?) <- '(a*)(a*)*\1b' | '(?=.*a)(?=.*b)c' | '(?<!a)b'
        set_category_rule('x', 'BUSINESS', error => ?) <- '((a{1,250}){1,250}){1,250}' | '(?:a{1,200}){1,200}b'
        set_category_rule('x', 'BUSINESS', error => ?) <- '(?:.?.?.?.?.?){1,120}!!7'
        set_category_rule('x', 'BUSINESS', error => ?) <- repeat('(?:.?){1,40}', 20)
        set_category_rule('x', 'BUSINESS', error => ?) <- repeat('x{0,255}', 30) | 'a{99999999999999999999}'
    """,
    "MQ021": r"""
        redrive_message('orders', ?) <- 7 | null
    """,
    "MQ060": r"""
        set_policy('audit', '{"max_backlog": ?}') <- 5
        set_policy('audit', '{"keep": ?}') <- "1 day"
        replay(?) <- 'audit', 'orders' | 'orders', 'audit'
        create_subscription(?) <- 'full', 'orders' | 'orders', 'orders' | 'audit', 'full' | 'more', 'audit'
    """,
    "MQ062": r"""
        replay('orders', ?) <- 'full'
    """,
    "2201W": r"""
        peek_archive('orders', ?) <- -1
        dead_letters('orders', qty => ?) <- -1
        purge_dead_letters('orders', qty => ?) <- -1
        redrive('orders', qty => ?) <- -1
    """,
    # PGMQ's, where it looks too.
    "P0001": r"""
        peek_archive(?) <- null
        purge_dead_letters(?) <- null
        redrive(?) <- null
        create_subscription(?, 'orders') <- 'a;b' | null
        send_messages('orders', ?) <- null | '{}' | '{1}', array['1', '2']::jsonb[]
    """,
    "42P01": r"""
        ?('nothing') <- peek_archive | dead_letters | count_dead_letters | redrive | get_policy
        ?('nothing') <- look_ahead | pause
        ?('nothing', 1) <- state | failures
        extend('nothing', 1, ?, 1) <- array[1]
        nack('nothing', 1, ?) <- array[1]
        set_policy('nothing', ?) <- '{}'
        send_messages('nothing', ?) <- '{1}'
        schedule('a', 'nothing', ?, '1') <- '* * * * *'
        set_category_rule('x', 'BUSINESS', error => 'a', queue => ?) <- 'nothing'
        grant_queue(current_user, ?, 'send') <- 'nothing'
        replay(?) <- 'orders', 'nothing' | 'nothing', 'orders'
        begin_pipeline_run('export', ?) <- 'nothing'
        list_pipeline_runs(?) <- 'nothing'
        create_subscription('more', ?) <- 'nothing'
    """,
}


def calls(lines: str) -> list[str]:
    made = []
    for line in lines.strip().splitlines():
        call, _, values = line.strip().partition(" <- ")
        made += [call.replace("?", value) for value in values.split(" | ")]
    return made


def test_what_can_not_be_meant_is_refused(connection: Connection) -> None:
    rows(connection, "select pgmq.create('orders'), spanmq.create_subscription('audit', 'orders')")
    rows(connection, "select pgmq.create('full'), pgmq.send('full', '1')")
    rows(connection, "select spanmq.set_policy('full', '{\"max_backlog\": 1}')")
    rows(connection, "select spanmq.schedule('tick', 'orders', '* * * * *', '1')")
    rows(connection, "select setval(pg_get_serial_sequence('spanmq_core.batch', 'batch_id'), 1, false)")
    rows(connection, "select spanmq.create_batch('orders', '1')")
    rows(connection, "select pgmq.send('orders', '1', '{\"x-pgmq-group\": \"g\"}'::jsonb)")
    kill(connection, [1])
    wrong = {}
    for sqlstate, lines in REFUSED.items():
        for call in calls(lines):
            try:
                with connection.transaction(force_rollback=True):
                    rows(connection, f"select * from {qualified(call)}")
                wrong[call] = "it was not refused"
            except psycopg.Error as error:
                if error.sqlstate != sqlstate or any(word in str(error) for word in (*SECRETS, "constraint")):
                    wrong[call] = f"{error.sqlstate}: {error}"
    assert wrong == {}
