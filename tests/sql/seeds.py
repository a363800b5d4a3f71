"""Which random programs run: the same few in `make test`; in `make test-deep` many, by a new seed each time.

tests/conftest.py draws the seed and reports it. To repeat a run: SPANMQ_TEST_SEED=… with the same command.
"""

import os

IS_DEEP = bool(os.environ.get("SPANMQ_TEST_DEEP"))
SEED = int(os.environ["SPANMQ_TEST_SEED"]) if os.environ.get("SPANMQ_TEST_SEED") else None


def seeds(few: int, many: int) -> list[int]:
    """Return the seeds of some programs."""
    return list(range(few)) if SEED is None else [SEED + i for i in range(many)]
