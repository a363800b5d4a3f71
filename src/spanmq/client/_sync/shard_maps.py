# Generated from src/spanmq/client/_async/shard_maps.py by tools/generate_sync.py: change that file.

"""The maps of sharded queues in one database, for ShardedQueue."""

from __future__ import annotations

import json

from spanmq.client import call as argument
from spanmq.client._sync.client import Client
from spanmq.client.call import Call, Rows, flag, given, number
from spanmq.model.shard_map import ShardMap


class ShardMaps:
    """Read and write maps through a client."""

    def __init__(self, client: Client) -> None:
        self._run = client.admin.run

    def get(self, queue: str) -> ShardMap | None:
        """Return the map that this database has, if any."""

        def read(rows: Rows) -> ShardMap | None:
            for row in rows.records():
                former = None if row["former"] is None else json.loads(row["former"])
                shards = json.loads(row["shards"])
                return ShardMap(
                    queue=queue, epoch=row["epoch"], routing=row["routing"], shards=shards, former=former
                )
            return None

        arguments = (argument.queue_name("queue", queue),)
        return self._run(Call("get_shards", arguments, read, queue, native=True))

    def set(self, shard_map: ShardMap) -> int:
        """Write a map unless this database has it or a later one; return the epoch that it has then.

        Waits for the transactions that are sending by the map before.
        """
        former = None if shard_map.former is None else json.dumps(dict(shard_map.former))
        arguments = (
            argument.queue_name("queue", shard_map.queue),
            argument.bigint("epoch", shard_map.epoch),
            argument.text("routing", shard_map.routing),
            argument.json("shards", json.dumps(dict(shard_map.shards))),
            *given(argument.json, "former", former),
        )
        return self._run(Call("set_shards", arguments, number, shard_map.queue, native=True))

    def forget(self, queue: str) -> bool:
        """Delete a map; the shards stay, as queues. Return whether there was one."""
        arguments = (argument.queue_name("queue", queue),)
        return self._run(Call("forget_shards", arguments, flag, queue, native=True))

    def enter(self, queue: str, epoch: int, shard: str | None = None, group: str | None = None) -> bool:
        """Hold the map as it is to the end of the transaction, before a send in it.

        With a shard and a group: return whether it has unsettled messages of the group, and make others that
        ask the same wait. Raises ShardsChangedError where the map has another epoch.
        """
        one = shard is not None and group is not None
        arguments = (
            argument.queue_name("queue", queue),
            argument.bigint("epoch", epoch),
            *given(argument.queue_name, "shard", shard if one else None),
            *given(argument.text, "group_key", group if one else None),
        )
        return self._run(Call("enter_shards", arguments, flag, queue, native=True))

    def groups(self, queue: str, after: str | None = None, limit: int = 1000) -> list[str]:
        """List groups that have unsettled messages, in an order of their own, following `after`."""
        arguments = (
            argument.queue_name("queue", queue),
            *given(argument.text, "after", after),
            argument.integer("qty", limit),
        )
        return self._run(Call("shard_groups", arguments, Rows.column, queue, native=True))
