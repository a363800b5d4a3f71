"""Who competes: upstream PGMQ, PGMQ's calls on our schema, and our own calls."""

from __future__ import annotations

from dataclasses import dataclass

QUEUE = "bench"
LEASE_SECONDS = 600  # longer than any run: no lease ends while we measure

UPSTREAM = "upstream"
CALLS = "calls"
NATIVE = "native"

PGMQ_DATABASE = "spanmq_bench_pgmq"
SPANMQ_DATABASE = "spanmq_bench_spanmq"

_PGMQ_COLUMNS = ("msg_id", "read_ct", "enqueued_at", "last_read_at", "vt", "message", "headers")
_NATIVE_COLUMNS = (*_PGMQ_COLUMNS, "lease_id", "slot", "attempt", "group_key", "last_error")


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way to send, take and settle. The statements differ only where the interfaces differ."""

    name: str
    title: str
    database: str
    columns: tuple[str, ...]
    carried: tuple[str, ...]  # columns that the settling statement needs back, beside the ids

    @property
    def ours(self) -> bool:
        """Return whether it runs on spanmq's schema."""
        return self.database == SPANMQ_DATABASE

    def receive(self, quantity: int) -> str:
        """Return the call that takes messages, to stand in a FROM clause."""
        if self.name == NATIVE:
            # As the client does: a claim need not wait for the disk, since a lease id that a crash forgets
            # never comes again. Without such a token this would be unsafe, so the others do wait.
            relaxed = "pg_catalog.set_config('synchronous_commit', 'off', true) relaxed"
            return f"spanmq.receive('{QUEUE}', {quantity}, {LEASE_SECONDS}, 1), {relaxed}"
        return f"pgmq.read('{QUEUE}', {LEASE_SECONDS}, {quantity})"

    def settle_one(self) -> str:
        """Return the statement that settles the message in :msg_id."""
        if self.name == NATIVE:
            return f"select * from spanmq.ack('{QUEUE}', :lease_id::bigint, array[:msg_id::bigint])"
        return f"select * from pgmq.delete('{QUEUE}', :msg_id::bigint)"

    def settle_many(self) -> str:
        """Return the statement that settles the messages in :ids."""
        if self.name == NATIVE:
            return f"select * from spanmq.ack('{QUEUE}', :lease_id::bigint, :ids::bigint[])"
        return f"select * from pgmq.delete('{QUEUE}', :ids::bigint[])"


CONTESTANTS = (
    Contestant(UPSTREAM, "upstream PGMQ", PGMQ_DATABASE, _PGMQ_COLUMNS, ()),
    Contestant(CALLS, "PGMQ's calls", SPANMQ_DATABASE, _PGMQ_COLUMNS, ()),
    Contestant(NATIVE, "native calls", SPANMQ_DATABASE, _NATIVE_COLUMNS, ("lease_id",)),
)
