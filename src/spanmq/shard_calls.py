"""The SQL functions of shards: their arguments, and what becomes of their rows. No I/O here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial

from spanmq import call as argument
from spanmq.call import Call, Rows, flag, number
from spanmq.shard_map import ShardMap


def get_shards(queue: str) -> Call[ShardMap | None]:
    """Look the map up."""
    arguments = (argument.queue_name("queue", queue),)
    return Call("get_shards", arguments, partial(_map, queue), queue, native=True)


def set_shards(wanted: ShardMap) -> Call[int]:
    """Write a map unless a later one is there."""
    arguments = [
        argument.queue_name("queue", wanted.queue),
        argument.bigint("epoch", wanted.epoch),
        argument.text("routing", wanted.routing),
        argument.json("shards", _text(wanted.shards)),
    ]
    if wanted.former is not None:
        arguments.append(argument.json("former", _text(wanted.former)))
    return Call("set_shards", tuple(arguments), number, wanted.queue, native=True)


def forget_shards(queue: str) -> Call[bool]:
    """Forget the map."""
    return Call("forget_shards", (argument.queue_name("queue", queue),), flag, queue, native=True)


def enter_shards(queue: str, epoch: int, shard: str | None, group: str | None) -> Call[bool]:
    """Hold the map as it is; tell whether the shard has messages of the group."""
    arguments = [argument.queue_name("queue", queue), argument.bigint("epoch", epoch)]
    if shard is not None and group is not None:
        arguments += [argument.queue_name("shard", shard), argument.text("group_key", group)]
    return Call("enter_shards", tuple(arguments), flag, queue, native=True)


def shard_groups(shard: str, after: str | None, quantity: int) -> Call[list[str]]:
    """List groups with messages that are not settled."""
    arguments = [argument.queue_name("queue", shard)]
    if after is not None:
        arguments.append(argument.text("after", after))
    arguments.append(argument.integer("qty", quantity))
    return Call("shard_groups", tuple(arguments), lambda rows: rows.column(), shard, native=True)


def _text(shards: Mapping[str, str]) -> str:
    return json.dumps(dict(shards))


def _map(queue: str, rows: Rows) -> ShardMap | None:
    for row in rows.records():
        former = row["former"]
        return ShardMap(
            queue=queue,
            epoch=row["epoch"],
            routing=row["routing"],
            shards=json.loads(row["shards"]),
            former=None if former is None else json.loads(former),
        )
    return None
