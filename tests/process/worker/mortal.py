"""Workers in processes that messages kill, and a parent that forks a new one for each that dies.

`mortal.py DSN LOG SETTINGS`: the settings are JSON, those of a Worker and of this program. A body is the name of what
the handler does: `kill` kills its process, `wait` waits for the file LOG.go, anything else takes `seconds`. Each
handling is a line of the log. SIGTERM ends the children in good order, SIGUSR1 kills them. The parent of a single
process ends the sessions of one that has died, which might receive once more, and then its leases.
"""

import asyncio
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any


def main() -> None:
    import psycopg
    from psycopg.conninfo import make_conninfo

    from spanmq import Client, Message, Worker

    dsn, path, text = sys.argv[1:]
    settings: dict[str, Any] = json.loads(text)
    queues = settings.pop("queues", ["orders"])
    seconds = settings.pop("seconds", 0.0)
    processes = settings.pop("processes", 1)
    threads = settings.pop("threads", 0)
    is_async = settings.pop("is_async", False)
    go = Path(path + ".go")
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def begin(message: Message) -> float | None:
        """Log a handling; return how long it takes, None if it waits."""
        os.write(log, f"{message.message_id} {message.attempt}\n".encode())
        if message.body == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return None if message.body == "wait" else seconds

    def handle(message: Message) -> None:
        pause = begin(message)
        while pause is None and not go.exists():
            time.sleep(0.01)
        time.sleep(pause or 0)

    async def handle_async(message: Message) -> None:
        await asyncio.sleep(begin(message) or 0)

    def handle_batch(messages: list[Message]) -> None:
        for message in messages:
            handle(message)

    def receive_in_threads() -> None:
        ended = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: ended.set())

        def loop() -> None:
            with Client(dsn) as client:
                while not ended.is_set():
                    for message in client.receive("orders", 10, lease=settings["lease"], wait=0.1):
                        handle(message)
                        client.ack(message)

        each = [threading.Thread(target=loop) for _ in range(threads)]
        for thread in each:
            thread.start()
        while not ended.is_set():
            time.sleep(0.01)
        for thread in each:
            thread.join()

    def run_child() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        nonlocal dsn
        dsn = make_conninfo(dsn, application_name=f"mortal {os.getpid()}")
        if threads:
            receive_in_threads()
        else:
            handler = handle_batch if settings.get("in_batches") else handle_async if is_async else handle
            Worker(queues, handler, dsn=dsn, observers=[], **settings).run()

    children: set[int] = set()
    is_ending = False

    def pass_on(number: int, _: object) -> None:
        nonlocal is_ending
        is_ending = is_ending or number == signal.SIGTERM
        for child in children:
            os.kill(child, signal.SIGTERM if is_ending else signal.SIGKILL)

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGUSR1, pass_on)
    while not is_ending or children:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR1])
        while len(children) < processes and not is_ending:
            child = os.fork()
            if not child:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM, signal.SIGUSR1])
                run_child()
                os._exit(0)
            children.add(child)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM, signal.SIGUSR1])
        child, status = os.wait()
        children.discard(child)
        if os.waitstatus_to_exitcode(status) not in (0, -signal.SIGKILL):
            sys.exit(f"a worker ended with {status}")
        if status and processes == 1:
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(
                    "select pg_terminate_backend(pid, 60000) from pg_stat_activity where application_name = %s",
                    [f"mortal {child}"],
                )
                for table in ("state", "later"):
                    connection.execute(
                        f"update spanmq_core.{table} set vt = clock_timestamp() where lease_id <> 0".encode()
                    )


if __name__ == "__main__":
    main()
