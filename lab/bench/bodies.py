"""Message bodies: varied JSON orders of 250 bytes each, the same for every contestant and every run."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import psycopg

BODY_BYTES = 250
DISTINCT = 4_096  # as many different bodies; a power of two, for the filling procedures
_SEED = 20_130_101
_START = datetime(2026, 1, 1, tzinfo=UTC)
# fmt: off
_WORDS = (
    "please", "leave", "with", "the", "neighbour", "at", "door", "if", "nobody", "home", "ring", "twice",
    "call", "before", "delivery", "fragile", "handle", "care", "gift", "wrap", "no", "invoice", "inside",
    "parcel", "second", "floor", "back", "yard", "after", "six", "weekdays", "only",
)
# fmt: on
_BATCH_BYTES = 2_000_000  # of bodies, about, that are kept as batches of one size


def generate(count: int = DISTINCT) -> Iterator[str]:
    """Yield JSON texts of BODY_BYTES bytes: orders, padded by a note of plain words."""
    source = random.Random(_SEED)
    for number in range(count):
        lines = range(source.randint(1, 3))
        body = {
            "order_id": source.randrange(1, 10_000_000),
            "customer": f"c-{source.randrange(16**6):06x}",
            "status": source.choice(("new", "paid", "packed", "shipped", "returned")),
            "placed_at": (_START + timedelta(seconds=number * 37)).isoformat(),
            "amount": round(source.uniform(1, 999), 2),
            "lines": [[f"sku-{source.randrange(16**4):04x}", source.randrange(1, 9)] for _ in lines],
            "note": "",
        }
        room = BODY_BYTES - len(json.dumps(body))
        note = " ".join(source.choices(_WORDS, k=room // 2))
        yield json.dumps(body | {"note": note[:room].ljust(room, ".")})


def batches_of(size: int) -> int:
    """Return how many different batches of this size there are."""
    return max(8, min(512, _BATCH_BYTES // (size * BODY_BYTES)))


def store(connection: psycopg.Connection, sizes: tuple[int, ...]) -> None:
    """Put the bodies, and batches of them, where scripts and filling procedures find them."""
    bodies = list(generate())
    with connection.cursor() as cursor:
        with cursor.copy("copy bench.body (number, body) from stdin") as copy:
            for number, body in enumerate(bodies):
                copy.write_row((number, body))
        with cursor.copy("copy bench.batch (size, number, bodies) from stdin") as copy:
            for size in sizes:
                for number in range(batches_of(size)):
                    batch = [bodies[(number * size + offset) % DISTINCT] for offset in range(size)]
                    copy.write_row((size, number + 1, batch[0] if size == 1 else array_literal(batch)))
        cursor.execute("update bench.batch set parsed = bodies::jsonb[] where size > 1")


def array_literal(texts: list[str]) -> str:
    """Write texts as a PostgreSQL array literal, as a client does that sends text parameters."""
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return "{" + ",".join(f'"{text}"' for text in quoted) + "}"
