"""A queue of small segments, and what tests do to see them come and go."""

from tests.sql.race.sessions import Race, Rows, Session

SIZE = 256
# The first segment has 16384 ids whatever a queue is told later; these tests begin behind it.
FIRST_ID = 16384

# So many calls in a row that did nothing mean that nothing is to be done.
IDLE_CALLS = 6


def make_queue(race: Race, size: int = SIZE) -> None:
    """Make the queue `jobs` anew, with segments of a fixed size; the next id is FIRST_ID."""
    race.main.rows("select pgmq.drop_queue('jobs')")
    race.main.rows("select pgmq.create_partitioned('jobs', %s)", str(size))
    race.queue_id = race.main.value("select queue_id from spanmq_core.queue where name = 'jobs'")
    # The first segment goes before the test: maintain() takes one step a call, which would be this one's.
    race.main.rows("select setval('pgmq.q_jobs_msg_id_seq', %s)", FIRST_ID)
    for _ in range(100):
        maintain(race)
        if state_of(race, FIRST_ID - 1) is None:
            break
    assert state_of(race, FIRST_ID - 1) is None
    race.main.rows("select setval('pgmq.q_jobs_msg_id_seq', %s)", FIRST_ID - 1)
    # It sees that ids come again.
    maintain(race)


def maintain(race: Race, session: Session | None = None) -> Rows:
    """Call maintain() until there is nothing to do, and return what it did."""
    done: Rows = []
    idle = 0
    for _ in range(500):
        rows = (session or race.main).rows("select action, detail from spanmq.maintain()")
        done += rows
        idle = 0 if rows else idle + 1
        if idle == IDLE_CALLS:
            return done
        if idle:
            # A call may only have noted what the next one waits for: that older snapshots have ended,
            # those of other tests too, which begin and end at any time.
            race.wait_for_other_databases()
    raise AssertionError(f"maintain() does not come to an end: {done[-5:]}")


def did(done: Rows, action: str) -> int:
    return sum(row[0] == action for row in done)


def send_past(race: Race, n: int = SIZE, session: Session | None = None) -> list[int]:
    return (session or race.main).column(
        "select pgmq.send_batch('jobs', array("
        "  select jsonb_build_object('i', i) from generate_series(1, %s) i))",
        n,
    )


def delete(race: Race, ids: list[int]) -> None:
    assert sorted(race.main.column("select pgmq.delete('jobs', %s::bigint[])", ids)) == sorted(ids)


def tables(race: Race) -> list[str]:
    return race.main.column(
        "select relname from pg_class where relkind = 'r' and relname ~ %s order by 1",
        f"^log_{race.queue_id}_",
    )


def state_of(race: Race, message_id: int) -> str | None:
    value = race.main.value(
        "select state from spanmq_core.segment where queue_id = %s and %s between lo and hi",
        race.queue_id,
        message_id,
    )
    return None if value is None else str(value)


def make_sparse(race: Race) -> tuple[list[int], list[int]]:
    """Fill a segment of 2,048, of which 21 messages stay; return those and the ids of the next segment."""
    make_queue(race, 2048)
    ids = send_past(race, 2048)
    others = send_past(race, 10)
    stay = ids[::100]
    delete(race, sorted(set(ids) - set(stay)))
    return stay, others
