"""The choice of a message's shard. No I/O here."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Literal

from spanmq.errors import InvalidArgumentError
from spanmq.model.queue import QueueMetrics

Routing = Literal["group", "key", "turn"]
ROUTINGS: Final = ("group", "key", "turn")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardMap:
    """The shards of a logical queue, each with the name of its server, at one `epoch`.

    `former` are the shards before a change that is under way: a group stays where it has messages.
    """

    queue: str
    epoch: int
    routing: Routing
    shards: Mapping[str, str]
    former: Mapping[str, str] | None = None

    @property
    def all(self) -> dict[str, str]:
        """All queues that may hold messages, with their servers."""
        return {**(self.former or {}), **self.shards}

    def shard_of(self, group: str | None, key: str | int | None, turn: Iterator[int]) -> str:
        """Return the shard of a message.

        By group: the shard with the highest weight for this group, so that a change moves as few groups as
        possible; messages without a group use the shards in turn. By key: an integer modulo the number of
        shards, or the hash of a string. By turn: each message to the next shard.
        """
        if self.routing == "key":
            if key is None:
                raise InvalidArgumentError("these shards are chosen by a key: pass one", queue=self.queue)
            names = list(self.shards)
            return names[(key if isinstance(key, int) else _weight("", key)) % len(names)]
        if self.routing == "group" and group is not None:
            return heaviest(self.shards, group)
        names = list(self.shards)
        return names[next(turn) % len(names)]

    def former_shard_of(self, group: str | None) -> str | None:
        """Return the shard that may still have messages of a group, if a change is moving it."""
        if self.former is None or group is None or self.routing != "group":
            return None
        before = heaviest(self.former, group)
        return None if before == heaviest(self.shards, group) else before


def newest(maps: Iterable[ShardMap | None]) -> ShardMap | None:
    """Return the newest map of several servers; a change that was interrupted is not known to all of them."""
    return max(
        (shard_map for shard_map in maps if shard_map is not None),
        key=lambda shard_map: shard_map.epoch,
        default=None,
    )


def sum_of(queue: str, shards: Sequence[QueueMetrics]) -> QueueMetrics:
    """Return the counts of all shards together; ages are those of the oldest and the newest."""
    newest_ages = [shard.newest_age_seconds for shard in shards if shard.newest_age_seconds is not None]
    oldest_ages = [shard.oldest_age_seconds for shard in shards if shard.oldest_age_seconds is not None]
    return QueueMetrics(
        queue=queue,
        length=sum(shard.length for shard in shards),
        visible_length=sum(shard.visible_length for shard in shards),
        total_messages=sum(shard.total_messages for shard in shards),
        newest_age_seconds=min(newest_ages, default=None),
        oldest_age_seconds=max(oldest_ages, default=None),
        scraped_at=max(shard.scraped_at for shard in shards),
    )


def heaviest(shards: Mapping[str, str], group: str) -> str:
    """Choose by rendezvous hashing (Thaler and Ravishankar, 1996)."""
    return max(shards, key=lambda name: (_weight(name, group), name))


def _weight(name: str, group: str) -> int:
    # A length before the name, so that no two pairs make the same text.
    text = f"{len(name)}:{name}{group}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest())
