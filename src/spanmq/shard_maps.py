# Generated from src/spanmq/shard_maps_async.py by tools/generate_sync.py: change that file.

"""What a client does with maps of shards in its database; a part of Client. See ShardedQueue."""

from __future__ import annotations

from spanmq import shard_calls
from spanmq.link import Link
from spanmq.shard_map import ShardMap


class ShardMaps:
    """The maps of logical queues over several queues."""

    _link: Link

    def get_shards(self, queue: str) -> ShardMap | None:
        """Give the map that this database has, if any."""
        return self._link.run(shard_calls.get_shards(queue))

    def set_shards(self, shard_map: ShardMap) -> int:
        """Write a map unless this database has it or a later one; give the epoch that it has then.

        Waits for the transactions that are sending by the map before.
        """
        return self._link.run(shard_calls.set_shards(shard_map))

    def forget_shards(self, queue: str) -> bool:
        """Forget a map; the shards stay, as queues. Tell whether there was one."""
        return self._link.run(shard_calls.forget_shards(queue))

    def enter_shards(
        self, queue: str, epoch: int, shard: str | None = None, group: str | None = None
    ) -> bool:
        """Hold the map as it is to the end of the transaction, before a send in it.

        With a shard and a group: tell whether it has unsettled messages of the group, and let others that
        ask the same wait. Raises ShardsChangedError where the map has another epoch.
        """
        return self._link.run(shard_calls.enter_shards(queue, epoch, shard, group))

    def shard_groups(self, queue: str, after: str | None = None, quantity: int = 1000) -> list[str]:
        """List groups that have unsettled messages, in an order of their own, following `after`."""
        return self._link.run(shard_calls.shard_groups(queue, after, quantity))
