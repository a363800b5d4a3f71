"""Workers of tasks killed with SIGKILL under load: what is in a transaction, each step, end of a batch and period come
once, and each result of a process is stored.
"""

import os
import random
import signal
import subprocess
from collections import Counter
from contextlib import AbstractContextManager, ExitStack
from datetime import datetime, timedelta
from pathlib import Path

import psycopg
from tests.cli.program import PROGRAM, child, environment, wait_until
from tests.patience import WAIT_SECONDS

from spanmq import Client

# So many work at once.
WORKERS = 5
ROOT = Path(__file__).parents[3]
KILLS = int(os.environ.get("SPANMQ_TEST_KILLS", "5"))
NUMBER = 10 * KILLS


def worker(dsn: str, **variables: object) -> AbstractContextManager[subprocess.Popen[bytes]]:
    command = [*PROGRAM, "worker", "tests.process.tasks.jobs:tasks", "--lease", "0.5", "--concurrency", "4"]
    more = {name: str(value) for name, value in variables.items()}
    return child(command, cwd=ROOT, env=environment(dsn, more), stderr=subprocess.DEVNULL)


def test_everything_happens_once_whatever_is_killed(database: str) -> None:
    chosen = random.Random(KILLS)
    with Client(database) as client, psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table effect (kind text, key text)")
        for queue in ("orders", "stored", "computed"):
            client.queues.create(queue)
            client.queues.set_policy(queue, max_attempts=0, backoff_base=0.01)
        client.send_batch("orders", [{"task": "begin", "args": {"number": n}} for n in range(NUMBER)])
        for _ in range(KILLS // WORKERS):
            with ExitStack() as stack:
                steps = [chosen.randint(1, 30) for _ in range(WORKERS)]
                mortal = [stack.enter_context(worker(database, KILL_AT=n)) for n in steps]
                assert [each.wait(WAIT_SECONDS) for each in mortal] == [-signal.SIGKILL] * WORKERS

        def effects(kind: str) -> Counter[str]:
            rows = connection.execute("select key from effect where kind = %s", [kind])
            return Counter(key for (key,) in rows)

        with worker(database) as process:
            wait_until(lambda: effects("second").total() >= NUMBER, process)
            wait_until(lambda: effects("end").total() >= NUMBER, process)
            wait_until(lambda: effects("tick").total() > 2, process)
            client.schedules.delete("orders.tick")
            wait_until(lambda: not any(each.length for each in client.queues.metrics_all()), process)
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_SECONDS) == 0
        expected = Counter(str(number) for number in range(NUMBER))
        assert (effects("first"), effects("second")) == (expected, expected)
        assert effects("part") == Counter(f"{number}.{part}" for number in range(NUMBER) for part in range(3))
        assert effects("end") == Counter(f"{number}: 4 done, 1 dead" for number in range(NUMBER))
        # Numbers that a kill left unused have no result.
        results = client.results.get("computed", range(1, 10_000)).values()
        assert Counter(map(str, results)) == Counter(str([number, number**2]) for number in range(NUMBER))
        assert all(each.message_id for each in client.batches.list(limit=NUMBER))
        ticks = effects("tick")
        assert set(ticks.values()) == {1}
        times = sorted(datetime.fromisoformat(key) for key in ticks)
        assert times == [times[0] + timedelta(seconds=n) for n in range(len(times))]
