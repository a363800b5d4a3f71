"""The noun `shard`: one logical queue over several queues of one database."""

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from spanmq.cli.option import QueueName, Yes, confirm
from spanmq.cli.output import Done
from spanmq.cli.verbs import Commands
from spanmq.model.shard_map import ROUTINGS, Routing, ShardMap

if TYPE_CHECKING:
    from spanmq.client import Client, ShardedQueue

shard = Commands()

Shards = Annotated[list[str], typer.Argument(metavar="SHARD", help="Names of queues; they are created.")]


@shard.verb()
def create(
    client: "Client",
    queue: QueueName,
    shards: Shards,
    routing: Annotated[str, typer.Option(help=f"How messages are spread: {', '.join(ROUTINGS)}.")] = "group",
) -> Any:
    """Create a logical queue over several queues; does nothing if it exists.

    $ spanmq shard create orders orders_0 orders_1
    """
    if routing not in ROUTINGS:
        raise typer.BadParameter(f"routing must be one of {', '.join(ROUTINGS)}")
    return _record(_sharded(queue, client).create(shards, routing=cast(Routing, routing)))


@shard.verb("list")
def list_shards(client: "Client", queue: QueueName) -> Any:
    """Show the shards of a logical queue, and those that a change takes messages from.

    $ spanmq shard list orders
    """
    return _record(_sharded(queue, client).shards())


@shard.verb()
def change(client: "Client", queue: QueueName, shards: Shards) -> Any:
    """Use other shards from now on; groups move when their messages are settled.

    $ spanmq shard change orders orders_0 orders_1 orders_2
    """
    return _record(_sharded(queue, client).change(shards))


@shard.verb()
def finish(client: "Client", queue: QueueName) -> Done:
    """End a change of shards, if no messages are left that move.

    $ spanmq shard finish orders
    """
    done = _sharded(queue, client).finish()
    sentence = "no change is open" if done else "messages are left that move"
    return Done(sentence, {"queue": queue, "finished": done})


@shard.verb()
def drop(client: "Client", queue: QueueName, yes: Yes = False) -> Done:
    """Drop a logical queue and its shards with all messages.

    $ spanmq shard drop orders --yes
    """
    confirm(f"Drop {queue} and all its shards with their messages and archives?", yes=yes)
    dropped = _sharded(queue, client).drop()
    sentence = f"dropped {queue}" if dropped else f"{queue} had no shards"
    return Done(sentence, {"queue": queue, "dropped": dropped})


def _sharded(queue: str, client: "Client") -> "ShardedQueue":
    from spanmq.client import ShardedQueue

    return ShardedQueue(queue, client)


def _record(shard_map: ShardMap) -> dict[str, object]:
    return {
        "queue": shard_map.queue,
        "epoch": shard_map.epoch,
        "routing": shard_map.routing,
        "shards": list(shard_map.shards),
        "former": None if shard_map.former is None else list(shard_map.former),
    }
