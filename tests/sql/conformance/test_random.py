"""Random programs of PGMQ's calls do here, step by step, what they do on PGMQ.

Times are either over at once or far away, so that every step has one right answer.
"""

import random
from typing import Any

import pytest
from tests.sql.conformance.conftest import Pair
from tests.sql.conformance.scenario import run_program
from tests.sql.seeds import seeds

STEPS = 60
LATER = (0, 0, 200, 400)
QUANTITIES = (1, 2, 3, 5, 50)
KINDS = (
    *("send", "send_batch", "send_batch", "read", "read", "read_some", "pop", "set_vt", "set_vt_at"),
    *("update", "delete_one", "delete", "archive_one", "archive", "look", "purge"),
)


def program(seed: int) -> list[str]:
    """Write a random program for a queue `orders` that exists."""
    draw = random.Random(seed)
    sent = 0
    steps = []
    for _ in range(STEPS):
        kind = draw.choice(KINDS)
        if kind == "purge" and draw.random() < 0.8:
            kind = "delete"
        ids = some_ids(draw, sent)
        later = draw.choice(LATER)
        at = f"now() + '{later} s'::interval"
        one = one_id(draw, sent)
        quantity = draw.choice(QUANTITIES)
        text = {
            "send": f"select * from pgmq.send('orders', {body(draw)}, {headers(draw)}, {later})",
            "read": f"select * from pgmq.read('orders', {later}, {quantity})",
            "read_some": f"select * from pgmq.read('orders', {later}, {quantity}, '{{\"n\": 1}}')",
            "pop": f"select * from pgmq.pop('orders', {quantity})",
            "set_vt": f"select * from pgmq.set_vt('orders', {ids}, {later})",
            "set_vt_at": f"select * from pgmq.set_vt('orders', {one}, {at})",
            "delete_one": f"select * from pgmq.delete('orders', {one})",
            "delete": f"select * from pgmq.delete('orders', {ids})",
            "archive_one": f"select * from pgmq.archive('orders', {one})",
            "archive": f"select * from pgmq.archive('orders', {ids})",
            "update": f"update pgmq.q_orders set vt = {at} where msg_id = any ({ids}) returning msg_id",
            "look": "select queue_length, queue_visible_length, total_messages from pgmq.metrics('orders')",
            "purge": "select * from pgmq.purge_queue('orders')",
        }.get(kind)
        if text is None:
            n = draw.choice([1, 2, 7, 40])
            bodies = ", ".join(body(draw) for _ in range(n))
            heads = ", ".join(headers(draw) for _ in range(n)) if draw.random() < 0.5 else None
            text = (
                f"select * from pgmq.send_batch('orders', array[{bodies}]::jsonb[], "
                f"{f'array[{heads}]::jsonb[]' if heads else 'null'}, {later})"
            )
            sent += n
        sent += kind == "send"
        steps.append(text)
    return steps


def body(draw: random.Random) -> str:
    return draw.choice(["null", "'{}'", "'{\"n\": 1}'", "'{\"n\": 2}'"])


def headers(draw: random.Random) -> str:
    return draw.choice(["null", "null", '\'{"x-pgmq-group": "a"}\'', '\'{"x-pgmq-group": "b"}\''])


def one_id(draw: random.Random, sent: int) -> int:
    return draw.randint(1, max(1, sent))


def some_ids(draw: random.Random, sent: int) -> str:
    """Write an array of ids: a run, or scattered ones with repetitions, unknown ones and nulls."""
    first = one_id(draw, sent)
    some: list[Any]
    if draw.random() < 0.5:
        some = list(range(first, first + draw.randint(1, 12)))
    else:
        some = [one_id(draw, sent) for _ in range(draw.randint(1, 8))] + draw.choice([[], [None], [10**9]])
    return f"array[{', '.join('null' if each is None else str(each) for each in some)}]::bigint[]"


@pytest.mark.parametrize("kind", ["create", "create_unlogged"])
@pytest.mark.deeper
@pytest.mark.parametrize("seed", seeds(few=4, many=40))
def test_random_program_does_what_it_does_on_pgmq(seed: int, kind: str, pair: Pair) -> None:
    steps = [f"select pgmq.{kind}('orders')", *program(seed)]
    steps += ["select * from pgmq.q_orders", "select * from pgmq.a_orders"]
    run_program(pair.upstream, pair.here, steps)
