"""A worker of whose messages some always fail: how long the others wait. `python -m lab.bench.workers.minority`."""

import argparse
import asyncio
import threading
import time
from collections.abc import Sequence

from spanmq import Client, Message, Worker, embedded
from spanmq.worker.event import MessageSettled


def main(arguments: Sequence[str] | None = None) -> None:
    """Send messages at a rate to a worker with default settings, and print how long those that are well waited."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=10, help="one message of so many fails, always")
    parser.add_argument("--rate", type=int, default=20, help="messages sent a second")
    parser.add_argument("--seconds", type=int, default=90)
    parser.add_argument("--fails-after", type=float, default=0.02, help="seconds until a handler fails")
    options = parser.parse_args(arguments)
    waits: list[float] = []
    attempts: dict[int, int] = {}

    async def handle(message: Message) -> None:
        if message.body["number"] % options.every == 0:
            await asyncio.sleep(options.fails_after)
            raise ConnectionError("the host of customer 7 is down")
        await asyncio.sleep(0.02)
        waits.append(time.monotonic() - message.body["sent_at"])

    def observe(event: object) -> None:
        if isinstance(event, MessageSettled) and event.outcome == "retrying":
            attempts[event.message_id] = event.attempt

    with embedded.temporary(settings={"fsync": "off"}) as server, Client(server.dsn) as client:
        client.install()
        client.queues.create("hooks")
        worker = Worker("hooks", handle, dsn=server.dsn, observers=[observe])
        thread = threading.Thread(target=lambda: asyncio.run(worker.work(signals=False)))
        thread.start()
        began_at = time.monotonic()
        n = options.rate * options.seconds
        for number in range(n):
            time.sleep(max(began_at + number / options.rate - time.monotonic(), 0))
            client.send("hooks", {"number": number, "sent_at": time.monotonic()})
        time.sleep(2)
        state = worker.breakers()["hooks"]
        worker.stop()
        thread.join()
    waits.sort()
    well = sum(number % options.every > 0 for number in range(n))
    print(f"well: {well} sent, {len(waits)} handled; breaker: {state}")
    for share in (0.5, 0.95, 0.99, 1.0):
        print(f"  {share:.0%} within {waits[max(int(share * len(waits)) - 1, 0)]:.3f} s of their send")
    print(
        f"failing: {len(attempts)} messages, {sum(attempts.values())} attempts, up to {max(attempts.values())}"
    )


if __name__ == "__main__":
    main()
