"""The main job on real data: 336,776 flights through a queue, and not one of them lost or changed."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Final

from spanmq.client import Client
from spanmq.errors import InvalidArgumentError, SpanmqError
from spanmq_lab.demo.audit import DemoCheck, compare, tally_archive, tally_file
from spanmq_lab.demo.display import display, say
from spanmq_lab.demo.flights import ROWS, find_file, read_flights
from spanmq_lab.demo.report import DemoReport, peak_memory_bytes
from spanmq_lab.demo.transfer import Transfer

__all__ = ["QUEUE", "ROWS", "DemoCheck", "DemoReport", "run"]

QUEUE: Final = "spanmq_demo_flights"


def run(
    dsn: str | None = None,
    *,
    rows: int = ROWS,
    consumers: int = 3,
    queue: str = QUEUE,
    keep: bool = False,
    then: Callable[[str, str], None] | None = None,
) -> DemoReport:
    """Send the first flights of the file, receive and archive them, and compare the archive with the file.

    On the database of `dsn`, in which the schema is installed and no such queue exists; it is dropped at the
    end unless `keep`; before that `then` gets the dsn and the queue. Without `dsn` on a server of its own
    that goes with it. Shows how far it is on stderr.
    Any error, and Ctrl-C, drops the queue too.
    """
    if keep and dsn is None:
        raise InvalidArgumentError(
            "the temporary server is removed after the demo: pass a dsn to keep the queue"
        )
    path = find_file()
    rows = min(rows, ROWS)
    began = time.monotonic()
    with _server(dsn) as address, Client(address, pool_size=consumers + 2, maintain_interval=1.0) as client:
        if dsn is None:
            client.install()
        with _queue(client, queue, keep=keep):
            before = client.inspect.storage(queue)
            transfer = Transfer(client, queue)
            with display(rows) as tick:
                transfer.run(read_flights(path, rows), consumers=consumers, tick=tick)
                after = client.inspect.storage(queue)
                file, archive = tally_file(path, rows, tick), tally_archive(client, queue, tick)
            if then is not None:
                then(address, queue)
            return DemoReport(
                queue=queue,
                rows=transfer.sent,
                consumers=consumers,
                seconds=time.monotonic() - began,
                send_seconds=transfer.send_seconds,
                settle_seconds=transfer.settle_seconds,
                send_rate=transfer.sent / transfer.send_seconds,
                settle_rate=transfer.settled / transfer.settle_seconds,
                redelivered=transfer.redelivered,
                wal_bytes=after.wal_bytes - before.wal_bytes,
                log_bytes=after.log_bytes,
                archive_bytes=after.archive_bytes,
                state_bytes=after.state_bytes,
                peak_memory_bytes=peak_memory_bytes(),
                checksum=archive.checksum,
                checks=compare(file, archive, left=client.queues.metrics(queue).length),
            )


@contextlib.contextmanager
def _server(dsn: str | None) -> Iterator[str]:
    """Yield the DSN of a database; starts a server if none is given."""
    if dsn is not None:
        yield dsn
        return
    from spanmq import embedded

    say("starting a PostgreSQL server")
    with embedded.temporary() as server:
        yield server.dsn


@contextlib.contextmanager
def _queue(client: Client, queue: str, *, keep: bool) -> Iterator[None]:
    """Create the queue, and drop it at the end; an existing one is never touched."""
    client.admin.version()  # before anything is made: upstream PGMQ has no leases
    if queue.lower() in (listed.name.lower() for listed in client.queues.list()):
        raise SpanmqError(
            f"queue {queue} exists already",
            hint=f"spanmq queue drop {queue}, or choose another name with --queue",
        )
    client.queues.create(queue)
    done = False
    try:
        yield
        done = True
    finally:
        if not (keep and done):
            client.queues.drop(queue)
