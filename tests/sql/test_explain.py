"""explain() names what keeps a message from being delivered, and the call that ends it; the model test compares it
with what receives return.
"""

from typing import Any

import pytest
from psycopg.types.json import Jsonb
from tests.sql.model.explaining import explain as reasons_of
from tests.sql.queue import Connection, breaker_report, change_state, column, one, rows
from tests.sql.race.sessions import Race


def explain(jobs: Connection, message_id: int = 1) -> list[tuple[Any, ...]]:
    return rows(jobs, "select code, sentence from spanmq.explain('jobs', %s)", message_id)


def first(jobs: Connection, message_id: int = 1) -> tuple[Any, ...]:
    """Return the code, sentence, object and call of the first reason."""
    return rows(jobs, "select code, sentence, object, call from spanmq.explain('jobs', %s)", message_id)[0]


def test_visible_message_has_its_place_and_is_without_a_worker(jobs: Connection) -> None:
    rows(jobs, "select pgmq.send_batch('jobs', '{1,2,3}')")
    assert explain(jobs, 1) == [
        ("visible", "The next receive returns it."),
        ("no_worker", "No worker receives from the queue."),
    ]
    assert explain(jobs, 3)[0] == ("visible", "Receives return it, after 2 messages.")
    rows(jobs, "select spanmq.receive('jobs', 1)")
    assert explain(jobs, 2) == [("visible", "The next receive returns it.")], (
        "a receiver that does not report"
    )


def test_worker_without_a_free_slot_is_busy(jobs: Connection) -> None:
    rows(jobs, "select pgmq.send_batch('jobs', '{1,2}')")
    report = "select spanmq.report_worker('{jobs}', 'w1', 5, 1, '{\"jobs\": {\"held\": %s}}')"
    rows(jobs, report.replace("%s", "0"))
    assert [code for code, _ in explain(jobs)] == ["visible"]
    rows(jobs, report.replace("%s", "1"))
    assert explain(jobs)[1] == ("workers_busy", "All slots of the worker are taken.")


def test_message_whose_handler_waits_for_a_signal_shows_the_wait(jobs: Connection) -> None:
    rows(jobs, "select pgmq.create('mail'), pgmq.send_batch('jobs', '{1,2,3}')")
    lease = one(jobs, "select max(lease_id) from spanmq.receive('jobs', 3)")
    park = f"select spanmq.wait_for_signal('mail', %s, '1', 60, null, 'Jobs', %s, {lease})"
    rows(jobs, park.replace(str(lease), "1"), "a guess", 3)
    rows(jobs, park, "o'k", 1)
    # A kept signal whose time is over becomes the wait of that message.
    rows(jobs, "select spanmq.signal('mail', 'x', keep_for => 0)")
    rows(jobs, park, "x", 2)
    rows(jobs, "select spanmq.ack('jobs', %s, '{1,2,3}')", lease)
    assert explain(jobs, 1) == [
        ("completed", "It was acked, deleted or popped."),
        ("waits", 'Its handler has left a message for queue mail, which waits for the signal "o\'k".'),
    ]
    call = rows(jobs, "select call from spanmq.explain('jobs', 1) where code = 'waits'")[0][0]
    assert one(jobs, call) == "released"
    assert [code for code, _ in explain(jobs, 1)] == ["completed"]
    assert [[code for code, _ in explain(jobs, id_)] for id_ in (1, 2)] == [
        ["completed"],
        ["completed", "waits"],
    ]


def test_priority_decides_what_comes_first(jobs: Connection) -> None:
    for priority in (0, 5, 5):
        rows(jobs, "select spanmq.send_messages('jobs', '{1}', priority => %s)", priority)
    assert explain(jobs, 1)[0] == ("visible", "Receives return it, after 2 messages.")
    assert explain(jobs, 3)[0] == ("visible", "Receives return it, after 1 message.")


def test_message_that_is_leased_names_the_attempt_and_the_worker_that_reports_it(jobs: Connection) -> None:
    rows(jobs, "select pgmq.send('jobs', '1')")
    rows(jobs, "select spanmq.receive('jobs', 1)")
    report = {"jobs": {"held": 1, "progress": [{"msg_id": 1, "kind": "ship", "share": 0.5, "note": ""}]}}
    rows(jobs, "select spanmq.report_worker('{jobs}', 'w1', 5, 2, %s)", Jsonb(report))
    code, sentence, thing, call = first(jobs)
    assert (code, sentence) == ("leased", "A receiver holds it for attempt 1.")
    assert (thing["worker"], call) == ("w1", "select pgmq.set_vt('jobs', 1, 0)")


def test_message_that_failed_waits_for_its_next_attempt(jobs: Connection) -> None:
    rows(jobs, "select pgmq.send('jobs', '1')")
    lease = one(jobs, "select lease_id from spanmq.receive('jobs', 1)")
    rows(jobs, "select spanmq.nack('jobs', %s, '{1}', 'no route', 'DEPENDENCY', 60)", lease)
    assert first(jobs)[:2] == ("retry", "It failed (DEPENDENCY: no route), and waits for attempt 2.")
    rows(jobs, first(jobs)[3])
    assert first(jobs)[0] == "visible"


def test_delayed_message_is_delayed(jobs: Connection) -> None:
    rows(jobs, "select pgmq.send('jobs', '1', 60)")
    assert first(jobs)[:2] == ("delayed", "It is delayed.")


def test_dead_letter_has_its_cause_and_the_call_that_redrives_it(jobs: Connection) -> None:
    rows(jobs, "select pgmq.send('jobs', '1')")
    lease = one(jobs, "select lease_id from spanmq.receive('jobs', 1)")
    rows(jobs, "select spanmq.reject('jobs', %s, '{1}', 'no such card', 'BUSINESS')", lease)
    code, sentence, thing, call = first(jobs)
    assert (code, sentence, thing["attempts"]) == ("dead", "It is a dead letter (BUSINESS: no such card).", 1)
    rows(jobs, call)
    assert first(jobs)[0] == "delayed"


def test_dead_letter_whose_dedup_id_another_message_has_is_not_redriven_by_a_call(jobs: Connection) -> None:
    rows(jobs, "select spanmq.set_policy('jobs', '{\"ordered\": true, \"dead_letter_blocks_group\": true}')")
    send = (
        "select spanmq.send_messages('jobs', '{1}', array['{\"x-pgmq-group\": \"a\"}'::jsonb],"
        " dedup_ids => '{a}', dedup_until => 'settled')"
    )
    rows(jobs, send)
    lease = one(jobs, "select lease_id from spanmq.receive('jobs', 1)")
    rows(jobs, "select spanmq.reject('jobs', %s, '{1}', 'no')", lease)
    rows(jobs, send)
    code, sentence, thing, call = first(jobs, 1)
    assert sentence == "It is a dead letter (PERMANENT: no). Message 2 has its dedup_id."
    assert (code, thing["beside"], call) == ("dead", 2, None)
    code, _, thing, call = first(jobs, 2)
    assert (code, thing["message_id"], call) == ("dead_letter", 1, None)


def test_message_that_is_not_in_the_queue_says_how_it_ended(jobs: Connection) -> None:
    rows(jobs, "select pgmq.send_batch('jobs', '{1,2,3}')")
    rows(jobs, "select pgmq.archive('jobs', 1), pgmq.delete('jobs', 2), spanmq.cancel('jobs', '{3}')")
    assert explain(jobs, 1) == [("completed", "It was archived.")]
    assert explain(jobs, 2) == [("completed", "It was acked, deleted or popped.")]
    assert explain(jobs, 3) == [("cancelled", "It was cancelled.")]
    assert explain(jobs, 4) == [("unknown", "No message has this id yet: the last one is 3.")]
    assert first(jobs, 1)[2].keys() == first(jobs, 3)[2].keys() == {"since"}


def test_bulk_write_that_is_not_published_is_named(jobs: Connection) -> None:
    rows(jobs, "select * from spanmq.bulk_reserve('jobs', 'nightly', 7, 10)")
    code, _, thing, _ = first(jobs, 5)
    assert (code, thing["writer"], thing["epoch"]) == ("unpublished", "nightly", 7)


def test_batch_of_a_stream_is_named_and_released_by_the_call(jobs: Connection) -> None:
    rows(jobs, "select pgmq.send('jobs', '1')")
    opened = one(jobs, "select receiver_id::text from spanmq.receiver_open('jobs', label => 'lake')")
    incarnation = one(jobs, "select incarnation from spanmq_core.receiver")
    rows(jobs, "select * from spanmq.receiver_claim('jobs', %s, %s, 0, 10)", opened, incarnation)
    code, sentence, _, call = first(jobs)
    assert (code, sentence) == ("stream", "A batch of the stream lake holds it.")
    rows(jobs, call)
    assert first(jobs)[0] == "visible"


def test_expired_and_exhausted_messages_end_with_the_next_claim(jobs: Connection) -> None:
    rows(jobs, "select spanmq.set_policy('jobs', '{\"max_attempts\": 1}')")
    rows(jobs, "select spanmq.send_messages('jobs', '{1}', expires_in => 60)")
    rows(jobs, "select pgmq.send('jobs', '1')")
    rows(jobs, "update spanmq_core.expiry set expires_at = '2020-01-01'")
    assert first(jobs)[:2] == ("ends", "It expired. The next claim that meets it makes it a dead letter.")
    rows(jobs, "select spanmq.receive('jobs', 2)")
    change_state(jobs, "vt = clock_timestamp()")
    spent = "It has no attempt left after 1. The next claim that meets it makes it a dead letter."
    assert first(jobs, 2)[1] == spent
    assert (first(jobs)[0], rows(jobs, "select * from spanmq.receive('jobs', 2)")) == ("dead", [])


def test_pause_names_who_did_it(jobs: Connection) -> None:
    rows(jobs, "select pgmq.send('jobs', '1')")
    rows(jobs, "select spanmq.pause('jobs')")
    assert first(jobs)[:2] == ("paused", f"The queue is paused by {jobs.info.user}.")
    rows(jobs, "select set_config('spanmq.actor', 'ada', true), spanmq.pause('jobs')")
    assert first(jobs)[1] == "The queue is paused by ada."
    rows(jobs, first(jobs)[3])
    assert first(jobs)[0] == "visible"


def test_order_of_a_group_names_the_message_in_front_and_its_reason(jobs: Connection) -> None:
    rows(jobs, "select spanmq.set_policy('jobs', '{\"ordered\": true, \"dead_letter_blocks_group\": true}')")
    rows(jobs, "select pgmq.send('jobs', '1', '{\"x-pgmq-group\": \"a\"}'::jsonb) from generate_series(1, 2)")
    assert explain(jobs, 2)[0] == ("visible", "Receives return it, after 1 message of its group.")
    lease = one(jobs, "select lease_id from spanmq.receive('jobs', 1)")
    code, sentence, thing, _ = first(jobs, 2)
    assert (code, thing["message_id"], thing["code"]) == ("behind", 1, "leased")
    assert sentence == "Message 1 of its group comes first. A receiver holds it for attempt 1."
    rows(jobs, "select spanmq.reject('jobs', %s, '{1}', 'no')", lease)
    assert first(jobs, 2)[:2] == (
        "dead_letter",
        "Message 1 of its group is a dead letter, which blocks the group.",
    )


def test_limits_of_groups_and_queues_name_what_is_in_flight(jobs: Connection) -> None:
    rows(jobs, "select spanmq.set_policy('jobs', '{\"max_in_flight_per_group\": 1, \"max_in_flight\": 2}')")
    send = "select pgmq.send('jobs', '1', jsonb_build_object('x-pgmq-group', %s::text))"
    rows(jobs, send, "a")
    rows(jobs, send, "a")
    assert explain(jobs, 2)[0] == (
        "in_line",
        "Messages of its group that come first: 1. Its limits allow 1 of these now.",
    )
    rows(jobs, "select spanmq.receive('jobs', 1)")
    assert explain(jobs, 2)[0] == ("group_full", "1 of 1 messages of its group are in flight.")
    rows(jobs, send, "b")
    rows(jobs, send, "c")
    # Which of the groups comes first is not determined.
    [(taken,)] = rows(jobs, "select msg_id from spanmq.receive('jobs', 1)")
    [left] = {3, 4} - {taken}
    assert explain(jobs, left)[0] == ("queue_full", "2 of 2 messages of the queue are in flight.")


def lose_leases(jobs: Connection, quantity: int, times: int) -> None:
    for _ in range(times):
        rows(jobs, "select spanmq.receive('jobs', %s, 60)", quantity)
        change_state(jobs, "vt = clock_timestamp()")


@pytest.mark.parametrize("is_marked", [False, True])
@pytest.mark.parametrize(
    ("policy", "allowed"),
    [
        ('{"max_in_flight": 4}', [1, 4, 5, 6]),
        ('{"rate_limit": 0.001, "rate_burst": 13}', [1, 4, 5, 6]),
        ('{"max_in_flight_per_group": 4}', [1, 4, 5, 6]),
        ('{"ordered": true}', [1]),
    ],
)
def test_of_messages_that_are_delivered_alone_one_counts_under_a_limit(
    jobs: Connection, policy: str, allowed: list[int], is_marked: bool
) -> None:
    rows(jobs, "select spanmq.set_policy('jobs', %s)", policy)
    rows(jobs, "select pgmq.send_batch('jobs', array_fill('1'::jsonb, '{9}'))")
    lose_leases(jobs, 3, 3)
    if is_marked:
        with jobs.transaction():
            assert one(jobs, "select msg_id from spanmq.receive('jobs', 3, 60)") == 1
        rows(jobs, "select spanmq.release('jobs', lease_id, '{1}') from spanmq_core.later where msg_id = 1")
        if "rate_limit" in policy:
            # What was received took a token.
            allowed = allowed[:-1]
    # In a group, the first one may wait for that of another group, as long as none is marked.
    more = [7] if "group" in policy and not is_marked else []
    assert [id_ for id_ in range(1, 10) if first(jobs, id_)[0] == "visible"] == allowed + more
    if not is_marked or "ordered" not in policy:
        assert first(jobs, 2)[0] in ("alone", "behind")
    assert rows(jobs, "select msg_id from spanmq.receive('jobs', 9, 60)") == [(1,)]
    assert sorted(column(jobs, "select msg_id from spanmq.receive('jobs', 9, 60)")) == allowed[1:]


def test_rate_limit_names_the_time_of_the_next_token(jobs: Connection) -> None:
    rows(jobs, "select spanmq.set_policy('jobs', '{\"rate_limit\": 0.001, \"rate_burst\": 1}')")
    rows(jobs, "select pgmq.send_batch('jobs', '{1,2}')")
    assert explain(jobs, 2)[0] == (
        "in_line",
        "1 or more messages come first, and the limits allow 1 more now.",
    )
    rows(jobs, "select spanmq.receive('jobs', 1)")
    assert explain(jobs, 2)[0] == ("rate", "The rate limit of 0.001 a second allows no message before then.")


def test_open_breaker_is_named(jobs: Connection) -> None:
    rows(jobs, "select pgmq.send('jobs', '1')")
    rows(jobs, breaker_report("jobs", 60, "E bank is down"))
    assert ("breaker_open", "A worker has stopped receiving after failures: E bank is down.") in explain(jobs)


def test_open_transaction_that_holds_the_row_is_named(race: Race) -> None:
    race.main.rows("select pgmq.send(%s, '1')", race.queue)
    holder = race.begun()
    holder.rows("set local application_name = 'holder'")
    holder.rows("select spanmq.receive(%s, 1)", race.queue)
    locked = reasons_of(race.main, race.queue, [1])[0]
    assert (locked.code, locked.object) == ("locked", {"pid": holder.pid, "application": "holder"})
    assert locked.call == f"select pg_terminate_backend({holder.pid})"
    holder.rollback()
    assert reasons_of(race.main, race.queue, [1])[0].code == "visible"
