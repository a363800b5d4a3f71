"""A group waits for its dead letter where the policy says so, and the dead letter is first in it again."""

import pytest
from tests.sql.queue import Connection, column, kill, one


def blocked(connection: Connection) -> list[int]:
    """Send three messages of a group, one of another and one of none; let the first die."""
    ids = column(
        connection,
        "select pgmq.send_batch('jobs', array['1', '2', '3', '4', '5']::jsonb[], array["
        '\'{"x-pgmq-group": "a"}\', \'{"x-pgmq-group": "a"}\', \'{"x-pgmq-group": "a"}\','
        ' \'{"x-pgmq-group": "b"}\', null]::jsonb[])',
    )
    kill(connection, ids[:1], queue="jobs")
    return ids


@pytest.fixture
def blocking(jobs: Connection) -> Connection:
    jobs.execute(
        "select spanmq.set_policy('jobs', '{\"ordered\": true, \"dead_letter_blocks_group\": true}')"
    )
    return jobs


def received(connection: Connection) -> list[int]:
    return sorted(column(connection, "select msg_id from spanmq.receive('jobs', 100)"))


def test_dead_letter_frees_its_group(jobs: Connection) -> None:
    jobs.execute("select spanmq.set_policy('jobs', '{\"ordered\": true}')")
    ids = blocked(jobs)
    assert received(jobs) == ids[1:]


def test_group_waits_for_its_dead_letter_which_is_first_again(blocking: Connection) -> None:
    ids = blocked(blocking)
    assert received(blocking) == ids[3:]
    assert column(blocking, "select msg_id from spanmq.redrive('jobs', delay => 60)") == ids[:1]
    assert received(blocking) == [], "the group waits through the delay"
    one(blocking, "select pgmq.set_vt('jobs', %s, 0)", ids[0])
    assert received(blocking) == ids[:3]
    assert column(blocking, "select * from spanmq_core.blocked_group") == []


def test_group_goes_on_when_its_dead_letter_is_discarded(blocking: Connection) -> None:
    ids = blocked(blocking)
    assert one(blocking, "select spanmq.purge_dead_letters('jobs')") == 1
    assert received(blocking) == ids[1:]


def test_group_goes_on_when_its_dead_letter_is_past_its_retention(blocking: Connection) -> None:
    ids = blocked(blocking)
    blocking.execute("update spanmq_core.dead_letter set dead_at = dead_at - interval '2 days'")
    blocking.execute("select spanmq.set_policy('jobs', '{\"dead_letter_retention\": \"1 day\"}')")
    blocking.execute("select * from spanmq.maintain()")
    assert received(blocking) == ids[1:]


def test_groups_go_on_when_the_policy_is_taken_back(blocking: Connection) -> None:
    ids = blocked(blocking)
    blocking.execute("select spanmq.set_policy('jobs', '{\"dead_letter_blocks_group\": false}')")
    assert received(blocking) == ids[1:]


def test_group_waits_for_the_last_of_its_dead_letters(blocking: Connection) -> None:
    ids = blocked(blocking)
    assert received(blocking) == ids[3:]
    kill(blocking, ids[1:2], queue="jobs")
    one(blocking, "select spanmq.redrive_message('jobs', %s, delay => 0)", ids[0])
    assert received(blocking) == []
    one(blocking, "select spanmq.redrive_message('jobs', %s, delay => 0)", ids[1])
    assert received(blocking) == ids[:3]
