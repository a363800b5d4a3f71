"""The same boto3 program against this service and against moto's server, which keeps its messages in memory.

As `python -m lab.bench.service.sqs ADDRESS CYCLES CLIENTS` it is that program, and prints the seconds.
"""

from __future__ import annotations

import json
import multiprocessing
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from statistics import median
from typing import Any

from lab.bench.server import output_of

CLIENTS = (1, 8)
CYCLES = 400
BATCH = 10
BODY = json.dumps(
    {"order": 17, "customer": "c-5", "lines": [{"article": "a" * 40, "n": n} for n in range(3)]}
)
START_SECONDS = 30.0


def measure(address: str, rounds: int, *, quick: bool) -> dict[int, dict[str, float]]:
    """Give, for each number of clients, the messages a second of both; nothing where moto is missing."""
    if find_spec("moto") is None:
        return {}
    cycles = CYCLES // 4 if quick else CYCLES
    rates_by_clients: dict[int, dict[str, float]] = {}
    with moto() as other:
        for clients in CLIENTS:
            rates: dict[str, list[float]] = {"spanmq": [], "moto": []}
            for number in range(rounds):
                # In turn first, as everywhere here.
                for kind in sorted(rates, reverse=bool(number % 2)):
                    where = address if kind == "spanmq" else other
                    rates[kind].append(cycles * BATCH / run(where, cycles, clients))
            rates_by_clients[clients] = {kind: median(values) for kind, values in rates.items()}
    return rates_by_clients


def report(rates_by_clients: dict[int, dict[str, float]]) -> None:
    """Print the table."""
    if not rates_by_clients:
        print("moto is not installed: no comparison over SQS\n")
        return
    print(
        "| SQS: send, receive and delete batches of 10 | spanmq, messages/s | moto (in memory) | ratio |\n"
        "|---|---|---|---|"
    )
    for clients, rates in rates_by_clients.items():
        ratio = rates["spanmq"] / rates["moto"]
        print(f"| {clients} client(s) | {rates['spanmq']:,.0f} | {rates['moto']:,.0f} | {ratio:.2f} |")
    print()


def run(address: str, cycles: int, clients: int) -> float:
    """Run the program in a process of its own; return the seconds."""
    arguments = (address, str(cycles), str(clients))
    return float(output_of("the SQS program", "lab.bench.service.sqs", *arguments))


@contextmanager
def moto() -> Iterator[str]:
    """Run moto's server on loopback, and give its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + START_SECONDS
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    if time.monotonic() > deadline or process.poll() is not None:
                        raise SystemExit("moto's server did not start") from None
                    time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def client(address: str) -> Any:
    """Return a client as a program would make it."""
    import boto3
    from botocore.config import Config

    return boto3.client(
        "sqs",
        endpoint_url=address,
        region_name="us-east-1",
        aws_access_key_id="bench",
        aws_secret_access_key="bench",
        config=Config(proxies={}),
    )


def work(address: str, url: str, cycles: int, ready: Any) -> None:
    """Send, receive and delete a batch, so many times."""
    sqs = client(address)
    sqs.get_queue_url(QueueName=url.rpartition("/")[2])  # connected
    ready.wait()
    entries = [{"Id": str(number), "MessageBody": BODY} for number in range(BATCH)]
    for _ in range(cycles):
        sqs.send_message_batch(QueueUrl=url, Entries=entries)
        messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=BATCH).get("Messages", [])
        held = [
            {"Id": str(n), "ReceiptHandle": message["ReceiptHandle"]} for n, message in enumerate(messages)
        ]
        if held:
            sqs.delete_message_batch(QueueUrl=url, Entries=held)


def main(address: str, cycles: int, clients: int) -> float:
    """Let so many processes share the cycles; give the seconds from their common start to the last end."""
    url = client(address).create_queue(QueueName=f"bench-{time.time_ns()}")["QueueUrl"]
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(clients + 1)
    workers = [
        context.Process(target=work, args=(address, url, cycles // clients, ready)) for _ in range(clients)
    ]
    for worker in workers:
        worker.start()
    ready.wait()
    began = time.perf_counter()
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        raise SystemExit("a client failed")
    return time.perf_counter() - began


if __name__ == "__main__":
    print(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
