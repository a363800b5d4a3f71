"""Every case that a user of PGMQ meets, in processor time of the backend: one beside many, scattered beside whole."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from functools import partial

from lab.bench import bodies
from lab.bench.contestants import CALLS, NATIVE, QUEUE, UPSTREAM
from lab.bench.player import Player
from lab.bench.results import LATENCY, Measurement
from lab.bench.stage import Experiment, Stage

PREFIX = "every-case"
DEEP = 100_000
GROUPS = 10_000
VIEW_ROWS = 4_000
ALL, BY_NAME, OURS = (UPSTREAM, CALLS, NATIVE), (UPSTREAM, CALLS), (NATIVE,)
_BODIES = list(bodies.generate(1_000))

Act = Callable[[Player], None]


def experiments() -> tuple[Experiment, ...]:
    """Return an experiment for each case."""
    acts: dict[str, tuple[tuple[str, ...], Act, Act]] = {
        **{f"cycle/{size}": (ALL, used, partial(cycle, size)) for size in (1, 10, 100, 1000)},
        "cycle/new-queue": (ALL, nothing, partial(cycle, 1)),
        "cycle/single-sends": (ALL, used, single_sends),
        "empty-read": (ALL, used, empty_reads),
        "single/delete": (ALL, used, singles),
        "single/archive": (
            BY_NAME,
            used,
            partial(one_by_one, f"select pgmq.archive('{QUEUE}', %s::bigint)"),
        ),
        "single/set-vt": (
            BY_NAME,
            used,
            partial(one_by_one, f"select * from pgmq.set_vt('{QUEUE}', %s, 60)"),
        ),
        "single/extend": (ALL, used, extend),
        "scattered/leased": (ALL, used, partial(scattered, leased=True)),
        "scattered/unread": (BY_NAME, used, partial(scattered, leased=False)),
        "scattered/deep": (BY_NAME, fill, random_ids),
        "drain/dense": (ALL, fill, drain),
        "drain/half-gone": (ALL, partial(fill, share=0.5), drain),
        "groups/ordered": (OURS, groups, ordered),
        "groups/blocked": (OURS, blocked_group, claim_one),
        "view/count": (BY_NAME, fill, partial(look, f"select count(*) from pgmq.q_{QUEUE}")),
        "view/max": (BY_NAME, fill, partial(look, f"select max(msg_id) from pgmq.q_{QUEUE}")),
        "view/id": (BY_NAME, fill, partial(look, f"select * from pgmq.q_{QUEUE} where msg_id = {DEEP // 2}")),
        "view/page": (BY_NAME, fill, partial(look, f"select * from pgmq.q_{QUEUE} order by msg_id limit 20")),
        "view/update": (BY_NAME, partial(fill, quantity=VIEW_ROWS), partial(look, _UPDATE)),
        "view/delete": (
            BY_NAME,
            partial(fill, quantity=VIEW_ROWS),
            partial(look, f"delete from pgmq.q_{QUEUE}"),
        ),
        "connection/first-cycle": (BY_NAME, nothing, first_cycle),
        "connection/cycle": (BY_NAME, nothing, partial(first_cycle, connecting=True)),
        "queue/create": (BY_NAME, nothing, create),
    }
    return tuple(
        Experiment((f"{PREFIX}/{name}",), partial(_play, f"{PREFIX}/{name}", *parts))
        for name, parts in acts.items()
    )


_UPDATE = f"update pgmq.q_{QUEUE} set vt = clock_timestamp() + interval '1 hour'"


def _play(case: str, names: tuple[str, ...], prepare: Act, act: Act, stage: Stage, _: Sequence[str]) -> None:
    """Run it for each contestant in turn, on a queue of its own; the first round makes the plans and is not kept."""
    # Each round of a deep queue fills it again.
    shallow = prepare in (nothing, used)
    for number, contestant, database in stage.rounds(
        1 + (stage.plan.calls if shallow else stage.plan.rounds)
    ):
        if contestant.name not in names:
            continue
        database.create_queue()
        with database.connect() as connection:
            player = Player(contestant, database, connection)
            connection.execute("set synchronous_commit = off")
            prepare(player)
            if not shallow:
                database.calm()
            act(player)
            if number > 1:
                took_ms = player.nanoseconds / 1e6
                stage.record(Measurement(case, contestant.name, number, took_ms, LATENCY, player.kept()))
        database.drop_queue()


def nothing(player: Player) -> None:
    """Leave the queue empty."""


def used(player: Player) -> None:
    """Have a queue and a session that have been in use, as most are: plans are made, caches are warm."""
    player.run(f"call bench.fill('{QUEUE}', 1100, 100)")
    player.run(f"select pgmq.purge_queue('{QUEUE}')")
    player.database.maintain()
    for _ in range(10):
        _one_cycle(1, player)
    for size in (100, 100):
        _one_cycle(size, player)
    player.nanoseconds = 0


def fill(player: Player, quantity: int = DEEP, share: float = 1.0) -> None:
    """Send messages by thousands, and delete those that are not in the share, at random."""
    player.run(f"call bench.fill('{QUEUE}', {quantity}, 1000)")
    if share < 1:
        ids = random.Random(1).sample(range(1, quantity + 1), int(quantity * (1 - share)))
        for start in range(0, len(ids), 1000):
            player.run(f"select * from pgmq.delete('{QUEUE}', %s::bigint[])", ids[start : start + 1000])


def cycle(size: int, player: Player) -> None:
    """Send, receive and settle batches of a size, a transaction each; count what they write."""
    times = max(5, 200 // size)
    for _ in range(3):  # what a pooled connection has behind it
        _one_cycle(size, player)
    player.nanoseconds = 0
    wal, dead = player.count_writes()
    for _ in range(times):
        _one_cycle(size, player)
    wal_after, dead_after = player.count_writes()
    player.wal_bytes, player.dead_rows = wal_after - wal, dead_after - dead
    player.messages = times * size


def _one_cycle(size: int, player: Player) -> None:
    player.send(_BODIES[:size], timed=True)
    ids, lease = player.take(size, timed=True)
    player.settle(ids, lease)


def empty_reads(player: Player) -> None:
    """Read 200 times where no message is: what workers that poll do most."""
    for _ in range(200):
        player.take(1, timed=True)


def single_sends(player: Player) -> None:
    """Send 100 messages singly, then receive and settle them at once."""
    for body in _BODIES[:100]:
        player.send([body], timed=True)
    ids, lease = player.take(100, timed=True)
    player.settle(ids, lease)


def _taken(player: Player) -> tuple[list[int], int]:
    player.send(_BODIES[:100], timed=False)
    return player.take(100, timed=False)


def singles(player: Player) -> None:
    """Settle the messages of a batch of 100 one by one."""
    ids, lease = _taken(player)
    for message_id in ids:
        player.settle([message_id], lease)


def one_by_one(statement: str, player: Player) -> None:
    """Call a function for each message of a batch of 100."""
    for message_id in _taken(player)[0]:
        player.timed(statement, message_id)


def extend(player: Player) -> None:
    """Extend the lease of a batch 100 times, as a heartbeat does; PGMQ's way is one set_vt of all its ids."""
    ids, lease = _taken(player)
    for _ in range(100):
        if player.native:
            player.timed(f"select * from spanmq.extend('{QUEUE}', %s, %s::bigint[], 60)", lease, ids)
        else:
            player.timed(f"select * from pgmq.set_vt('{QUEUE}', %s::bigint[], 60)", ids)


def scattered(player: Player, *, leased: bool) -> None:
    """Settle every second message of ten batches of 100 in one call each; leased ones then the rest."""
    for _ in range(10):
        player.send(_BODIES[:100], timed=False)
        if leased:
            ids, lease = player.take(100, timed=False)
            player.settle(ids[::2], lease)
            player.settle(ids[1::2], lease)
        else:
            ids = [row[0] for row in player.run(f"select msg_id from pgmq.q_{QUEUE}")]
            player.settle(ids[::2], 0)
            player.run(f"select pgmq.purge_queue('{QUEUE}')")


def random_ids(player: Player) -> None:
    """Delete 1,000 random messages of a deep queue in one call."""
    player.settle(random.Random(2).sample(range(1, DEEP + 1), 1000), 0)


def drain(player: Player) -> None:
    """Receive and settle 10,000 messages by 1,000."""
    for _ in range(10):
        ids, lease = player.take(1000, timed=True)
        player.settle(ids, lease)


def groups(player: Player) -> None:
    """Have an ordered queue with messages of many groups."""
    player.run(f"select spanmq.set_policy('{QUEUE}', '{{\"ordered\": true}}')")
    player.run(f"call bench.fill('{QUEUE}', {DEEP // 2}, 1000, groups => {GROUPS})")


def ordered(player: Player) -> None:
    """Receive and settle 1,000 messages of an ordered queue by 100."""
    for _ in range(10):
        ids, lease = player.take(100, timed=True)
        player.settle(ids, lease)


def blocked_group(player: Player) -> None:
    """Have one group of 100,000 messages, of which the first is in flight, in front of others."""
    player.run(f"select spanmq.set_policy('{QUEUE}', '{{\"ordered\": true}}')")
    player.run(f"call bench.fill('{QUEUE}', {DEEP}, 1000, groups => 1)")
    player.take(1, timed=False)
    for number in range(100):
        headers = json.dumps({"x-pgmq-group": f"other-{number}"})
        player.run(f"select * from pgmq.send('{QUEUE}', '1', %s::jsonb)", headers)


def claim_one(player: Player) -> None:
    """Receive one message, ten times."""
    for _ in range(10):
        assert player.take(1, timed=True)[0]


def look(statement: str, player: Player) -> None:
    """Execute a statement on the view."""
    player.run("select 1")
    player.timed(statement)


def first_cycle(player: Player, *, connecting: bool = False) -> None:
    """Send, receive and settle one message on a new connection, whose start counts or does not."""
    with player.database.connect() as connection:
        fresh = Player(player.contestant, player.database, connection)
        _one_cycle(1, fresh)
        player.nanoseconds = fresh.lifetime() if connecting else fresh.nanoseconds


def create(player: Player) -> None:
    """Create ten queues."""
    for number in range(10):
        player.timed(f"select pgmq.create('every_{number}')")
    for number in range(10):
        player.run(f"select pgmq.drop_queue('every_{number}')")
