"""The PyPI package `pgmq` as a real client: what its four variants can do, they do here as on PGMQ."""

import asyncio
import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, is_dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.client.concurrency import until_async
from tests.patience import WAIT_SECONDS
from tests.sql.schema.extension_files import use_folder

from spanmq import schema

pgmq = pytest.importorskip("pgmq")
pytestmark = pytest.mark.filterwarnings("ignore:list_queues:UserWarning")

# What opens, closes and wraps a client rather than doing something with a queue.
LIFECYCLE = {"init", "close", "dispose", "session"}
VARIANTS = ["psycopg", "asyncpg", "sqlalchemy", "sqlalchemy_async"]
# Listening begins at the commit, after which the session is idle.
LISTENED = (
    "select count(*) > 0 from pg_stat_activity where query ilike 'listen %' and state = 'idle'"
    " and datname = current_database()"
)
LATER = datetime(2100, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Address:
    """A DSN in the parts that the client wants."""

    host: str
    port: int
    database: str
    username: str

    @classmethod
    def of(cls, dsn: str) -> "Address":
        parts = conninfo_to_dict(dsn)
        return cls(
            host=str(parts.get("host", "localhost")),
            port=int(parts.get("port") or 5432),
            database=str(parts["dbname"]),
            username=str(parts.get("user", "postgres")),
        )


class Caller:
    """Calls methods of a client, awaiting those that want it, and keeps what was called and what came."""

    def __init__(self, client: Any, run: Callable[[Any], Any]) -> None:
        self.client = client
        self.run = run
        self.called: set[str] = set()
        self.results: list[tuple[str, Any]] = []

    def __call__(self, method: str, *arguments: Any, **options: Any) -> Any:
        result = getattr(self.client, method)(*arguments, **options)
        if inspect.isawaitable(result):
            result = self.run(result)
        self.called.add(method)
        self.results.append((method, plain(result)))
        return result


def plain(value: Any) -> Any:
    """Make results comparable: no times but those far from now, no ages, and rows as dictionaries."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, dict):
        # An age is in whole seconds: how many have passed since a send is the machine's affair.
        return {
            key: "old" if key.endswith("_age_sec") and each is not None else plain(each)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        # PGMQ promises no order of what it returns.
        return sorted((plain(each) for each in value), key=repr)
    if isinstance(value, datetime):
        return value if abs(value - datetime.now(UTC)) > timedelta(days=300) else "now"
    return value


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def open_client(variant: str, dsn: str, opened: ExitStack, *, init_extension: bool = False) -> Caller:
    """Open a client as its users do; without the extension it wants to be told init_extension=False."""
    runner = opened.enter_context(asyncio.Runner())
    address = Address.of(dsn)
    options: dict[str, Any] = asdict(address) | {"init_extension": init_extension, "pool_size": 2}
    client: Any
    if variant == "psycopg":
        client = pgmq.PGMQueue(**options)
        opened.callback(client.close)
    elif variant == "asyncpg":
        # It builds an address out of the parts, in which the folder of a socket must be quoted.
        client = pgmq.AsyncPGMQueue(**options | {"host": quote(address.host, safe="")})
        runner.run(client.init())
        opened.callback(lambda: runner.run(client.close()))
    elif variant == "sqlalchemy":
        from sqlalchemy import create_engine

        connect = {"host": address.host, "port": address.port, "user": address.username}
        engine = create_engine("postgresql+psycopg://", connect_args=connect | {"dbname": address.database})
        client = pgmq.SQLAlchemyPGMQueue(engine=engine, init_extension=init_extension)
        opened.callback(client.dispose)
    else:
        from sqlalchemy.ext.asyncio import create_async_engine

        connect = {"host": address.host, "port": address.port, "user": address.username}
        async_engine = create_async_engine(
            "postgresql+asyncpg://", connect_args=connect | {"database": address.database}
        )
        client = pgmq.SQLAlchemyAsyncPGMQueue(engine=async_engine, init_extension=init_extension)
        runner.run(client.init())
        opened.callback(lambda: runner.run(client.close()))
    return Caller(client, runner.run)


def send_in_every_way(call: Caller) -> None:
    call("send", "orders", {"n": 1})
    call("send", "orders", {"n": 2}, delay=1000)
    call("send", "orders", {"n": 3}, headers={"h": 1})
    call("send", "orders", {"n": 4}, headers={"h": 2}, delay=LATER)
    call("send", "orders", {"n": 5}, tz=LATER)
    call("send_batch", "orders", [{"n": 6}, {"n": 7}])
    call("send_batch", "orders", [{"n": 8}], delay=1000)
    call("send_batch", "orders", [{"n": 9}], headers=[{"h": 3}], delay=LATER)
    call("send_batch", "orders", [{"n": 10}, {"n": 11}], headers=[{"h": 4}, {"h": 5}])
    call("metrics", "orders")
    call("metrics_all")


def take_in_every_way(call: Caller) -> None:
    call("read", "orders")
    call("read", "orders", vt=1000, qty=2)
    call("read", "orders", vt=1000, qty=5, conditional={"n": 11})
    call("read_batch", "orders", vt=1000, batch_size=1)
    call("read_with_poll", "orders", vt=1000, qty=1, max_poll_seconds=2, poll_interval_ms=10)
    call("read", "orders", qty=10)
    call("set_vt", "orders", 1, 0)
    call("set_vt", "orders", 3, LATER)
    call("set_vt", "orders", [6, 7, 99], 0)
    call("set_vt", "orders", [8, 9], LATER)
    call("set_vt", "orders", 99, 0)
    call("pop", "orders")
    call("pop", "orders", qty=5)
    call("pop", "orders")


def settle_in_every_way(call: Caller) -> None:
    call("delete", "orders", 2)
    call("delete", "orders", 2)
    call("delete_batch", "orders", [3, 4, 99])
    call("archive", "orders", 5)
    call("archive", "orders", 5)
    call("archive_batch", "orders", [8, 9, 99])
    call("metrics", "orders")
    call("purge", "orders")
    call("purge", "orders")


def read_in_groups(call: Caller) -> None:
    call("create_queue", "grouped")
    call("create_fifo_index", "grouped")
    call("create_fifo_indexes_all")
    groups = [{"x-pgmq-group": group} for group in "aabbccddee"]
    call("send_batch", "grouped", [{"n": n} for n in range(10)], headers=groups)
    call("read_grouped", "grouped", vt=1000, qty=2)
    call("read_grouped_rr", "grouped", vt=1000, qty=2)
    poll = {"vt": 1000, "qty": 1, "max_poll_seconds": 2, "poll_interval_ms": 10}
    call("read_grouped_with_poll", "grouped", **poll)
    call("read_grouped_rr_with_poll", "grouped", **poll)


def route_by_topics(call: Caller) -> None:
    call("create_queue", "topics", unlogged=True)
    call("bind_topic", "logs.*", "topics")
    call("bind_topic", "#.error", "topics")
    call("bind_topic", "#.error", "grouped")
    call("list_topic_bindings")
    call("list_topic_bindings", "topics")
    call("test_routing", "logs.error")
    call("send_topic", "logs.error", {"n": 1})
    call("send_topic", "logs.info", {"n": 2}, delay=1000)
    call("send_topic", "logs.info", {"n": 3}, headers={"h": 1}, delay=0)
    call("send_batch_topic", "logs.error", [{"n": 4}, {"n": 5}])
    call("send_batch_topic", "logs.error", [{"n": 6}], headers=[{"h": 2}])
    call("send_batch_topic", "logs.error", [{"n": 7}], delay=LATER)
    call("unbind_topic", "#.error", "grouped")
    call("unbind_topic", "#.error", "grouped")
    for key in ("logs.error", "logs..error", "logs.*"):
        call("validate_routing_key", key)
        call("validate_topic_pattern", key)
    call("read", "topics", qty=20)


def manage(call: Caller) -> None:
    call("enable_notify", "topics")
    call("enable_notify", "grouped", throttle_interval_ms=0)
    call("update_notify", "topics", 1000)
    call("list_notify_throttles")
    call("disable_notify", "topics")
    call("list_notify_throttles")
    call("validate_queue_name", "topics")
    call("detach_archive", "topics")
    call("list_queues")
    call("drop_queue", "grouped")
    call("drop_queue", "grouped")
    call("list_queues")


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_method_gives_what_it_gives_on_pgmq(
    variant: str, database: str, upstream_database: str, opened: ExitStack
) -> None:
    here = open_client(variant, database, opened)
    upstream = open_client(variant, upstream_database, opened)
    for call in (upstream, here):
        call("create_queue", "orders")
        for part in (send_in_every_way, take_in_every_way, settle_in_every_way, read_in_groups):
            part(call)
        route_by_topics(call)
        manage(call)
    assert len(here.results) > 75
    for ours, theirs in zip(here.results, upstream.results, strict=True):
        assert ours == theirs

    # These need pg_partman there.
    here("create_partitioned_queue", "partitioned", partition_interval=1000, retention_interval=5000)
    here("convert_archive_partitioned", "orders", retention_interval="7 days")
    assert here("send", "partitioned", {"n": 1}) == 1
    methods = {
        name
        for name, value in inspect.getmembers(type(here.client), callable)
        if not name.startswith("_") and name not in LIFECYCLE
    }
    assert here.called == methods


@pytest.mark.parametrize("variant", VARIANTS)
def test_errors_are_those_of_pgmq(
    variant: str, database: str, upstream_database: str, opened: ExitStack
) -> None:
    wrong: dict[str, tuple[Any, ...]] = {
        "send": ("missing", {}),
        "read": ("missing",),
        "create_queue": ("a" * 48,),
        "drop_queue": ("a;b",),
        "bind_topic": ("a..b", "missing"),
        "enable_notify": ("missing",),
    }
    messages = []
    for dsn in (upstream_database, database):
        call = open_client(variant, dsn, opened)
        for method, arguments in wrong.items():
            with pytest.raises(Exception, match=r"does not exist|too long|invalid|consecutive") as raised:
                call(method, *arguments)
            # SQLAlchemy puts a class before the text, and ours is another: its SQLSTATE says more than P0001.
            messages.append(re.sub(r"^.*(\) |>: )", "", str(raised.value).splitlines()[0]))
    assert messages[: len(wrong)] == messages[len(wrong) :]


def test_a_send_joins_the_transaction_of_the_caller(database: str, opened: ExitStack) -> None:
    call = open_client("psycopg", database, opened)
    call("create_queue", "orders")
    with psycopg.connect(database) as connection:
        call("send", "orders", {"n": 1}, conn=connection)
        connection.rollback()
        call("send", "orders", {"n": 2}, conn=connection)
        connection.commit()
    assert [each.message for each in call("read", "orders", qty=10)] == [{"n": 2}]


@pytest.mark.parametrize("variant", VARIANTS)
def test_default_constructor_finds_the_extension(
    variant: str, database: str, server_folder: Path, opened: ExitStack
) -> None:
    schema.write_extension(server_folder)
    use_folder(database, server_folder)
    for _ in range(2):
        call = open_client(variant, database, opened, init_extension=True)
        call("create_queue", "orders")
        assert call("send", "orders", {"n": 1}) > 0
    with psycopg.connect(database, autocommit=True) as session:
        assert session.execute("select extname from pg_extension where extname = 'pgmq'").fetchall()
        session.execute("drop extension pgmq cascade")
        assert schema.verify(session) == []
    assert len(call("read", "orders", qty=9)) == 2


def test_default_constructor_fails_without_the_files(database: str) -> None:
    options = asdict(Address.of(database))
    with psycopg.connect(database) as connection:
        row = connection.execute(
            "select count(*) from pg_available_extensions where name = 'pgmq'"
        ).fetchone()
    if row != (0,):
        pytest.skip("this server has the extension")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="pgmq"):
        pgmq.PGMQueue(**options, pool_size=1)


def test_the_asynchronous_listener_hears_a_send(database: str, opened: ExitStack) -> None:
    from pgmq.notify_listener import AsyncNotificationListener

    call = open_client("asyncpg", database, opened)
    call("create_queue", "orders")
    call("enable_notify", "orders")
    heard: list[dict[str, Any]] = []

    async def listen() -> None:
        listener = AsyncNotificationListener(call.client)

        async def keep(payload: dict[str, Any]) -> None:
            heard.append(payload)
            listener.stop()

        # It awaits the callback, whatever its annotation says.
        listening = asyncio.create_task(listener.listen("orders", keep))  # type: ignore[arg-type]
        with psycopg.connect(database, autocommit=True) as session:
            await until_async(session, LISTENED)
        await call.client.send("orders", {"n": 1})
        await asyncio.wait_for(listening, WAIT_SECONDS)

    call.run(listen())
    assert heard == [{"event": "insert", "payload_empty": True}]
