"""A time that Python has not keeps nobody from a message: it is read as the nearest that Python has."""

import psycopg
import pytest

from spanmq.client import AsyncClient
from spanmq.client.rows import EARLIEST, LATEST, read_time
from spanmq.model import Message

FAR = [EARLIEST, LATEST]


pytestmark = pytest.mark.reused


@pytest.fixture
def far(database: str) -> str:
    """A queue with a message that waits for ever; an archive with one from long ago, too."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("select pgmq.create('orders')")
        connection.execute("select pgmq.send('orders', '1', '294276-12-31 00:00:00+00'::timestamptz)")
        connection.execute(
            "insert into pgmq.a_orders (msg_id, vt, message)"
            " values (7, '-infinity', '1'), (8, 'infinity', '1')"
        )
    return database


def times(messages: list[Message]) -> list[object]:
    return [each.leased_until for each in messages]


async def test_far_times_are_read_nearest(far: str) -> None:
    async with AsyncClient(far) as client:
        assert times(await client.peek("orders", 9)) == [LATEST]
        assert times(await client.inspect.archive("orders", 9)) == FAR


@pytest.mark.parametrize("text", ["2013-01-01T00:00:00+00:00", "2013-01-01T05:30:00.5+05:30"])
def test_near_times_are_read_exactly(text: str) -> None:
    assert read_time(text).isoformat() == text.replace(".5+", ".500000+")
