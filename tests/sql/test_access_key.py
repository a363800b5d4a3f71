"""Keys of the SQS protocol: made, checked, ended."""

from tests.sql.queue import Connection

KEY = "SPANMQ00000000000001"
MAKE = (
    f"select (spanmq.create_access_key('{KEY}', repeat('s', 40), array['orders-*'], array['send', 'look']))"
)
FIND = f"select * from spanmq.find_access_key('{KEY}')"


def test_a_key_is_found_until_it_is_revoked(connection: Connection) -> None:
    connection.execute(MAKE.encode())
    assert connection.execute(FIND.encode()).fetchall() == [("s" * 40, ["orders-*"], ["look", "send"])]
    [listed] = connection.execute("select * from spanmq.list_access_keys()").fetchall()
    assert (listed[0], "s" * 40 in listed) == (KEY, False)
    assert connection.execute("select spanmq.revoke_access_key(%s)", [KEY]).fetchone() == (True,)
    assert connection.execute("select spanmq.revoke_access_key(%s)", [KEY]).fetchone() == (False,)
    assert connection.execute(FIND.encode()).fetchall() == []


def test_an_expired_key_is_not_found(connection: Connection) -> None:
    connection.execute(MAKE.encode())
    connection.execute("update spanmq_core.access_key set expires_at = clock_timestamp()")
    assert connection.execute(FIND.encode()).fetchall() == []


def test_what_sqs_knows_of_a_queue_goes_with_it(jobs: Connection) -> None:
    jobs.execute("select pgmq.create('others')")
    jobs.execute('select spanmq.set_sqs_queue(\'jobs\', \'{"DelaySeconds": "5"}\', \'{"a": "1"}\')')
    jobs.execute('select spanmq.set_sqs_queue(\'jobs\', tags => \'{"a": null, "b": "2"}\')')
    known = "select queue_name, attributes, tags from spanmq.list_sqs_queues()"
    assert jobs.execute(known.encode()).fetchall() == [
        ("jobs", {"DelaySeconds": "5"}, {"b": "2"}),
        ("others", {}, {}),
    ]
    jobs.execute("select pgmq.drop_queue('jobs')")
    assert jobs.execute("select count(*) from spanmq_core.sqs_queue").fetchone() == (0,)
