"""Search all scenes: `python -m tests.sql.interleave [--preemptions 2] [--runs 400] [--seconds 3600] [--only TEXT]`.

Prints a line for each scene and each violation, and ends with 1 if there was one.
"""

import argparse
import random
import sys
import time

import psycopg
from tests.sql.interleave import scenes
from tests.sql.interleave.search import Search
from tests.sql.interleave.stepped import install_steps

from spanmq import embedded, schema


def main() -> int:
    """Search until every scene, or the time, has come to its end; return 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.sql.interleave", description=__doc__)
    parser.add_argument("--preemptions", type=int, default=2, help="in an order, at most")
    parser.add_argument("--runs", type=int, default=400, help="of a scene, at most")
    parser.add_argument("--seconds", type=float, default=3600, help="of the whole search, at most")
    parser.add_argument("--seed", type=int, default=1, help="draws the orders of a scene that has more")
    parser.add_argument("--only", default="", help="scenes whose name has this text")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    settings = {"fsync": "off", "autovacuum": "off"}
    began = time.monotonic()
    with embedded.temporary(version=18, settings=settings) as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            schema.install(connection)
            install_steps(connection)
        with Search(server.dsn) as search:
            for scene in [*scenes.pairs(), *scenes.grouped(), *scenes.three(), *scenes.dropped()]:
                if options.only not in scene.name:
                    continue
                if time.monotonic() - began > options.seconds:
                    print("stopped: the time is over")
                    break
                seen = len(search.violations)
                runs = search.scene(scene, options.preemptions, options.runs, chance)
                print(
                    f"{time.monotonic() - began:7.0f} s {len(search.distinct):7} orders  {scene.name}: {runs}",
                    flush=True,
                )
                for violation in search.violations[seen : seen + 3]:
                    print(violation, flush=True)
            print(
                f"{search.runs} orders, {len(search.distinct)} of them distinct,"
                f" {60 * len(search.distinct) / (time.monotonic() - began):.0f} a minute,"
                f" {search.steps / max(search.runs, 1):.1f} steps each,"
                f" {search.deadlocks} with a deadlock, {len(search.violations)} violations"
            )
            return bool(search.violations)


if __name__ == "__main__":
    sys.exit(main())
