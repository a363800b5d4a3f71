"""Which random programs run: the same few in `make test`; in `make test-deep` many, by a seed of the code.

conftest.py makes the seed and reports it: a change of the code changes it, so what passed passes again. To look
further: SPANMQ_TEST_SEED=… with any other number.
"""

import os

IS_DEEP = bool(os.environ.get("SPANMQ_TEST_DEEP"))
SEED = int(os.environ["SPANMQ_TEST_SEED"]) if os.environ.get("SPANMQ_TEST_SEED") else None


def seeds(few: int, many: int) -> list[int]:
    """Return the seeds of some programs."""
    return list(range(few)) if SEED is None else [SEED + i for i in range(many)]
