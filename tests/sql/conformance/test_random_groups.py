"""Random programs of grouped reads do here, step by step, what they do on PGMQ.

Only programs in which PGMQ keeps its groups in order: whatever is read stays hidden until it is settled (W9).
"""

import random

import pytest
from tests.sql.conformance.conftest import Pair
from tests.sql.conformance.scenario import run_program
from tests.sql.seeds import seeds

STEPS = 40
KINDS = ("send", "send", "read_grouped", "read_grouped_rr", "read_grouped_head", "settle", "settle", "settle")


def program(seed: int) -> list[str]:
    """Write a random program for a queue `orders` that exists."""
    draw = random.Random(seed)
    n_groups = draw.choice([2, 5, 30])
    steps = []
    for _ in range(STEPS):
        kind = draw.choice(KINDS)
        if kind == "send":
            groups = [draw.randint(0, n_groups) for _ in range(draw.choice([1, 4, 30]))]
            headers = ", ".join(f'\'{{"x-pgmq-group": "{each}"}}\'' if each else "null" for each in groups)
            steps.append(
                f"select * from pgmq.send_batch('orders', array_fill('1'::jsonb, array[{len(groups)}]),"
                f" array[{headers}]::jsonb[])"
            )
        elif kind == "settle":
            # Some of what is in work, and of what is not: by its place among all, as ids are not known here.
            part = draw.choice([1, 2, 3])
            hidden = draw.choice(["vt > clock_timestamp()", "true"])
            steps.append(
                f"select * from pgmq.{draw.choice(['delete', 'archive'])}('orders', array("
                f"select msg_id from pgmq.q_orders where {hidden} and msg_id % 3 < {part}))"
            )
        else:
            steps.append(f"select * from pgmq.{kind}('orders', 1000, {draw.choice([1, 2, 7, 50])})")
    return steps


@pytest.mark.parametrize("kind", ["create", "create_unlogged"])
@pytest.mark.deeper
@pytest.mark.parametrize("seed", seeds(few=4, many=30))
def test_random_program_of_groups_does_what_it_does_on_pgmq(seed: int, kind: str, pair: Pair) -> None:
    steps = [f"select pgmq.{kind}('orders')", *program(seed), "select * from pgmq.q_orders"]
    run_program(pair.upstream, pair.here, steps, ordered="read_grouped_rr")
