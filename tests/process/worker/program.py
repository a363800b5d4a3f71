"""A worker in a process of its own, for tests that kill it or set its clock: `program.py DSN LOG …`.

Each delivery is written to the log before and after it is handled, each outcome when it is known, each
extension of a lease. With a seam the process writes its name there and kills itself at its n-th event; the
seam `begun`, in a handler, it writes and stands still there until it is told to go on.
"""

import argparse
import datetime
import os
import signal
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any


def shift_clock(seconds: float) -> None:
    """Set the calendar of this process, before anything reads it; the monotonic clock goes as ever."""
    real_time, real_time_ns, real_now = time.time, time.time_ns, datetime.datetime.now

    class Shifted(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return real_now(tz) + datetime.timedelta(seconds=seconds)

    time.time = lambda: real_time() + seconds
    time.time_ns = lambda: real_time_ns() + int(seconds * 1e9)
    datetime.datetime = Shifted  # type: ignore[misc]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("dsn")
    parser.add_argument("log")
    parser.add_argument("--seam", default="")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--lease", type=float, default=30.0)
    parser.add_argument("--work-ms", type=float, default=0.0)
    parser.add_argument("--table", action="store_true", help="write to the table shipped, with the ack")
    parser.add_argument("--clock", type=float, default=0.0)
    parser.add_argument("--share", type=float, help="extend leases of which this share is over")
    parser.add_argument("--until", help="handle for as long as there is no such file")
    parser.add_argument("--history", type=Path, help="the folder of the calls")
    options = parser.parse_args()
    if options.clock:
        shift_clock(options.clock)

    import spanmq
    from spanmq import Message, Worker
    from spanmq.worker.event import Event, LeaseExtended, MessageSettled, WorkerStarted, name_of

    if options.share is not None:
        from spanmq.worker.settling import heartbeat  # only here: another release has it elsewhere

        heartbeat.SHARE = options.share  # type: ignore[misc]
    log = os.open(options.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(*words: object) -> None:
        os.write(log, (" ".join(map(str, words)) + "\n").encode())

    write("package", spanmq.__file__)
    seen = 0

    def at_seam(name: str) -> None:
        nonlocal seen
        seen += name == options.seam
        if name == options.seam and seen == options.count:
            write("seam", name)
            os.kill(os.getpid(), signal.SIGSTOP if name == "begun" else signal.SIGKILL)

    def handle(message: Message) -> None:
        write("begun", message.message_id, message.attempt, message.leased_until.timestamp())
        at_seam("begun")
        while options.until and not Path(options.until).exists():
            time.sleep(0.01)
        if options.work_ms:
            time.sleep(options.work_ms / 1000)
        write("handled", message.message_id)
        at_seam("handler")

    def handle_in_transaction(message: Message, connection: Any) -> None:
        connection.execute("insert into shipped (number) values (%s)", [message.message_id])
        handle(message)

    def observe(event: Event) -> None:
        at_seam(name_of(event))
        if isinstance(event, MessageSettled):
            write("settled", event.message_id, event.attempt, event.outcome)
        elif isinstance(event, LeaseExtended):
            write("extended")
        elif isinstance(event, WorkerStarted):
            write("started")

    settings = {"concurrency": 4, "batch": 20, "lease": options.lease, "handler_timeout": 20.0}
    handler = handle_in_transaction if options.table else handle
    with nullcontext() if options.history is None else recorded(options.history):
        Worker("orders", handler, dsn=options.dsn, observers=[observe], **settings).run()


def recorded(folder: Path) -> AbstractContextManager[None]:
    # Only here: a test runs this with the package of another release.
    from lab.bench.history.recording import recording

    return recording(folder, f"worker {os.getpid()}", "orders")


if __name__ == "__main__":
    main()
