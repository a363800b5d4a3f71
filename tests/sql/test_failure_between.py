"""The failures of many messages at once are those that `failures` tells of each."""

import random

import pytest
from tests.sql.queue import Connection

SETTLE = (
    "select count(*) from (select lease_id, array_agg(msg_id) as ids from spanmq.receive('jobs', %s)"
    " where msg_id %% 3 <> 1 group by lease_id) r,"
    " spanmq.{}(queue => 'jobs', lease_id => r.lease_id, msg_ids => r.ids, error => %s{}) x"
)
STORY = "attempt, failed_at, outcome, category, error, error_class, traceback, worker, retry_at"


@pytest.fixture(autouse=True)
def fill(jobs: Connection) -> None:
    jobs.execute("select pgmq.send('jobs', to_jsonb(i)) from generate_series(1, 600) i")


def test_failures_of_a_range_are_those_of_its_messages(jobs: Connection) -> None:
    chance = random.Random(5)
    # One that they share.
    jobs.execute(SETTLE.format("nack", ", retry_in => 0").encode(), [600, "shared"])
    for i in range(30):
        verb, more = chance.choice([("nack", ", retry_in => 0"), ("nack", ", retry_in => 0"), ("reject", "")])
        jobs.execute(SETTLE.format(verb, more).encode(), [chance.randrange(1, 200), f"error {i}"])
        jobs.execute("select pgmq.set_vt('jobs', msg_id, 0) from spanmq.peek('jobs', qty => 600)")
        if i % 7 == 6:
            jobs.execute("select spanmq.redrive('jobs', qty => 50, delay => 0)")
    together = f"select msg_id, {STORY} from spanmq.failures_between('jobs', %s, %s)"
    jobs.execute(
        f"create temp table told on commit drop as select i, f.*"
        f" from generate_series(1, 600) i, spanmq.failures('jobs', i) f ({STORY})".encode()
    )
    told = "select * from told where i between %s and %s"
    for first, last in [(1, 600), (1, 77), (78, 300), (256, 256), (301, 10_000)]:
        difference = f"select count(*) from (({together}) except all ({told})) x"
        other = f"select count(*) from (({told}) except all ({together})) x"
        top = min(last, 600)
        assert jobs.execute(difference.encode(), [first, last, first, top]).fetchone() == (0,)
        assert jobs.execute(other.encode(), [first, top, first, last]).fetchone() == (0,)
    deaths = jobs.execute(f"select count(*) from ({together}) x where outcome = 'dead'".encode(), [1, 600])
    assert (deaths.fetchone() or [0])[0] > 100


def test_extent_holds_all_failures(jobs: Connection) -> None:
    extent = "select first_id, last_id from spanmq.failure_extent('jobs')"
    assert jobs.execute(extent).fetchone() == (None, None)
    jobs.execute(SETTLE.format("nack", ", retry_in => 60").encode(), [100, "bad"])
    first, last = jobs.execute(extent).fetchone() or (0, 0)
    found = "select min(msg_id), max(msg_id) from spanmq.failures_between('jobs', 1, 600)"
    assert jobs.execute(found).fetchone() == (2, 99)
    assert first <= 2
    assert 99 <= last < 512
    jobs.execute(SETTLE.format("reject", "").encode(), [600, "bad"])
    jobs.execute("delete from spanmq_core.failure")
    assert jobs.execute(extent).fetchone() == (101, 600)
    jobs.execute("select spanmq.redrive('jobs', delay => 0)")
    assert jobs.execute(extent).fetchone() == (101, 600)
