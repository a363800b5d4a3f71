"""The noun `queue`."""

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final, TypedDict, Unpack

import typer

from spanmq.cli import running_workers
from spanmq.cli.option import (
    After,
    Limit,
    NewestFirst,
    QueueName,
    SomeQueue,
    SomeQueues,
    Yes,
    confirm,
    json_file,
)
from spanmq.cli.output import Done, fields, number_of
from spanmq.cli.progress import awaited
from spanmq.cli.running_workers import NO_WORKER, STACK_COLUMNS, WORKER_COLUMNS
from spanmq.cli.verbs import Commands
from spanmq.errors import NotSupportedByUpstreamError
from spanmq.model.attention import hindrance
from spanmq.model.queue import folded

if TYPE_CHECKING:
    from spanmq.client import Client
    from spanmq.model import QueueHealth

queue = Commands()
queue.verb(columns=WORKER_COLUMNS, empty=NO_WORKER)(running_workers.workers)
queue.verb()(running_workers.stop_worker)
queue.verb(columns=STACK_COLUMNS, empty="no handler runs")(running_workers.worker_stack)

SAMPLE_COLUMNS: Final = (
    *("sampled_at", "sent", "received", "settled", "failed", "dead", "backlog", "in_flight"),
    "oldest_ready_seconds",
)
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
COUNT_COLUMNS: Final = (
    *("queue", "state", "is_exact", "backlog", "visible", "in_flight", "delayed", "failed"),
)
FAILING_COLUMNS: Final = (
    *("queue", "task", "count", "error_class", "error", "attempts", "last_failed_at", "retry_at", "example"),
    *("first_failed_at", "first_message_id", "is_exact"),
)
FAILING_MESSAGE_COLUMNS: Final = (
    *("message_id", "task", "attempts", "first_failed_at", "last_failed_at", "retry_at"),
    *("error_class", "error"),
)
FailingIds = Annotated[
    list[int] | None, typer.Option("--id", help="Only these messages; may be given again.")
]
Seconds = Annotated[float, typer.Option(help="Period up to now; three days are kept.")]


class Failing(TypedDict):
    """A selection of failing messages, by the values that `queue failing` shows."""

    task: Annotated[str | None, typer.Option(help="Only this task.")]
    category: Annotated[str | None, typer.Option(help="Only this category.")]
    error_class: Annotated[str | None, typer.Option(help="Only this class.")]
    error: Annotated[str | None, typer.Option(help="Only this error, as queue failing shows it.")]


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
    existed = folded(name) in {folded(each.name) for each in client.queues.list()}
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
        exact = {each.queue: each for each in client.inspect.count([each.name for each in queues])}
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
    return [fields(each) | counts.get(each.name, {}) for each in queues]


@queue.verb(columns=METRICS_COLUMNS, empty="no queues")
def metrics(client: "Client", queue: SomeQueue = None) -> Any:
    """Count the messages of one queue or of all, as PGMQ does.

    $ spanmq queue metrics orders
    """
    counted = client.queues.metrics_all() if queue is None else [client.queues.metrics(queue)]
    return _with_states(client, counted, "queue")


@queue.verb(columns=COUNT_COLUMNS, empty="no queues")
def count(
    client: "Client",
    queues: SomeQueues = None,
    most: Annotated[int, typer.Option(help="Count only queues of at most this many messages.")] = 200,
) -> Any:
    """Count the messages of queues that hold few; others have no counts. It costs little on any queue.

    $ spanmq queue count
    """
    return client.inspect.count(queues or None, most=most)


@queue.verb(columns=HEALTH_COLUMNS, empty="no queues")
def health(client: "Client", queues: SomeQueues = None) -> Any:
    """Show the health of each queue: messages by state, ages, receivers, waiting sessions.

    $ spanmq queue health
    """
    return [health_row(each) for each in client.health.now(queues or None)]


@queue.verb(columns=ATTENTION_COLUMNS, empty="no queue needs attention")
def attention(client: "Client", queues: SomeQueues = None) -> Any:
    """Show why queues need attention: no worker, an open breaker, dead letters, a pause, failing or late messages.

    Problems come first, then warnings.

    $ spanmq queue attention
    """
    found = sorted(
        client.health.attention(queues or None), key=lambda each: (each.level != "problem", each.rank)
    )
    return [{**fields(each), "message": each.words} for each in found]


@queue.verb(columns=SAMPLE_COLUMNS, empty="no samples: nothing happened, or nothing calls maintain()")
def statistics(client: "Client", queue: QueueName, seconds: Seconds = 3600.0) -> Any:
    """Show the statistics of a queue, a row a minute, as maintain() sampled them.

    $ spanmq queue statistics orders --seconds 7200
    """
    return client.health.statistics(queue, seconds=seconds)


@queue.verb(columns=("queue", "state", *SAMPLE_COLUMNS), empty="no queues")
def latest_statistics(client: "Client", queues: SomeQueues = None) -> Any:
    """Show the last sample of queues; costs the same however many messages wait.

    $ spanmq queue latest-statistics
    """
    return client.health.latest(queues or None)


@queue.verb()
def sum_statistics(
    client: "Client",
    queues: SomeQueues = None,
    seconds: Seconds = 3600.0,
    step: Annotated[float, typer.Option(help="Seconds that a row covers.")] = 60.0,
) -> Any:
    """Show sums of the statistics of queues, in steps, until a minute ago.

    $ spanmq queue sum-statistics orders invoices --step 600
    """
    return client.health.total(queues or None, seconds=seconds, step=step)


@queue.verb(columns=FAILING_COLUMNS, empty="no message waits for another attempt")
def failing(client: "Client", queue: SomeQueue = None, limit: Limit = 100) -> Any:
    """Show the causes of failure of the messages that wait for another attempt, the most frequent first.

    $ spanmq queue failing orders
    """
    return client.inspect.failing(queue, limit)


@queue.verb(columns=FAILING_MESSAGE_COLUMNS, empty="no such message waits for another attempt")
def failing_messages(
    client: "Client",
    queue: QueueName,
    after: After = 0,
    limit: Limit = 100,
    newest_first: NewestFirst = False,
    **filters: Unpack[Failing],
) -> Any:
    """List the messages that wait for another attempt; --json has the tracebacks.

    $ spanmq queue failing-messages orders --error-class KeyError --newest-first
    """
    return client.inspect.failing_messages(
        queue, after=after, limit=limit, newest_first=newest_first, **filters
    )


@queue.verb()
def retry_failing(
    client: "Client",
    queue: QueueName,
    message_ids: FailingIds = None,
    limit: Limit = 1_000,
    **filters: Unpack[Failing],
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
    **filters: Unpack[Failing],
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


@queue.verb(
    columns=("change_id", "changed_at", "role", "actor", "action", "queue", "details"),
    empty="no change is recorded",
)
def changes(
    client: "Client",
    queue: SomeQueue = None,
    before: Annotated[int | None, typer.Option(help="Only changes with an id below this one.")] = None,
    limit: Limit = 100,
) -> Any:
    """Show which role, token or command changed what, the newest change first.

    $ spanmq queue changes orders
    """
    return client.inspect.changes(queue, before=before, limit=limit)


@queue.verb(empty="no groups")
def groups(client: "Client", queue: QueueName, limit: Limit = 100) -> Any:
    """List groups and what they wait for, blocked ones first.

    $ spanmq queue groups orders
    """
    return client.inspect.groups(queue, limit)


@queue.verb(empty="no leases")
def leases(client: "Client", queue: QueueName, limit: Limit = 100) -> Any:
    """List what receivers hold, the oldest lease first.

    $ spanmq queue leases orders
    """
    return client.inspect.leases(queue, limit)


@queue.verb(empty="no segments")
def segments(client: "Client", queue: QueueName, limit: Limit = 100) -> Any:
    """List the tables of a queue's log, the newest first.

    $ spanmq queue segments orders
    """
    return client.inspect.segments(queue, limit)


@queue.verb()
def schema(client: "Client", queue: QueueName) -> Done:
    """Print the JSON Schema of a queue's bodies.

    $ spanmq queue schema orders
    """
    found = client.queues.schema(queue)
    text = json.dumps(found.schema, ensure_ascii=False, indent=2)
    return Done(text, {"schema": found.schema, "is_checked": found.is_checked})


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
def storage(client: "Client", queue: QueueName) -> Any:
    """Show the disk space of a queue, in bytes; state and WAL are those of all queues.

    $ spanmq queue storage orders
    """
    return client.inspect.storage(queue)


@queue.verb()
def pause(client: "Client", queue: QueueName) -> Done:
    """Pause deliveries until the queue is resumed; messages can still be sent.

    $ spanmq queue pause orders
    """
    client.queues.pause(queue)
    return Done(
        f"receivers get no messages of {queue} until it is resumed", {"queue": queue, "is_paused": True}
    )


@queue.verb()
def resume(client: "Client", queue: QueueName) -> Done:
    """Deliver the messages of a paused queue again.

    $ spanmq queue resume orders
    """
    client.queues.resume(queue)
    return Done(f"receivers get messages of {queue} again", {"queue": queue, "is_paused": False})


@queue.verb()
def close_breaker(client: "Client", queue: QueueName) -> Done:
    """Close the circuit breakers of the queue's workers, which receive again within about a second.

    $ spanmq queue close-breaker orders
    """
    closed = client.queues.close_breaker(queue)
    sentence = f"closed the circuit breakers of {closed} worker{'' if closed == 1 else 's'} of {queue}"
    return Done(sentence, {"queue": queue, "closed": closed})


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


def health_row(health: "QueueHealth") -> dict[str, Any]:
    """Return the health of a queue as a record, with what its state is made of."""
    return {**fields(health), "lacks_worker": health.lacks_worker}


def _with_states(client: "Client", records: Sequence[Any], key: str) -> list[dict[str, Any]]:
    """Add what PGMQ's functions do not return: whether a queue is paused, and its open circuit breakers."""
    states: dict[str, dict[str, Any]] = {}
    with suppress(NotSupportedByUpstreamError):
        for each in client.inspect.count([getattr(each, key) for each in records], most=1):
            state = {"is_paused": each.is_paused, "breaker_open_until": each.breaker_open_until}
            states[each.queue] = state
    return [fields(each) | states.get(getattr(each, key), {}) for each in records]
