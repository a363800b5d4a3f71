"""The record of changes: what was changed, by which role, token or command."""

import json
from collections.abc import Iterator

import pytest
from tests.sql.queue import Connection, one, sqlstate_of

from spanmq.actor import ACTOR
from spanmq.client import Client
from spanmq.model import Change

ROLE = "spanmq_test_changer"


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
    later, first = client.inspect.changes("jobs")
    assert (first.action, first.queue, first.actor) == ("pause", "jobs", actor)
    assert first.role == one(jobs, "select current_user")
    assert later.details is not None
    assert json.loads(later.details["settings"]) == {"max_attempts": 3}
    assert told(client.inspect.changes("jobs", before=later.change_id)) == [("pause", "jobs")]


def test_change_that_fails_and_dry_run_leave_no_record(client: Client, jobs: Connection) -> None:
    assert (
        sqlstate_of(jobs, "select * from spanmq.pause('none'), spanmq.note_change('pause', 'none')")
        == "42P01"
    )
    client.dead_letters.redrive("jobs", dry_run=True)
    client.dead_letters.discard("jobs", dry_run=True)
    assert client.inspect.changes() == []


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
    assert client.inspect.changes() == []


def test_role_that_changes_is_recorded_and_cannot_be_forged(client: Client, jobs: Connection) -> None:
    jobs.execute(f"create role {ROLE}".encode())
    client.admin.grants.create(ROLE, "jobs", "manage")
    jobs.execute(f"set local role {ROLE}".encode())
    client.queues.pause("jobs")
    assert (
        sqlstate_of(jobs, "select spanmq_call.note_change('drop', 'jobs', null, null, gen_random_uuid())")
        == "42501"
    )
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


def test_changes_of_a_day_are_bounded_and_one_actor_leaves_room_for_others(
    client: Client, jobs: Connection
) -> None:
    add = (
        "insert into spanmq_core.change (role, actor, action)"
        " select current_user, %s, 'x' from generate_series(1, %s)"
    )
    paused = "select count(*) from spanmq_core.change where action = 'pause' and actor = %s"

    def pause(actor: str, times: int) -> int:
        """Pause the queue as this actor, and return how many of its pauses are recorded."""
        before = ACTOR.set(actor)
        for _ in range(times):
            client.queues.pause("jobs")
        ACTOR.reset(before)
        return int(one(jobs, paused, actor))

    jobs.execute(add, ["one", 9999])
    assert pause("one", 2) == 1
    # A thousand of each other actor, up to 20,000 in all.
    jobs.execute(add, ["another", 999])
    assert pause("another", 2) == 1
    jobs.execute(add, ["others", 8999])
    assert pause("last", 2) == 1
