"""A queue that is damaged keeps no other from its housekeeping, and the server's log tells of it."""

import psycopg
import pytest
from tests.patience import wait_until

# Each is done to queue `damaged`, all whose messages are settled.
DAMAGES = {
    "a table of its log is gone": (
        "select format('drop table spanmq_core.%I', s.log_name) from spanmq_core.segment s"
        " join spanmq_core.queue q using (queue_id) where q.name = 'damaged' order by s.lo limit 1"
    ),
    "its sequence is gone": "select 'drop sequence pgmq.q_damaged_msg_id_seq cascade'",
    "its ids are at their end": "select 'select setval(''pgmq.q_damaged_msg_id_seq'', 9223372036854775807)'",
}
WARNING = 'WARNING: maintain() can\'t keep queue "damaged": '
FILL = (
    "select setval('pgmq.q_{}_msg_id_seq', 16384)",
    "select pgmq.send_batch('{}', array_fill('1'::jsonb, array[1000]))",
    "select pgmq.delete('{0}', array(select msg_id from pgmq.read('{0}', 30, 1000)))",
)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_queue_keeps_no_other_from_its_housekeeping(database: str, damage: str) -> None:
    told: list[str] = []
    made: list[str] = []
    with psycopg.connect(database, autocommit=True) as connection:
        for name in ("damaged", "whole"):
            connection.execute("select pgmq.create_partitioned(%s, '256')", [name])
        for statement in FILL:
            connection.execute(statement.format("damaged").encode())
        for (statement,) in connection.execute(DAMAGES[damage].encode()).fetchall():
            connection.execute(statement)
        connection.add_notice_handler(
            lambda notice: told.append(f"{notice.severity}: {notice.message_primary}")
        )
        # A settled segment stays as long as another test's snapshot may see it.
        wait_until(lambda: (connection.execute("select * from spanmq.maintain()"), told)[1])
        for statement in FILL:
            connection.execute(statement.format("whole").encode())
        for _ in range(20):
            made += [
                queue
                for action, queue, _ in connection.execute("select * from spanmq.maintain()")
                if action == "made segment"
            ]
    assert set(made) == {"whole"}
    assert [each for each in told if not each.startswith(WARNING)] == []
