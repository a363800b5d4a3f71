"""Check a history: `python -m lab.bench.history FOLDER [--ordered] [--max-attempts N]`; `--measure CALLS` makes one.

Ends with 1 if it shows what no queue may do.
"""

import argparse
import gc
import json
import random
import sys
import tempfile
import time
from collections import deque
from pathlib import Path

from lab.bench.history import problems, read

CLIENTS = 16
GROUPS = 100


def main() -> int:
    """Check a history, print what is wrong with it and how long that took, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.history", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="the files of the clients")
    parser.add_argument("--ordered", action="store_true", help="the queue's policy is")
    parser.add_argument("--max-attempts", type=int, default=0, help="the policy's")
    parser.add_argument("--measure", type=int, metavar="CALLS", help="check a made history of so many calls")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        if options.measure:
            options.folder, options.ordered = Path(place), True
            _make(options.folder, options.measure)
        elif options.folder is None:
            parser.error("which folder?")
        # Millions of objects, and no cycle among them.
        gc.disable()
        began_at = time.process_time()
        calls = read(options.folder)
        read_at = time.process_time()
        violations = problems(calls, ordered=options.ordered, max_attempts=options.max_attempts)
        ended_at = time.process_time()
    print("\n".join(violations))
    print(
        f"{len(calls)} calls: read in {read_at - began_at:.1f} s, checked in {ended_at - read_at:.1f} s"
        f" of processor time; {len(violations)} problems"
    )
    return bool(violations)


def _make(folder: Path, calls: int) -> None:
    """Write a history of that many calls, as of a queue in groups, with nacks and counts among them."""
    chance = random.Random(1)
    files = [(folder / f"{number}.jsonl").open("w") for number in range(CLIENTS)]
    waiting: dict[int, deque[int]] = {group: deque() for group in range(GROUPS)}
    leased: deque[tuple[int, int, int]] = deque()
    ids = leases = turn = 0

    def write(verb: str, got: object, **arguments: object) -> None:
        nonlocal turn
        turn += 1
        at, file = turn * 10_000, files[turn % CLIENTS]
        print(json.dumps({"number": turn, "began": at, "verb": verb, **arguments}), file=file)
        # The calls of all clients overlap.
        print(json.dumps({"number": turn, "ended": at + CLIENTS * 10_000, "got": got}), file=file)

    def act() -> None:
        nonlocal ids, leases
        kind, group = chance.random(), chance.randrange(GROUPS)
        if kind < 0.01:
            write("count", sum(map(len, waiting.values())))
        elif kind < 0.34:
            ids += 1
            waiting[group].append(ids)
            write("send", [ids], groups=[str(group)])
        elif leased and (len(leased) > CLIENTS or kind < 0.4):
            group, message_id, lease = leased.popleft()
            if chance.random() < 0.05:
                write("free", [message_id], ids=[message_id], lease=lease)
            else:
                waiting[group].popleft()
                write("settle", [message_id], ids=[message_id], lease=lease)
        elif waiting[group] and not any(held == group for held, _, _ in leased):
            leases += 1
            leased.append((group, waiting[group][0], leases))
            write("receive", [[waiting[group][0], leases]], seconds=30)

    while turn < calls - 1:
        act()
    write("look", {"left": [message_id for group in waiting.values() for message_id in group], "dead": []})
    for file in files:
        file.close()


if __name__ == "__main__":
    sys.exit(main())
