"""Eight tenants, of which one is hostile: what the others notice of each thing that it does.

Run it alone: `python -m lab.bench.service.neighbours [--seconds N] [--dsn DSN]`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from lab.bench.server import fresh, serving
from lab.bench.service.process import service
from lab.bench.service.wire import StatusError, Wire

from spanmq.model import AccessKey

TENANTS = 8
# Requests of each tenant in a second: a steady load, well below what a service can do.
RATE = 20.0
SECONDS = 10.0
# The targets.
P99_TIMES_MAX = 2.0
MEGABYTES_MAX = 400.0

LARGE = json.dumps({"body": {f"key{n}": n for n in range(700_000)}}).encode()
BRACKETS = b'{"body":' + b"[" * 7_000_000 + b"]" * 7_000_000 + b"}"
LISTS = b'{"body":[' + b"[]," * 4_600_000 + b"1]}"
LONG = json.dumps({"body": "x" * 15_000_000}).encode()
LEVELS = 60
SCHEMA = {
    "$ref": "#/$defs/d0",
    "$defs": {
        **{f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(LEVELS)},
        f"d{LEVELS}": {"type": "string"},
    },
}
CHECKED = {"allOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}]}
SCHEDULED = b', "queue": "hostile", "cron": "0 0 * * *"}'
ALLOWED = json.dumps({"body": "x" * 60_000}).encode()
DEEP = json.dumps({"body": json.loads("[" * 40 + "]" * 40)}).encode()

Act = Callable[["Hostile"], Awaitable[object]]


@dataclass(frozen=True)
class Tenant:
    """A tenant: its queue, its token, and for some an access key of the SQS protocol."""

    queue: str
    secret: str
    key: AccessKey | None = None


class Hostile:
    """What the hostile tenant does, over connections of its own; `foreign` are headers with another's key id."""

    def __init__(self, address: str, secret: str, foreign: Mapping[str, str], answers: Counter[int]) -> None:
        self.wire = Wire(address, secret)
        self._foreign = foreign
        # How often which status was answered; 0: none was.
        self._answers = answers

    async def do(self, method: str, path: str, body: bytes = b"") -> None:
        """Send a request; whatever is answered."""
        status = 0
        try:
            await self.wire.request(method, path, body)
            status = 200
        except StatusError as error:
            status = error.status
        except (RuntimeError, OSError, EOFError):
            pass
        self._answers[status] += 1
        if status != 200:
            self.wire.close()

    async def make_and_list_schedules(self) -> None:
        """Create a schedule with a large body, and list all with their bodies."""
        await self.do("PUT", "/v1/schedules/hostile", LONG[:-1] + SCHEDULED)
        await self.do("PUT", "/v1/schedules/allowed", ALLOWED[:-1] + SCHEDULED)
        await self.do("GET", f"/v1/schedules?body_bytes_max={2**31 - 1}")

    async def check_and_scrape(self) -> None:
        """Ask for the health of all queues, and for the metrics."""
        await self.do("GET", "/v1/health")
        await self.do("GET", "/metrics")

    async def slow_signed_body(self) -> None:
        """Announce a body under another tenant's key id, and do not send it."""
        head = "".join(f"{name}: {value}\r\n" for name, value in self._foreign.items())
        await self._slowly(f"POST / HTTP/1.1\r\n{head}Content-Length: 1000\r\n\r\n")

    async def slow_body(self) -> None:
        """Announce a body without credentials, and do not send it."""
        await self._slowly("POST /sign-in HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")

    async def slow_answer(self) -> None:
        """Ask for a large answer, and do not read it."""
        await self._slowly(
            "GET /v1/queues/hostile/messages?quantity=100 HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: Bearer {self.wire.secret}\r\n\r\n"
        )

    async def _slowly(self, text: str) -> None:
        with suppress(OSError, TimeoutError):
            reader, writer = await asyncio.open_connection(self.wire.host, self.wire.port, limit=1024)
            try:
                writer.write(text.encode())
                await asyncio.sleep(2.0)
                await asyncio.wait_for(reader.read(10), 0.1)
            finally:
                writer.transport.abort()


# What it does, and how many do it at once.
ATTACKS: dict[str, tuple[int, Act]] = {
    "nothing": (0, lambda hostile: hostile.do("GET", "/health/live")),
    "a schema of 60 levels": (
        8,
        lambda hostile: hostile.do(
            "PUT", "/v1/queues/hostile/schema?checked=true", json.dumps(SCHEMA).encode()
        ),
    ),
    "bodies that a schema checks for long": (
        8,
        lambda hostile: hostile.do("POST", "/v1/queues/checked/messages", DEEP),
    ),
    "schedules of 15 MB, listed": (4, lambda hostile: hostile.make_and_list_schedules()),
    "bodies of 700,000 members": (
        4,
        lambda hostile: hostile.do("POST", "/v1/queues/hostile/messages", LARGE),
    ),
    "bodies of 14 MB of brackets": (
        4,
        lambda hostile: hostile.do("POST", "/v1/queues/hostile/messages", BRACKETS),
    ),
    "bodies of 4.6 million lists": (
        4,
        lambda hostile: hostile.do("POST", "/v1/queues/hostile/messages", LISTS),
    ),
    "peeks of 150 MB": (8, lambda hostile: hostile.do("GET", "/v1/queues/hostile/messages?quantity=10")),
    "answers that are not read": (100, lambda hostile: hostile.slow_answer()),
    "slow bodies without a token": (200, lambda hostile: hostile.slow_body()),
    "slow bodies under another's key": (200, lambda hostile: hostile.slow_signed_body()),
    "health and metrics": (8, lambda hostile: hostile.check_and_scrape()),
}


def signed(host: str, key: AccessKey, body: bytes) -> dict[str, str]:
    """Return the headers of a request of the SQS protocol."""
    headers = {
        "Host": host,
        "Content-Type": "application/x-amz-json-1.0",
        "X-Amz-Target": "AmazonSQS.SendMessage",
    }
    request = AWSRequest("POST", f"http://{host}/", headers, body)
    SigV4Auth(Credentials(key.access_key_id, str(key.secret)), "sqs", "us-east-1").add_auth(request)
    return dict(request.headers.items())


async def tenant(address: str, who: Tenant, until: float, times: list[float]) -> None:
    """Send, receive and ack at a steady rate; note how long each request takes, in ms.

    A tenant with an access key sends by the SQS protocol.
    """
    wire = Wire(address, who.secret)
    host = f"{wire.host}:{wire.port}"
    path = f"/v1/queues/{who.queue}"
    at = time.perf_counter()
    step = 0
    receipts: list[str] = []
    while time.perf_counter() < until:
        step += 1
        at += 1 / RATE
        await asyncio.sleep(max(0.0, at - time.perf_counter()))
        began = time.perf_counter()
        if step % 3 == 1 and who.key is not None:
            url = f"http://{host}/000000000000/{who.queue}"
            body = json.dumps({"QueueUrl": url, "MessageBody": "order 17"}).encode()
            await wire.request("POST", "/", body, signed(host, who.key, body))
        elif step % 3 == 1:
            await wire.post(f"{path}/messages", b'{"body": {"order": 17}}')
        elif step % 3 == 2:
            answer = await wire.post(f"{path}/receive", b'{"quantity": 10}')
            receipts = [message["receipt"] for message in answer["messages"]]
        elif receipts:
            await wire.post("/v1/ack", json.dumps({"receipts": receipts}).encode())
        times.append((time.perf_counter() - began) * 1000)
    wire.close()


async def repeat(hostile: Hostile, act: Act, until: float) -> None:
    """Do something again and again."""
    while time.perf_counter() < until:
        await act(hostile)
    hostile.wire.close()


async def scene(
    address: str, tenants: Sequence[Tenant], act: tuple[int, Act], seconds: float
) -> tuple[list[float], Counter[int]]:
    """Return how long the requests of seven tenants took in ms while the first does something, and its answers."""
    times: list[float] = []
    answers: Counter[int] = Counter()
    until = time.perf_counter() + seconds
    count, what = act
    key = tenants[1].key
    assert key is not None
    foreign = signed(address.removeprefix("http://"), key, b"")
    secret = tenants[0].secret
    attack = [
        asyncio.create_task(repeat(Hostile(address, secret, foreign, answers), what, until))
        for _ in range(count)
    ]
    await asyncio.gather(*(tenant(address, neighbour, until, times) for neighbour in tenants[1:]))
    for task in attack:
        task.cancel()
    await asyncio.gather(*attack, return_exceptions=True)
    return times, answers


def resident_megabytes(pid: int) -> float:
    """Return the most memory that a process has had so far."""
    [line] = [
        line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")
    ]
    return int(line.split()[1]) / 1024


def measure(dsn: str, seconds: float) -> dict[str, tuple[float, float, float]]:
    """Return the median and the p99 of the others' requests in ms, and the memory of the service, for each attack."""
    from spanmq import Client

    with Client(dsn) as client:
        names = ["hostile", *(f"t{n}" for n in range(1, TENANTS))]
        client.queues.create("checked")
        for name in names:
            client.queues.create(name)
        verbs = ["send", "receive", "look", "manage"]
        tenants = [
            Tenant(
                name,
                client.admin.tokens.create(
                    name, queues=[name, "checked"] if name == "hostile" else [name], verbs=verbs
                ),
                client.admin.keys.create(queues=[name], verbs=verbs) if name == "t1" else None,
            )
            for name in names
        ]
        client.queues.set_schema("checked", CHECKED, checked=True)
        measured = {}
        for name, act in ATTACKS.items():
            for queue in names:
                client.queues.purge(queue)
            client.send_batch("hostile", ["x" * 15_000_000] * 10)
            # A service of its own for each, so that none is measured by what another has left.
            with service(dsn, tokens=True) as (address, pid):
                asyncio.run(scene(address, tenants, ATTACKS["nothing"], 1.0))
                times, answers = asyncio.run(scene(address, tenants, act, seconds))
                cuts = quantiles(times, n=100)
                measured[name] = cuts[49], cuts[98], resident_megabytes(pid)
                print(f"{name}: {measured[name]}, it got {dict(answers)}", file=sys.stderr, flush=True)
    return measured


def report(measured: dict[str, tuple[float, float, float]]) -> dict[str, bool]:
    """Print the table; return whether each target was met."""
    print(
        "\n| the eighth tenant sends | median of the others, ms | p99, ms | service, MB |\n|---|---|---|---|"
    )
    for name, (middle, p99, megabytes) in measured.items():
        print(f"| {name} | {middle:.1f} | {p99:.1f} | {megabytes:.0f} |")
    alone = measured["nothing"][1]
    worst = max(p99 for _, p99, _ in measured.values())
    most = max(megabytes for _, _, megabytes in measured.values())
    return {
        f"p99 beside a hostile neighbour at most {P99_TIMES_MAX:g} times that alone": worst
        <= P99_TIMES_MAX * alone,
        f"the service below {MEGABYTES_MAX:g} MB": most < MEGABYTES_MAX,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.service.neighbours", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--dsn")
    options = parser.parse_args(arguments)
    with serving(options.dsn) as server, fresh(server) as dsn:
        from spanmq import Client

        with Client(dsn) as client:
            client.install()
        checks = report(measure(dsn, options.seconds))
    for what, is_met in checks.items():
        print(f"{'met' if is_met else 'MISSED'}: {what}")
    return int(not all(checks.values()))


if __name__ == "__main__":
    raise SystemExit(main())
