"""The record of changes: what was changed, by which role, token or command."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from tests.sql.queue import Connection, column, kill, one, rows, sqlstate_of
from tests.sql.rights import ON_ALL, ON_QUEUES, RECORDED, ROLE, give, names

from spanmq.client import Client
from spanmq.client.call import ACTOR
from spanmq.model import Change


@pytest.fixture
def client(jobs: Connection) -> Client:
    return Client(connection=jobs)


@pytest.fixture
def actor() -> Iterator[str]:
    before = ACTOR.set("command, spanmq queue pause")
    yield "command, spanmq queue pause"
    ACTOR.reset(before)


def told(changes: list[Change]) -> list[tuple[str, str | None]]:
    return [(each.action, each.queue) for each in changes]


def test_changes_are_recorded_with_role_actor_and_arguments(
    client: Client, jobs: Connection, actor: str
) -> None:
    client.queues.pause("jobs")
    client.queues.set_policy("jobs", max_attempts=3)
    later, first, created = client.inspect.changes("jobs")
    assert (created.action, created.actor) == ("create", None)
    assert (first.action, first.queue, first.actor) == ("pause", "jobs", actor)
    assert first.role == one(jobs, "select current_user")
    assert later.details == {"settings": {"max_attempts": 3}}
    assert told(client.inspect.changes("jobs", before=first.change_id)) == [("create", "jobs")]


def test_change_that_fails_and_dry_run_leave_no_record(client: Client, jobs: Connection) -> None:
    assert sqlstate_of(jobs, "select spanmq.pause('none')") == "42P01"
    assert sqlstate_of(jobs, "select 1 / 0 from spanmq.pause('jobs')") == "22012"
    client.dead_letters.redrive("jobs", dry_run=True)
    client.dead_letters.discard("jobs", dry_run=True)
    client.queues.create("other")
    jobs.execute("select spanmq.replay('jobs', 'other', dry_run => true)")
    assert told(client.inspect.changes()) == [("create", "other"), ("create", "jobs")]


def test_queue_that_existed_is_not_created_again(client: Client, jobs: Connection) -> None:
    client.queues.create("jobs")
    client.queues.create("Jobs", unlogged=True)
    jobs.execute("select pgmq.create_partitioned('jobs')")
    assert told(client.inspect.changes()) == [("create", "jobs")]
    client.queues.create("other", unlogged=True)
    jobs.execute("select pgmq.create_partitioned('parts', '100')")
    parts, other, _ = client.inspect.changes()
    assert told([parts, other]) == [("create_partitioned", "parts"), ("create_unlogged", "other")]
    assert parts.details == {"partition_interval": "100", "retention_interval": "100000"}


def test_details_are_what_was_passed(client: Client) -> None:
    client.admin.tokens.create("anna", queues=["a*", "b*"], verbs=["look", "send"])
    [change, _] = client.inspect.changes()
    assert change.details == {"name": "anna", "queues": ["a*", "b*"], "verbs": ["look", "send"]}
    client.queues.set_policy("jobs", max_attempts=3)
    client.dead_letters.redrive("jobs", error='no "route"')
    redriven, changed, *_ = client.inspect.changes()
    assert changed.details == {"settings": {"max_attempts": 3}}
    assert redriven.details == {"error": 'no "route"'}
    client.queues.set_policy("jobs", max_attempts=None)
    client.dead_letters.discard("jobs", until=datetime(2026, 1, 2, tzinfo=UTC), limit=5)
    discarded, changed, *_ = client.inspect.changes()
    assert changed.details == {"settings": {"max_attempts": None}}
    assert discarded.details == {"until": "2026-01-02T00:00:00+00:00", "qty": "5"}


def test_details_are_cut_and_never_too_many(client: Client, jobs: Connection) -> None:
    client.queues.set_schema("jobs", {"type": "object", "title": "x" * 600})
    [schema, _] = client.inspect.changes()
    assert schema.details is not None
    assert len(schema.details["schema"]) == 500
    jobs.execute("select spanmq.cancel('jobs', array(select generate_series(1, 10000)))")
    [cancelled, *_] = client.inspect.changes()
    assert cancelled.details is not None
    assert len(cancelled.details["msg_ids"]) == 500


def test_secrets_and_bodies_are_not_recorded(client: Client) -> None:
    secret = client.admin.tokens.create("anna", queues=["*"], verbs=["look"])
    client.schedules.create("nightly", "jobs", "0 3 * * *", {"card": "4711"})
    text = repr(client.inspect.changes())
    assert "anna" in text
    assert "nightly" in text
    assert secret not in text
    assert "secret" not in text
    assert "4711" not in text


def test_messages_are_no_changes(client: Client) -> None:
    client.send("jobs", 1)
    client.ack(client.receive("jobs"))
    assert told(client.inspect.changes()) == [("create", "jobs")]


def test_role_that_changes_is_recorded_and_cannot_be_forged(client: Client, jobs: Connection) -> None:
    jobs.execute(f"create role {ROLE}".encode())
    client.admin.grants.create(ROLE, "jobs", "manage")
    number = one(jobs, "select queue_id from spanmq_core.queue")
    jobs.execute(f"set local role {ROLE}".encode())
    client.queues.pause("jobs")
    forged = f"select spanmq_call.pause_{number}(gen_random_uuid())"
    assert sqlstate_of(jobs, forged) == "42501"
    assert sqlstate_of(jobs, "select spanmq_call.pause('jobs')") == "42501"
    record = "select spanmq_core.record_change('postgres', 'drop_queue', 'jobs', '{}')"
    assert sqlstate_of(jobs, record) == "42501"
    assert sqlstate_of(jobs, "select * from spanmq.list_changes()") == "42501"
    assert client.inspect.changes("jobs")[0].role == ROLE
    jobs.execute("reset role")


def test_record_of_a_dropped_queue_is_kept_and_old_changes_are_deleted(
    client: Client, jobs: Connection
) -> None:
    client.queues.create("gone")
    client.queues.drop("gone")
    client.queues.pause("jobs")
    assert told(client.inspect.changes("GONE")) == [("drop_queue", "gone"), ("create", "gone")]
    assert sqlstate_of(jobs, "select * from spanmq.list_changes('none')") == "42P01"
    jobs.execute(
        "update spanmq_core.change set changed_at = changed_at - interval '91 days' where action = 'create'"
    )
    jobs.execute("select spanmq_core.tidy()")
    assert told(client.inspect.changes("gone")) == [("drop_queue", "gone")]


def test_later_queue_of_the_name_does_not_show_what_was_done_to_the_former(
    client: Client, jobs: Connection
) -> None:
    """Whoever may create queues takes a name, and may not have been allowed to look into the former queue."""
    jobs.execute(f"create role {ROLE}; select spanmq.grant_create('{ROLE}')".encode())
    client.queues.create("gone")
    client.queues.pause("gone")
    client.queues.drop("gone")
    # As another transaction sees it.
    jobs.execute("update spanmq_core.change set changed_at = changed_at - interval '1 minute'")
    jobs.execute(f"set local role {ROLE}".encode())
    client.queues.create("gone")
    assert [change.action for change in client.inspect.changes("gone")] == ["create"]
    jobs.execute("reset role")
    assert [change.action for change in client.inspect.changes()][:4] == [
        "create",
        "drop_queue",
        "pause",
        "create",
    ]


def test_actor_is_of_the_call_and_may_be_set_in_sql(client: Client, jobs: Connection) -> None:
    # Commands that other tests ran in this process have set it, too.
    before = ACTOR.set(None)
    ACTOR.set("service, token anna")
    client.queues.pause("jobs")
    ACTOR.set(None)
    jobs.execute("set local spanmq.actor = 'nightly job'")
    client.queues.resume("jobs")
    jobs.execute("select spanmq.pause('jobs')")
    jobs.execute("set local spanmq.actor = ''; select spanmq.pause('jobs')")
    recorded = [each.actor for each in client.inspect.changes()]
    ACTOR.reset(before)
    assert recorded == [None, "nightly job", "nightly job", "service, token anna", None]


def test_changes_of_a_day_are_bounded_for_each_actor_and_the_gap_is_marked(
    client: Client, jobs: Connection
) -> None:
    add = (
        "insert into spanmq_core.change (role, actor, action, of_role, of_actor)"
        " values (current_user, %s, 'x', %s, %s)"
    )
    paused = (
        "select count(*) from spanmq_core.change where action = 'pause' and actor is not distinct from %s"
    )

    def pause(actor: str | None, times: int) -> int:
        """Pause the queue as this actor, and return how many of its pauses are recorded."""
        before = ACTOR.set(actor)
        # It is the transaction's, and all of this test is one.
        jobs.execute("set local spanmq.actor = ''")
        for _ in range(times):
            client.queues.pause("jobs")
        ACTOR.reset(before)
        return int(one(jobs, paused, actor))

    jobs.execute(add, ["one", 998, 998])
    assert pause("one", 3) == 2
    assert "1000 of this token" in json.dumps(client.inspect.changes("jobs")[0].details)
    # What one does takes nothing from another.
    assert pause("another", 2) == 2
    jobs.execute(add, [None, 9999, 9999])
    assert pause(None, 2) == 1
    jobs.execute(add, ["others", 19999, 1])
    assert pause("last", 2) == 1
    assert "20000 of this role" in json.dumps(client.inspect.changes("jobs")[0].details)
    # The next day begins anew.
    jobs.execute("update spanmq_core.change set changed_at = changed_at - interval '1 day'")
    assert pause("last", 2) == 3
    assert pause("one", 1) == 3


def test_cost_of_a_record_does_not_grow_with_the_day(client: Client, jobs: Connection) -> None:
    def plan() -> str:
        lines = rows(
            jobs,
            "explain (analyze, buffers, costs off) select * from spanmq_core.change c"
            " where c.role = current_user order by c.changed_at desc limit 1",
        )
        return "\n".join(line for (line,) in lines)

    jobs.execute(
        "insert into spanmq_core.change (role, actor, action, of_role, of_actor)"
        " select current_user, 'one', 'x', i, i from generate_series(1, 5000) i"
    )
    assert re.search(r"Index Scan Backward.*rows=1(\.00)? ", plan()) is not None


# Of the functions that change something: why no record is made.
UNRECORDED = {
    "they look at something, and may lock or move a place that only they use": """
        archive_piece archive_position archive_ranges attention count_messages dead_letter_extent dead_letters
        dead_letters_between dead_letters_of doctor failure_extent failures failures_between get_policy health
        list_groups list_leases list_pipeline_runs list_queues list_receivers list_segments list_subscriptions metrics
        ask_stacks explain metrics_all peek peek_archive poll published_epochs read_ranges receiver_log replay_extent
        shard_groups state statistics storage
        sum_statistics await_settled
    """,
    "they send, as programs do all the time": """
        send send_batch send_batch_topic send_messages send_topic create_batch add_to_batch enter_shards
        wait_for_signal signal
        copy_begin copy_publish bulk_close bulk_publish bulk_published bulk_reserve bulk_seal
    """,
    "they receive and settle, as programs do all the time": """
        ack ack_with_results archive await_messages begin_alone close_bucket delete extend
        look_ahead nack pass_on pop read read_grouped read_grouped_head read_grouped_head_with_poll
        read_grouped_rr read_grouped_rr_with_poll read_grouped_with_poll read_with_poll receive
        receiver_claim receiver_open receiver_ranges reject release set_vt store_result
    """,
    "programs report by them what they do": """
        begin_notices begin_pipeline_run end_notices end_pipeline_run hold_export maintain move_sqs_messages note_export
        note_pipeline_run note_position note_sqs_move note_task_shapes plan_schedule report_worker take_sqs_move
    """,
    "somebody signs in or out, which changes no queue": "open_session close_session",
    "they do nothing here, as PGMQ's programs call them": """
        acquire_queue_lock create_fifo_index create_fifo_indexes_all detach_archive
    """,
}
RECEIVER = "(select receiver::text from spanmq.list_receivers('jobs'))"
# A call of each function that is recorded, on the queue `jobs` or of none, as a role with its verb.
CALLS = {
    "create": "pgmq.create('made')",
    "create_non_partitioned": "pgmq.create_non_partitioned('made')",
    "create_unlogged": "pgmq.create_unlogged('made')",
    "create_partitioned": "pgmq.create_partitioned('made')",
    "drop_queue": "pgmq.drop_queue('jobs')",
    "set_shards": "spanmq.set_shards('wide', 1, 'group', '{\"a\": \"main\"}')",
    "forget_shards": "spanmq.forget_shards('wide')",
    "schedule": "spanmq.schedule('of jobs', 'jobs', '* * * * *', '2')",
    "unschedule": "spanmq.unschedule('of jobs')",
    "pause_schedule": "spanmq.pause_schedule('of jobs')",
    "run_schedule": "spanmq.run_schedule('of jobs')",
    "resume_schedule": "spanmq.resume_schedule('of jobs')",
    "replay": "spanmq.replay('jobs', 'jobs')",
    "cancel": "spanmq.cancel('jobs', '{1}')",
    "adopt_receiver": f"spanmq.adopt_receiver('jobs', {RECEIVER})",
    "release_receiver": f"spanmq.release_receiver('jobs', {RECEIVER})",
    "reject_from_receiver": f"spanmq.reject_from_receiver('jobs', {RECEIVER}, '{{1}}')",
    "refuse_export": "spanmq.refuse_export('jobs', 'lake')",
    "forget_export": "spanmq.forget_export('jobs', 'lake')",
    "redrive": "spanmq.redrive('jobs')",
    "redrive_message": "spanmq.redrive_message('jobs', 2)",
    "purge_dead_letters": "spanmq.purge_dead_letters('jobs')",
    "retry_failing": "spanmq.retry_failing('jobs')",
    "reject_failing": "spanmq.reject_failing('jobs')",
    "purge_queue": "pgmq.purge_queue('jobs')",
    "enable_notify_insert": "pgmq.enable_notify_insert('jobs')",
    "disable_notify_insert": "pgmq.disable_notify_insert('jobs')",
    "update_notify_insert": "pgmq.update_notify_insert('jobs', 5)",
    "convert_archive_partitioned": "pgmq.convert_archive_partitioned('jobs')",
    "unbind_topic": "pgmq.unbind_topic('jobs', 'jobs')",
    "set_policy": "spanmq.set_policy('jobs', '{}')",
    "set_schema": "spanmq.set_schema('jobs', '{}')",
    "set_category_policy": "spanmq.set_category_policy('jobs', 'BUSINESS', '{}')",
    "set_category_rule": "spanmq.set_category_rule('r', 'BUSINESS', 'x', queue => 'jobs')",
    "drop_category_rule": "spanmq.drop_category_rule('r', 'jobs')",
    "pause": "spanmq.pause('jobs')",
    "resume": "spanmq.resume('jobs')",
    "close_breaker": "spanmq.close_breaker('jobs')",
    "grant_queue": "spanmq.grant_queue('spanmq_test_other', 'jobs', 'look')",
    "revoke_queue": "spanmq.revoke_queue('spanmq_test_other', 'jobs', 'look')",
    "bind_topic": "pgmq.bind_topic('a.*', 'jobs')",
    "create_subscription": "spanmq.create_subscription('more', 'jobs')",
    "stop_worker": "spanmq.stop_worker('worker 1')",
    "set_sqs_queue": "spanmq.set_sqs_queue('jobs', '{}')",
    "start_sqs_move": "spanmq.start_sqs_move('jobs', null, 'arn', null, 0)",
    "cancel_sqs_move": "spanmq.cancel_sqs_move('x')",
    "create_token": "spanmq.create_token('anna', repeat('a', 64), '{*}', '{look}')",
    "revoke_token": "spanmq.revoke_token('anna')",
    "rotate_token": "spanmq.rotate_token('anna', repeat('b', 64))",
    "create_access_key": "spanmq.create_access_key(repeat('A', 20), repeat('s', 20), '{*}', '{look}')",
    "revoke_access_key": "spanmq.revoke_access_key('A')",
    "grant_all": "spanmq.grant_all('spanmq_test_other', 'look')",
    "revoke_all": "spanmq.revoke_all('spanmq_test_other', 'look')",
    "grant_create": "spanmq.grant_create('spanmq_test_other')",
    "follow_table_grants": "spanmq.follow_table_grants()",
}


@pytest.fixture
def full_queues(queues: Connection) -> Connection:
    """`jobs` with a dead letter, a stream, an export and a dead-letter queue of SQS; a role without rights."""
    queues.execute("select pgmq.send('jobs', '2'), pgmq.enable_notify_insert('jobs')")
    kill(queues, [2], queue="jobs")
    queues.execute("select spanmq.receiver_open('jobs', label => 'lake')")
    queues.execute("select spanmq.note_export('jobs', 'lake', '{[1,2)}')")
    redrive = {"deadLetterTargetArn": "arn:aws:sqs:x:000000000000:jobs", "maxReceiveCount": 1}
    queues.execute(
        "select spanmq.set_sqs_queue('others', jsonb_build_object('RedrivePolicy', %s::text))",
        [json.dumps(redrive)],
    )
    return queues


@pytest.mark.parametrize(
    ("verb", "where"),
    [*((verb, "jobs") for verb in ON_QUEUES), *((verb, "all") for verb in {**ON_QUEUES, **ON_ALL})],
)
def test_each_function_that_changes_by_hand_leaves_one_record_of_its_caller(
    full_queues: Connection, verb: str, where: str
) -> None:
    role = one(full_queues, "select current_user")
    if verb != "no verb":
        role = ROLE
        give(full_queues, verb, where)
    last = one(full_queues, "select max(change_id) from spanmq_core.change")
    recorded = "select role, action, queue_name from spanmq_core.change where change_id > %s"
    allowed = names(ON_QUEUES.get(verb, "")) | (names(ON_ALL.get(verb, "")) if where == "all" else set())
    for name in [name for name in CALLS if name in allowed]:
        with full_queues.transaction(force_rollback=True):
            full_queues.execute(f'set local role "{role}"'.encode())
            full_queues.execute(f"select from {CALLS[name]}".encode())
            full_queues.execute("reset role")
            action = "create" if name == "create_non_partitioned" else name
            queue = re.search(r"'(made|wide|jobs)'", CALLS[name].replace("of jobs", "jobs"))
            expected = [(role, action, queue[1] if queue else None)]
            assert rows(full_queues, recorded, last) == expected, name


def test_every_function_that_changes_something_is_recorded_or_has_a_reason(connection: Connection) -> None:
    changing = column(
        connection,
        "select distinct proname from pg_proc where pronamespace in ('pgmq'::regnamespace, 'spanmq'::regnamespace)"
        " and provolatile = 'v' and prorettype <> 'trigger'::regtype",
    )
    reasons = [name for text in UNRECORDED.values() for name in text.split()]
    assert sorted(changing) == sorted([*reasons, *CALLS])
    assert set(CALLS) == names(RECORDED)


def test_note_of_an_older_client_is_no_second_record(client: Client, jobs: Connection) -> None:
    """A client of 0.1.0 calls it in the statement that makes the change."""
    jobs.execute("select * from spanmq.pause('jobs'), spanmq.note_change('pause', 'jobs', 'command', '{}')")
    assert told(client.inspect.changes()) == [("pause", "jobs"), ("create", "jobs")]
    jobs.execute(f"create role {ROLE}; set local role {ROLE}".encode())
    jobs.execute("select spanmq.note_change('purge_queue', 'jobs', 'dashboard, token boss')")
    jobs.execute("reset role")
    assert len(client.inspect.changes()) == 2
