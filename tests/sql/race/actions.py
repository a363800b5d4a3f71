"""What a session can do to six messages, as SQL that returns the ids it did it to."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

MESSAGES = 6


class Effect(Enum):
    """What becomes of the messages that an action returns."""

    SETTLED = auto()
    TAKEN = auto()
    HIDDEN = auto()
    HELD = auto()  # they stay in the lease
    NOTHING = auto()


class Asks(Enum):
    """For which messages an action asks, which says what it must find when another was faster."""

    IDS = auto()  # these ids, wherever they are
    IDS_OF_LEASE = auto()
    IDS_OF_NO_LEASE = auto()
    ANY = auto()  # what is visible and nobody holds: never waits
    ALL = auto()  # returns only how many there were


@dataclass(frozen=True, slots=True)
class Action:
    name: str
    effect: Effect
    asks: Asks
    text: str
    places: tuple[int, int] = (0, MESSAGES)
    in_order: bool = False  # who held the messages behind what it takes holds them no more

    def asked(self, ids: Sequence[int]) -> list[int]:
        """Return the ids it asks for."""
        return list(ids[slice(*self.places)])

    def call(self, queue: str, ids: Sequence[int], lease: int | None) -> tuple[str, dict[str, Any]]:
        """Return the statement and its arguments."""
        return self.text.format(view=f"pgmq.q_{queue}"), {
            "queue": queue,
            "ids": self.asked(ids),
            "lease": lease,
        }


DELETE = "select pgmq.delete(%(queue)s, %(ids)s::bigint[])"
ARCHIVE = "select pgmq.archive(%(queue)s, %(ids)s::bigint[])"
ACK = "select msg_id from spanmq.ack(%(queue)s, %(lease)s, %(ids)s::bigint[]) where outcome = 'acked'"
NACK = (
    "select msg_id from spanmq.nack(%(queue)s, %(lease)s, %(ids)s::bigint[], 'x', null, 3600)"
    " where outcome = 'retrying'"
)
REJECT = (
    "select msg_id from spanmq.reject(%(queue)s, %(lease)s, %(ids)s::bigint[], 'x') where outcome = 'dead'"
)
RELEASE = (
    "select msg_id from spanmq.release(%(queue)s, %(lease)s, %(ids)s::bigint[]) where outcome = 'released'"
)
EXTEND = (
    "select msg_id from spanmq.extend(%(queue)s, %(lease)s, %(ids)s::bigint[], 60) where outcome = 'extended'"
)
HIDE = "select msg_id from pgmq.set_vt(%(queue)s, %(ids)s::bigint[], 3600)"
ACTIONS = {
    each.name: each
    for each in (
        Action("delete one", Effect.SETTLED, Asks.IDS, DELETE, (1, 2)),
        Action("delete part", Effect.SETTLED, Asks.IDS, DELETE, (2, 5)),
        Action("delete whole", Effect.SETTLED, Asks.IDS, DELETE),
        Action("archive part", Effect.SETTLED, Asks.IDS, ARCHIVE, (0, 3)),
        Action("archive whole", Effect.SETTLED, Asks.IDS, ARCHIVE),
        Action("ack part", Effect.SETTLED, Asks.IDS_OF_LEASE, ACK, (1, 4)),
        Action("ack whole", Effect.SETTLED, Asks.IDS_OF_LEASE, ACK),
        Action("nack part", Effect.HIDDEN, Asks.IDS_OF_LEASE, NACK, (2, 5)),
        Action("nack whole", Effect.HIDDEN, Asks.IDS_OF_LEASE, NACK),
        Action("reject part", Effect.SETTLED, Asks.IDS_OF_LEASE, REJECT, (0, 2)),
        Action("reject whole", Effect.SETTLED, Asks.IDS_OF_LEASE, REJECT),
        Action("give back part", Effect.NOTHING, Asks.IDS_OF_LEASE, RELEASE, (3, 6)),
        Action("extend first", Effect.HELD, Asks.IDS_OF_LEASE, EXTEND, (0, 2)),
        Action("extend part", Effect.HELD, Asks.IDS_OF_LEASE, EXTEND, (2, 5)),
        Action("extend whole", Effect.HELD, Asks.IDS_OF_LEASE, EXTEND),
        Action("hide part", Effect.HIDDEN, Asks.IDS, HIDE, (1, 3)),
        Action("hide whole", Effect.HIDDEN, Asks.IDS, HIDE),
        Action(
            "release part",
            Effect.NOTHING,
            Asks.IDS,
            "select msg_id from pgmq.set_vt(%(queue)s, %(ids)s::bigint[], 0)",
            (2, 4),
        ),
        Action(
            "update the view",
            Effect.HIDDEN,
            Asks.IDS,
            "update {view} set vt = now() + interval '1 hour' where msg_id = any (%(ids)s) returning msg_id",
            (1, 2),
        ),
        Action(
            "cancel part",
            Effect.SETTLED,
            Asks.IDS_OF_NO_LEASE,
            "select msg_id from spanmq.cancel(%(queue)s, %(ids)s::bigint[]) where outcome = 'cancelled'",
            (0, 3),
        ),
        Action("ack one", Effect.SETTLED, Asks.IDS_OF_LEASE, ACK, (1, 2)),
        Action("read", Effect.TAKEN, Asks.ANY, "select msg_id from pgmq.read(%(queue)s, 30, 2)"),
        Action("receive one", Effect.TAKEN, Asks.ANY, "select msg_id from spanmq.receive(%(queue)s)"),
        Action(
            "receive all", Effect.TAKEN, Asks.ANY, "select msg_id from spanmq.receive(%(queue)s, 10, 30, 2)"
        ),
        Action(
            "read matching", Effect.TAKEN, Asks.ANY, "select msg_id from pgmq.read(%(queue)s, 30, 2, '3')"
        ),
        Action(
            "read grouped",
            Effect.TAKEN,
            Asks.ANY,
            "select msg_id from pgmq.read_grouped(%(queue)s, 30, 3)",
            in_order=True,
        ),
        Action("pop", Effect.SETTLED, Asks.ANY, "select msg_id from pgmq.pop(%(queue)s, 2)"),
        Action("purge", Effect.SETTLED, Asks.ALL, "select pgmq.purge_queue(%(queue)s)"),
    )
}
