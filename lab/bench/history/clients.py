"""Clients that send, receive and settle, and record it: in groups, in order, with dead letters among them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from lab.bench.history.calls import Call, Recorder, read

SENDERS, CONSUMERS = 2, 3
GROUPS = "abcdefgh"
MAX_ATTEMPTS = 3
POLICY = f'{{"ordered": true, "max_attempts": {MAX_ATTEMPTS}}}'
# Clients of a run have as long to end.
END_SECONDS = 180.0
POSITION = "select (pg_current_wal_insert_lsn() - '0/0')::bigint"


class Client:
    """Sends, or receives and settles, until it is stopped or its server is gone.

    `positions`: it asks the server for those of its log, before and after each call. `pause`: seconds after each call.
    """

    def __init__(self, dsn: str, recorder: Recorder, queue: str, *, positions: bool, pause: float) -> None:
        self._connection = psycopg.connect(dsn, autocommit=True)
        self._recorder = recorder
        self._queue = queue
        self._positions = positions
        self._pause = pause
        self.answers = 0

    def run(self, stopped: threading.Event, *, sends: bool) -> None:
        """Do the same again and again."""
        with self._connection, self._recorder:
            try:
                while not stopped.wait(self._pause):
                    if sends:
                        self._send()
                    else:
                        self._consume()
            except psycopg.OperationalError:
                pass

    def _call(self, text: str, values: list[Any], verb: str, **arguments: Any) -> list[tuple[Any, ...]]:
        if self._positions:
            arguments["wal"] = self._position()
        with self._recorder.call(verb, **arguments) as call:
            rows = self._connection.execute(text.encode(), [self._queue, *values]).fetchall()
            call.got = rows if verb == "receive" else [row[0] for row in rows]
            if self._positions:
                call.wal_after = self._position()
        self.answers += 1
        return rows

    def _position(self) -> int:
        [(position,)] = self._connection.execute(POSITION.encode()).fetchall()
        return int(position)

    def _send(self) -> None:
        group = GROUPS[self.answers % len(GROUPS)]
        send = "select pgmq.send(%s, '1', %s::jsonb)"
        self._call(send, [f'{{"x-pgmq-group": "{group}"}}'], "send", groups=[group])

    def _consume(self) -> None:
        receive = "select msg_id, lease_id from spanmq.receive(%s, 2, 600)"
        rows = self._call(receive, [], "receive", seconds=600)
        if not rows:
            return
        ids, lease = [message_id for message_id, _ in rows], rows[0][1]
        values = [lease, ids]
        match self.answers % 5:
            case 0:
                reject = "select msg_id from spanmq.reject(%s, %s, %s, 'no') where outcome = 'dead'"
                self._call(reject, values, "settle", ids=ids, lease=lease, into="dead", error="no")
            case 1:
                release = "select msg_id from spanmq.release(%s, %s, %s) where outcome = 'released'"
                self._call(release, values, "free", ids=ids, lease=lease)
            case _:
                ack = "select msg_id from spanmq.ack(%s, %s, %s) where outcome = 'acked'"
                self._call(ack, values, "settle", ids=ids, lease=lease)


def create(connection: psycopg.Connection[Any], queue: str) -> None:
    """Create the queue that the clients expect."""
    connection.execute("select pgmq.create(%s)", [queue])
    connection.execute("select spanmq.set_policy(%s, %s::jsonb)", [queue, POLICY])


@contextmanager
def load(
    dsn: str, folder: Path, queue: str, *, positions: bool = False, pause: float = 0.0
) -> Iterator[list[Client]]:
    """Have clients at work on a queue that `create` made; they end with the block, or with their server."""
    clients: list[Client] = []
    threads: list[threading.Thread] = []
    stopped = threading.Event()
    for number in range(SENDERS + CONSUMERS):
        recorder = Recorder(folder, f"client {number}")
        client = Client(dsn, recorder, queue, positions=positions, pause=pause)
        clients.append(client)
        sends = {"sends": number < SENDERS}
        threads.append(threading.Thread(target=client.run, args=(stopped,), kwargs=sends, daemon=True))
    for thread in threads:
        thread.start()
    try:
        yield clients
    finally:
        stopped.set()
        for thread in threads:
            thread.join(END_SECONDS)
    if any(thread.is_alive() for thread in threads):
        raise TimeoutError("a client does not end")


def told(
    folder: Path, connection: psycopg.Connection[Any], queue: str, exported: list[int] | None = None
) -> list[Call]:
    """Return the calls of a history whose clients have ended, to which this adds where the messages are.

    `exported` are the ids of the rows of a lake.
    """
    with Recorder(folder, "look") as recorder, recorder.call("look") as look:
        look.got = {**_places(connection, queue), "exported": exported}
    return read(folder)


def _places(connection: psycopg.Connection[Any], queue: str) -> dict[str, Any]:
    """Return the ids of the messages in a queue and its archive, and its dead letters with their errors."""
    left, archived = (
        [
            message_id
            for (message_id,) in connection.execute(
                f"select msg_id from pgmq.{kind}_{queue}".encode()
            ).fetchall()
        ]
        for kind in "qa"
    )
    letters = "select msg_id, error from spanmq.dead_letters(%s, qty => 100000)"
    dead = [list(row) for row in connection.execute(letters, [queue]).fetchall()]
    return {"left": left, "dead": dead, "archived": archived}
