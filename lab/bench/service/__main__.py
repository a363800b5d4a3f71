"""Run it: `python -m lab.bench.service [--quick] [--rounds N] [--dsn DSN]`. docs/guides/service.md tells the rest."""

from __future__ import annotations

import argparse
import json
import resource
import sys
from collections.abc import Mapping, Sequence
from statistics import median, quantiles
from typing import Any

from lab.bench import processor
from lab.bench.server import add_options, fresh, output_of, serving
from lab.bench.service import neighbours, polls, sqs
from lab.bench.service.contestant import QUEUE
from lab.bench.service.process import service

MESSAGES = 20_000
# The targets of the service.
SEND_SHARE_MIN = 0.6
RECEIVE_SHARE_MIN = 0.7
P99_TIMES_MAX = 5.0
P99_OF_16_MS_MAX = 25.0
CYCLES = 1_000
CYCLE_MS_MAX = 1.2
CONNECTIONS_MAX = 10
WAKE_MS_MAX = 20.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure in rounds, print medians and ratios; 1 if a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.service", description=__doc__)
    add_options(parser)
    options = parser.parse_args(arguments)
    rounds, count = (1, MESSAGES // 4) if options.quick else (options.rounds, MESSAGES)
    runs_by_kind: dict[str, list[dict[str, Any]]] = {"direct": [], "http": []}
    cycle_ms: dict[str, list[float]] = {"direct": [], "http": []}
    # Each waiting client is an open file here, and one of the service's.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with serving(options.dsn) as server, fresh(server) as dsn:
        from spanmq import Client

        with Client(dsn) as client:
            client.install()
            client.queues.create(QUEUE)
            with service(dsn) as (address, pid):
                pids = {"service": pid, "PostgreSQL": processor.server_of(dsn)}
                for number in range(rounds):
                    # In turn first, for who comes later finds a warmer server.
                    for kind in sorted(runs_by_kind, reverse=bool(number % 2)):
                        client.queues.purge(QUEUE)
                        last = run(kind, dsn if kind == "direct" else address, count, pids)
                        runs_by_kind[kind].append(last)
                        rates = (
                            f"{last['send_rate']:,.0f} sent, {last['receive_rate']:,.0f} received and acked"
                        )
                        client.queues.purge(QUEUE)
                        cycles = run(kind, dsn if kind == "direct" else address, CYCLES, pids, "cycles")
                        used = cycles["used"]["client" if kind == "direct" else "service"]
                        cycle_ms[kind].append(used * 1000 / CYCLES)
                        print(
                            f"round {number + 1}: {kind} {rates} a second, {cycle_ms[kind][-1]:.2f} ms a cycle",
                            file=sys.stderr,
                            flush=True,
                        )
                sqs.report(sqs.measure(address, rounds, quick=options.quick))
                times, connections = polls.measure(dsn, address)
            checks = neighbours.report(
                neighbours.measure(dsn, neighbours.SECONDS / (4 if options.quick else 1))
            )
    return report(runs_by_kind, cycle_ms, times, connections, count, checks)


def run(kind: str, address: str, count: int, pids: Mapping[str, int | None], *more: str) -> dict[str, Any]:
    """Run one contestant in a process of its own; `used` has the processor seconds of each that took part."""
    before = _used(pids)
    result: dict[str, Any] = json.loads(
        output_of(kind, "lab.bench.service.contestant", kind, address, str(count), *more)
    )
    used = {name: seconds - before[name] for name, seconds in _used(pids).items()}
    return {**result, "used": {"client": result["processor_seconds"], **used}}


def _used(pids: Mapping[str, int | None]) -> dict[str, float]:
    return {name: 0.0 if pid is None else processor.seconds_of(pid) for name, pid in pids.items()}


def report(
    runs_by_kind: dict[str, list[dict[str, Any]]],
    cycle_ms: dict[str, list[float]],
    times: list[float],
    connections: int,
    count: int,
    checks: dict[str, bool],
) -> int:
    """Print the tables; give the number of targets that were missed."""
    middle = {
        kind: {name: median(result[name] for result in runs) for name in ("send_rate", "receive_rate")}
        for kind, runs in runs_by_kind.items()
    }
    p99 = {
        kind: median(quantiles(result["single_ms"], n=100)[-1] for result in runs)
        for kind, runs in runs_by_kind.items()
    }
    print(
        "| 32 clients, batches of 10 | sent/s | received and acked/s | p99 of one send, ms |\n"
        "|---|---|---|---|"
    )
    for kind, values in middle.items():
        print(f"| {kind} | {values['send_rate']:,.0f} | {values['receive_rate']:,.0f} | {p99[kind]:.2f} |")
    shares = {name: middle["http"][name] / middle["direct"][name] for name in middle["http"]}
    print(
        f"| http/direct | {shares['send_rate']:.2f} | {shares['receive_rate']:.2f} "
        f"| {p99['http'] / p99['direct']:.2f} |"
    )
    crowded = median(quantiles(result["crowded_ms"], n=100)[-1] for result in runs_by_kind["http"])
    print(f"\nsingle sends by 16 clients over HTTP: p99 {crowded:.1f} ms")
    cycle = {kind: median(times_ms) for kind, times_ms in cycle_ms.items()}
    print(
        f"send, receive and ack of one message: {cycle['http']:.2f} ms of the service's processor time, "
        f"{cycle['direct']:.2f} ms of the Python client's"
    )
    print("\n| processor, µs a message | client | service | PostgreSQL | all |\n|---|---|---|---|---|")
    for kind, runs in runs_by_kind.items():
        used = {
            name: median(result["used"][name] for result in runs) * 1e6 / count
            for name in ("client", "service", "PostgreSQL")
        }
        shown = " | ".join(f"{microseconds:.0f}" for microseconds in (*used.values(), sum(used.values())))
        print(f"| {kind} | {shown} |")
    print(
        f"\n{polls.WAITING:,} waiting: {connections} connections of the database; "
        f"a message wakes one in {median(times):.1f} ms (p99 {quantiles(times, n=100)[-1]:.1f} ms)\n"
    )
    checks |= {
        f"sends at least {SEND_SHARE_MIN:g} of the direct client's": shares["send_rate"] >= SEND_SHARE_MIN,
        f"receives and acks at least {RECEIVE_SHARE_MIN:g}": shares["receive_rate"] >= RECEIVE_SHARE_MIN,
        f"a cycle at most {CYCLE_MS_MAX:g} ms of processor time": cycle["http"] <= CYCLE_MS_MAX,
        f"p99 of one send beside 15 others below {P99_OF_16_MS_MAX:g} ms": crowded < P99_OF_16_MS_MAX,
        f"p99 of one send at most {P99_TIMES_MAX:g} times": p99["http"] / p99["direct"] <= P99_TIMES_MAX,
        f"at most {CONNECTIONS_MAX} connections": connections <= CONNECTIONS_MAX,
        f"woken within {WAKE_MS_MAX:g} ms": median(times) <= WAKE_MS_MAX,
    }
    for what, is_met in checks.items():
        print(f"{'met' if is_met else 'MISSED'}: {what}")
    return sum(not is_met for is_met in checks.values())


if __name__ == "__main__":
    raise SystemExit(main())
