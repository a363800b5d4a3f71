"""Two servers, each behind a proxy, and one DSN that names both; and every program, each of which uses only that."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from service.tests.running import service
from tests.cli.program import started
from tests.patience import WAIT_SECONDS, wait_until
from tests.process.worker.proxy import Proxy, proxying
from tests.worker.running import Record, Running

from spanmq import embedded
from spanmq.client import AsyncClient, Client
from spanmq.client.single_connection import KeptClient
from spanmq.embedded.temporary import TemporaryServer
from spanmq.errors import TEMPORARY
from spanmq.tasks import Task, Tasks
from spanmq.worker import Worker

QUEUES = ("plain", "writes", "tasks", "waited", "calls")
SETTINGS = {"fsync": "off", "full_page_writes": "off", "jit": "off", "max_connections": "200"}
RUNNING = "select count(*) > 0 from pg_stat_activity where application_name = 'maintain' and query_start > %s"


@dataclass
class Place:
    """A server, the proxy before it, and what has been sent there."""

    server: TemporaryServer
    proxy: Proxy
    sent: Counter[str] = field(default_factory=Counter)

    def do(self, statement: str, *values: Any) -> list[Any]:
        """Run a statement on the server itself, writable or not."""
        with psycopg.connect(
            self.server.dsn, autocommit=True, options="-c default_transaction_read_only=off"
        ) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def set(self, name: str, value: str) -> None:
        """Change a setting of the whole server, as its operator or a managed service does."""
        self.do(f"alter system set {name} = {value}")
        self.do("select pg_reload_conf()")
        wait_until(lambda: self._shown(name) == value.strip("'"))

    def _shown(self, name: str) -> Any:
        with psycopg.connect(self.server.dsn) as connection:
            return (connection.execute(f"show {name}".encode()).fetchone() or [None])[0]

    def end_sessions(self) -> None:
        """End all sessions, as an operator or a restarted pooler does."""
        self.do(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where backend_type = 'client backend' and pid <> pg_backend_pid()"
        )

    def messages(self) -> int:
        """Return how many messages its queues hold."""
        [(count,)] = self.do("select coalesce(sum(m.queue_length), 0)::int from pgmq.metrics_all() m")
        return int(count)


def register(tasks: Tasks, handled: list[str]) -> Task[[str], None]:
    """Register and return a task that notes its argument."""

    @tasks.task
    def note(text: str) -> None:
        handled.append(text)

    return note


class Programs:
    """Every program at work, and what it has received."""

    def __init__(self, dsn: str, stack: ExitStack, folder: Path) -> None:
        self.dsn = dsn
        self.handled: list[str] = []
        self._stack = stack
        self._number = 0
        self._stopped = threading.Event()
        self.client = stack.enter_context(Client(dsn, listen=False))
        self.kept = KeptClient(dsn, application_name="kept")
        stack.callback(self.kept.close)
        self._loop = asyncio.new_event_loop()
        self._looping = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._looping.start()
        self.async_client = AsyncClient(dsn)
        self.workers = [
            self._worker("plain", self._handle),
            self._worker("writes", self._write),
            self._tasks(),
        ]
        self._waiter = threading.Thread(target=self._wait, daemon=True)
        self._waiter.start()
        stack.callback(self._end)
        self.service = stack.enter_context(service(dsn, folder, dashboard=False))
        self.http = stack.enter_context(self.service.client())
        name = make_conninfo(dsn, application_name="maintain")
        self.maintain = stack.enter_context(started("maintain", "--every", "0.2", dsn=name))

    def _worker(self, queue: str, handler: Callable[..., Any]) -> Running:
        record = Record()
        worker = Worker(queue, handler, dsn=self.dsn, concurrency=2, lease=120.0, observers=[record])
        return Running(worker, record)

    def _handle(self, message: Any) -> None:
        self.handled.append(message.body)

    async def _write(self, message: Any, connection: psycopg.AsyncConnection[Any]) -> None:
        await connection.execute("insert into public.written values (%s)", [message.body])

    def _tasks(self) -> Running:
        record = Record()
        tasks = Tasks("tasks", dsn=self.dsn)
        register(tasks, self.handled)
        return Running(tasks.worker(observers=[record]), record)

    def _wait(self) -> None:
        with Client(self.dsn) as client:
            while not self._stopped.is_set():
                try:
                    messages = client.receive("waited", 10, wait=2)
                except TEMPORARY:
                    self._stopped.wait(0.1)
                    continue
                if messages:
                    # An ack whose answer is lost may have taken effect: a second one is stale then.
                    wait_until(partial(self._tries, partial(client.ack, messages)))
                    self.handled += [message.body for message in messages]

    def _end(self) -> None:
        self._stopped.set()
        for running in self.workers:
            running.stop()
        self._waiter.join(WAIT_SECONDS)
        asyncio.run_coroutine_threadsafe(self.async_client.close(), self._loop).result(WAIT_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._looping.join(WAIT_SECONDS)
        self._loop.close()

    def work_at(self, place: Place) -> None:
        """Return when each of the programs has done its work once on this server."""
        self._number += 1
        text = str(self._number)
        with Client(place.server.dsn, pool_size=1, listen=False) as direct:
            for queue in ("plain", "writes", "waited"):
                direct.send(queue, f"{queue} {text}")
                place.sent[f"{queue} {text}"] += 1
        tasks = Tasks("tasks", dsn=place.server.dsn)
        register(tasks, self.handled).send(f"tasks {text}")
        tasks.close()
        place.sent[f"tasks {text}"] += 1
        with ThreadPoolExecutor() as threads:
            for done in [
                threads.submit(wait_until, call, self.maintain) for call in self._calls(place, text)
            ]:
                done.result(WAIT_SECONDS)
        wait_until(lambda: self._tries(lambda: self._take(self.client)) and not place.messages())

    def _calls(self, place: Place, text: str) -> list[Callable[[], bool]]:
        """Return what the clients, the service and maintenance do, as calls that return whether it was done."""
        [(now,)] = place.do("select now()")
        body = {"body": text, "dedup_id": f"http {text}"}

        def send_async() -> None:
            call = self.async_client.send("calls", text, dedup_id=f"async {text}")
            asyncio.run_coroutine_threadsafe(call, self._loop).result(WAIT_SECONDS)

        def send_kept() -> None:
            with self.kept() as client:
                client.send("calls", text, dedup_id=f"kept {text}")

        return [
            lambda: self._tries(lambda: self.client.send("calls", text, dedup_id=f"sync {text}")),
            lambda: self._tries(send_async),
            lambda: self._tries(send_kept),
            lambda: self.http.post("/v1/queues/calls/messages", json=body).status_code == 201,
            lambda: self.http.get("/health/ready").status_code == 200,
            lambda: place.do(RUNNING, now) == [(True,)],
        ]

    @staticmethod
    def _take(client: Client) -> None:
        client.ack(client.receive("calls", 100))

    @staticmethod
    def _tries(call: Callable[[], Any]) -> bool:
        try:
            call()
        except TEMPORARY:
            return False
        return True


@dataclass
class Scene:
    first: Place
    second: Place
    programs: Programs

    def faults(self) -> list[str]:
        """Return what was lost or done twice: every message is handled once, on the server that it was sent to."""
        handled = Counter(self.programs.handled)
        sent: Counter[str] = Counter()
        for place in (self.first, self.second):
            sent += place.sent
            handled.update(text for (text,) in place.do("select t from public.written"))
        return [
            f"{text}: sent {sent[text]}, handled {handled[text]}"
            for text in sent
            if sent[text] != handled[text]
        ]


@contextmanager
def scene(folder: Path) -> Iterator[Scene]:
    with ExitStack() as stack:
        places = []
        for _ in range(2):
            server = stack.enter_context(embedded.temporary(settings=SETTINGS))
            parts = conninfo_to_dict(server.dsn)
            proxy = stack.enter_context(proxying(f"{parts['host']}/.s.PGSQL.{parts['port']}"))
            with Client(server.dsn) as client:
                client.install()
                for queue in QUEUES:
                    client.queues.create(queue)
            place = Place(server, proxy)
            place.do("create table public.written (t text)")
            places.append(place)
        first, second = places
        second.set("default_transaction_read_only", "on")
        dsn = make_conninfo(
            "user=postgres dbname=postgres",
            host="127.0.0.1,127.0.0.1",
            port=f"{first.proxy.port},{second.proxy.port}",
        )
        yield Scene(first, second, Programs(dsn, stack, folder))
