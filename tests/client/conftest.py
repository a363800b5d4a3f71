"""What the tests of both clients share; `_async/conftest.py` has the clients."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from spanmq.testing import new_database, with_database

LATER = Path(__file__).with_name("later.sql").read_text(encoding="utf-8")
DROP_QUEUES = "select pgmq.drop_queue(queue_name) from pgmq.list_queues()"
COUNT_COPIES = """
create sequence public.copies minvalue 0;
create sequence public.copied_messages minvalue 0;
grant all on sequence public.copies, public.copied_messages to public;
alter function spanmq.copy_begin rename to copy_begin_before;
create function spanmq.copy_begin(queue text, n int)
returns table (log_table text, first_id bigint, last_id bigint, enqueued_at timestamptz)
language plpgsql as $$ begin
    return query select b.log_table, b.first_id, b.last_id, b.enqueued_at from spanmq.copy_begin_before(queue, n) b;
    if found then
        perform setval('public.copies', last_value + 1) from public.copies;
        perform setval('public.copied_messages', last_value + n) from public.copied_messages;
    end if;
end $$"""


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The event loop that tests and fixtures with `async def` run in."""
    return "asyncio"


@pytest.fixture(scope="session")
def spanmq_template(spanmq_server: str, spanmq_template: str) -> Iterator[str]:
    """The name of the database from which others are copied; with SPANMQ_TEST_LATER its schema is a later release's."""
    if not os.environ.get("SPANMQ_TEST_LATER"):
        yield spanmq_template
        return
    with new_database(spanmq_server, template=spanmq_template) as name:
        with psycopg.connect(with_database(spanmq_server, name)) as connection:
            connection.execute(LATER.encode())
        yield name


@pytest.fixture(scope="module")
def module_database(spanmq_server: str, spanmq_template: str) -> Iterator[str]:
    """The DSN of a database with spanmq for all tests of a module."""
    with new_database(spanmq_server, template=spanmq_template) as name:
        yield with_database(spanmq_server, name)


@pytest.fixture(scope="module")
def module_upstream_database(spanmq_server: str, upstream_template: str) -> Iterator[str]:
    """The same with upstream PGMQ."""
    with new_database(spanmq_server, template=upstream_template) as name:
        yield with_database(spanmq_server, name)


@pytest.fixture
def copied(observer: psycopg.Connection[Any]) -> Callable[[], tuple[int, int]]:
    """Return a counter of the COPYs begun from now on, and of their messages: no rollback resets it."""
    observer.execute(COUNT_COPIES)

    def counts() -> tuple[int, int]:
        row = observer.execute(
            "select c.last_value, m.last_value from copies c, copied_messages m"
        ).fetchone()
        assert row is not None
        return row[0], row[1]

    return counts


@pytest.fixture
def reused_database(module_database: str) -> Iterator[str]:
    """The DSN of a database without queues: four times cheaper than a new one."""
    yield module_database
    with psycopg.connect(module_database) as connection:
        connection.execute("select pgmq.drop_queue(subscription) from spanmq.list_subscriptions()")
        connection.execute(DROP_QUEUES)


@pytest.fixture
def database(request: pytest.FixtureRequest) -> str:
    """The DSN of a new database; with the mark `reused`, of the module's, in which are no queues."""
    is_reused = request.node.get_closest_marker("reused") is not None
    return str(request.getfixturevalue("reused_database" if is_reused else "spanmq_database"))


@pytest.fixture
def reused_upstream_database(module_upstream_database: str) -> Iterator[str]:
    """The same with upstream PGMQ."""
    yield module_upstream_database
    with psycopg.connect(module_upstream_database) as connection:
        connection.execute(DROP_QUEUES)
