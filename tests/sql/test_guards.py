"""What a simplification would break first: what left a lease, and the order of what came back."""

import pytest
from tests.schemas import qualified
from tests.sql.queue import Connection, column


@pytest.mark.parametrize(
    ("take", "left"),
    [
        *((f"{name} 10)", [1, 3, 4, 6]) for name in ("read('jobs', 30,", "receive('jobs',", "pop('jobs',")),
        ("read_grouped('jobs', 30, 10)", [1, 3, 4, 6]),
        # Nor does it count as taken.
        *((f"{name} 3)", [1, 3, 4]) for name in ("read('jobs', 30,", "receive('jobs',", "pop('jobs',")),
    ],
)
def test_what_left_a_lease_does_not_come_back_when_it_ends(
    jobs: Connection, take: str, left: list[int]
) -> None:
    jobs.execute("select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[6]))")
    jobs.execute("select pgmq.read('jobs', 0, 6)")
    jobs.execute("select pgmq.delete('jobs', 2), pgmq.delete('jobs', 5)")
    assert column(jobs, f"select msg_id from {qualified(take)}") == left


def test_messages_that_came_back_come_in_order(jobs: Connection) -> None:
    jobs.execute("select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[60]))")
    # Every third message comes back by itself.
    jobs.execute("create temp table lease as select max(lease_id) as id from spanmq.receive('jobs', 60)")
    jobs.execute(
        "select spanmq.nack('jobs', id, array(select generate_series(r, 60, 3)), retry_in => 0)"
        " from generate_series(1, 3) r, lease"
    )
    for first, quantity in ((1, 1), (2, 7), (9, 52)):
        taken = jobs.execute("select msg_id from spanmq.receive('jobs', %s)", [quantity]).fetchall()
        assert taken == [(first + place,) for place in range(quantity)]
