"""The nouns `queue` and `policy`."""

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final, Unpack

import typer

from spanmq.cli import running_workers
from spanmq.cli.option import (
    FailingOptions,
    Limit,
    QueueName,
    Settings,
    SomeQueue,
    SomeQueues,
    Yes,
    confirm,
    json_file,
)
from spanmq.cli.output import Done, fields, number_of
from spanmq.cli.progress import awaited
from spanmq.cli.running_workers import STACK_COLUMNS
from spanmq.cli.verbs import Commands
from spanmq.errors import NotSupportedByUpstreamError
from spanmq.model.attention import hindrance
from spanmq.model.queue import folded

if TYPE_CHECKING:
    from spanmq.client import Client
    from spanmq.model import QueueHealth

queue = Commands()
policy = Commands()
queue.verb(columns=STACK_COLUMNS, empty="no handler runs")(running_workers.worker_stack)

LIST_COLUMNS: Final = (
    *(
        "name",
        "state",
        "backlog",
        "visible",
        "in_flight",
        "dead_letters",
        "workers",
        "is_partitioned",
        "is_unlogged",
    ),
    "created_at",
)
HEALTH_COLUMNS: Final = (
    *("queue", "state", "backlog", "visible", "oldest_ready_seconds", "in_flight", "failed", "dead"),
    *("dead_per_minute", "delayed", "oldest_lease_seconds", "receivers", "silent_receivers"),
    *("waiting_sessions", "oldest_snapshot_seconds"),
)
ATTENTION_COLUMNS: Final = ("queue", "level", "reason", "message")
METRICS_COLUMNS: Final = (
    *("queue", "state", "length", "visible_length", "total_messages", "oldest_age_seconds"),
    "newest_age_seconds",
)
FailingIds = Annotated[
    list[int] | None, typer.Option("--id", help="Only these messages; may be given again.")
]


@queue.verb()
def create(
    client: "Client",
    name: QueueName,
    unlogged: Annotated[
        bool, typer.Option("--unlogged", help="Faster; a crash of the server loses its messages.")
    ] = False,
    partition_interval: Annotated[
        str | None, typer.Option(help="PGMQ's partitioned kind: messages, or a time, a segment.")
    ] = None,
    retention_interval: Annotated[
        str | None, typer.Option(help="Number or age of the messages that the archive keeps.")
    ] = None,
) -> Done:
    """Create a queue; does nothing if it exists.

    $ spanmq queue create orders
    $ spanmq queue create events --unlogged
    """
    existed = folded(name) in {folded(existing.name) for existing in client.queues.list()}
    client.queues.create(
        name, unlogged=unlogged, partition_interval=partition_interval, retention_interval=retention_interval
    )
    sentence = f"queue {name} exists already" if existed else f"created queue {name}"
    return Done(sentence, {"queue": name, "created": not existed})


@queue.verb("list", columns=LIST_COLUMNS, empty="no queues")
def list_queues(client: "Client") -> Any:
    """List the queues with their counts, those of a large queue as of the last sample, a minute ago.

    $ spanmq queue list --json
    """
    queues = client.queues.list()
    counts: dict[str, dict[str, Any]] = {}
    with suppress(NotSupportedByUpstreamError):
        exact = {count.queue: count for count in client.inspect.count([queue.name for queue in queues])}
        for latest in client.health.latest():
            now = exact.get(latest.queue)
            counted = now if now is not None and now.is_exact else latest
            counts[latest.queue] = {
                "is_paused": latest.is_paused,
                "breaker_open_until": latest.breaker_open_until,
                "backlog": counted.backlog,
                "visible": counted.visible,
                "in_flight": counted.in_flight,
                "dead_letters": latest.dead_letters,
                "workers": latest.workers,
                "lacks_worker": latest.lacks_worker(counted.visible, counted.in_flight),
            }
    return [fields(queue) | counts.get(queue.name, {}) for queue in queues]


@queue.verb(columns=METRICS_COLUMNS, empty="no queues")
def metrics(client: "Client", queue: SomeQueue = None) -> Any:
    """Count the messages of one queue or of all, as PGMQ does.

    $ spanmq queue metrics orders
    """
    counted = client.queues.metrics_all() if queue is None else [client.queues.metrics(queue)]
    return _with_states(client, counted, "queue")


@queue.verb(columns=HEALTH_COLUMNS, empty="no queues")
def health(client: "Client", queues: SomeQueues = None) -> Any:
    """Show the health of each queue: messages by state, ages, receivers, waiting sessions.

    $ spanmq queue health
    """
    return [health_row(queue_health) for queue_health in client.health.now(queues or None)]


@queue.verb(columns=ATTENTION_COLUMNS, empty="no queue needs attention")
def attention(client: "Client", queues: SomeQueues = None) -> Any:
    """Show why queues need attention: no worker, an open breaker, dead letters, a pause, failing or late messages.

    Problems come first, then warnings.

    $ spanmq queue attention
    """
    reasons = sorted(
        client.health.attention(queues or None), key=lambda reason: (reason.level != "problem", reason.rank)
    )
    return [{**fields(reason), "message": reason.words} for reason in reasons]


@queue.verb()
def retry_failing(
    client: "Client",
    queue: QueueName,
    message_ids: FailingIds = None,
    limit: Limit = 1_000,
    **filters: Unpack[FailingOptions],
) -> Done:
    """Retry messages now that wait for a later attempt.

    $ spanmq queue retry-failing orders --error-class ConnectionError
    """
    retried = client.queues.retry_failing(queue, message_ids=message_ids or None, limit=limit, **filters)
    sentence, record = f"retried {number_of(retried, 'message')} now", {"queue": queue, "retried": retried}
    if (held := hindrance(client.health.attention([queue]))) is not None:
        sentence += f", but the queue delivers nothing: {held.words}"
    return Done(sentence, record | {"waits_for": None if held is None else held.reason})


@queue.verb()
def reject_failing(
    client: "Client",
    queue: QueueName,
    message_ids: FailingIds = None,
    limit: Limit = 1_000,
    yes: Yes = False,
    **filters: Unpack[FailingOptions],
) -> Done:
    """Make dead letters of messages that wait for another attempt.

    $ spanmq queue reject-failing orders --task charge --error-class KeyError --yes
    """
    confirm(f"Make dead letters of up to {number_of(limit, 'failing message')} of {queue}?", yes=yes)
    rejected = client.queues.reject_failing(queue, message_ids=message_ids or None, limit=limit, **filters)
    return Done(
        f"made {number_of(rejected, 'dead letter')} of failing messages",
        {"queue": queue, "rejected": rejected},
    )


@queue.verb()
def schema(client: "Client", queue: QueueName) -> Done:
    """Print the JSON Schema of a queue's bodies.

    $ spanmq queue schema orders
    """
    queue_schema = client.queues.schema(queue)
    text = json.dumps(queue_schema.schema, ensure_ascii=False, indent=2)
    return Done(text, {"schema": queue_schema.schema, "is_checked": queue_schema.is_checked})


@queue.verb()
def set_schema(
    client: "Client",
    queue: QueueName,
    schema: Annotated[str, typer.Argument(metavar="FILE", help="JSON; - is stdin. null removes the schema.")],
    checked: Annotated[
        bool, typer.Option("--checked", help="Refuse to send what does not fit, by any program.")
    ] = False,
) -> Done:
    """Set the JSON Schema of a queue's bodies.

    $ spanmq queue set-schema orders order.json --checked
    $ echo null | spanmq queue set-schema orders -
    """
    value = json_file(schema)
    client.queues.set_schema(queue, value, checked=checked)
    is_checked = checked and value is not None
    what = "no schema" if value is None else "a schema that is checked" if is_checked else "a schema"
    return Done(f"queue {queue} has {what}", {"queue": queue, "schema": value, "is_checked": is_checked})


@queue.verb()
def purge(client: "Client", queue: QueueName, yes: Yes = False) -> Done:
    """Remove all messages of a queue, leased ones too; the archive stays.

    $ spanmq queue purge orders --yes
    """
    waiting = client.queues.metrics(queue).length
    confirm(f"Remove all messages of queue {queue}, now {waiting:,}?", yes=yes)
    with awaited("purging"):
        purged = client.queues.purge(queue)
    return Done(f"removed {number_of(purged, 'message')} from {queue}", {"queue": queue, "purged": purged})


@queue.verb()
def drop(client: "Client", queue: QueueName, yes: Yes = False) -> Done:
    """Drop a queue or a subscription, with its messages and its archive.

    $ spanmq queue drop orders --yes
    """
    confirm(f"Drop queue {queue} with all its messages and its archive?", yes=yes)
    with awaited("dropping"):
        existed = client.queues.drop(queue)
    sentence = f"dropped queue {queue}" if existed else f"queue {queue} did not exist"
    return Done(sentence, {"queue": queue, "dropped": existed})


@policy.verb("set")
def set_policy(client: "Client", queue: QueueName, settings: Settings) -> Any:
    """Change settings of a queue's policy and show it; null restores a default.

    $ spanmq policy set orders max_attempts=5 ordered=true
    """
    return client.queues.set_policy(queue, **dict(settings))


def health_row(health: "QueueHealth") -> dict[str, Any]:
    """Return the health of a queue as a record, with what its state is made of."""
    return {**fields(health), "lacks_worker": health.lacks_worker}


def _with_states(client: "Client", records: Sequence[Any], key: str) -> list[dict[str, Any]]:
    """Add what PGMQ's functions do not return: whether a queue is paused, and its open circuit breakers."""
    states: dict[str, dict[str, Any]] = {}
    with suppress(NotSupportedByUpstreamError):
        for count in client.inspect.count([getattr(record, key) for record in records], most=1):
            state = {"is_paused": count.is_paused, "breaker_open_until": count.breaker_open_until}
            states[count.queue] = state
    return [fields(record) | states.get(getattr(record, key), {}) for record in records]
