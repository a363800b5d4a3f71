"""Routes of queues: create, measure, inspect, pause, purge and drop them, and change their policies."""

from contextlib import suppress
from typing import Annotated, Any

from msgspec import Meta
from msgspec.json import schema_components
from msgspec.structs import asdict
from starlette.responses import Response

from spanmq.errors import QueueNotFoundError
from spanmq.model import (
    SETTING_WORDS,
    Attention,
    Finding,
    Group,
    HeldLease,
    MaintenanceStep,
    Policy,
    Queue,
    QueueCount,
    QueueHealth,
    QueueMetrics,
    QueueSchema,
    QueueStorage,
    Sample,
    Segment,
    StatisticsStep,
    WorkerReport,
)
from spanmq_service.backend import Backend
from spanmq_service.http.arguments import BODY
from spanmq_service.http.json_text import reply
from spanmq_service.routes.parts import (
    Existed,
    Given,
    Limit,
    MayLook,
    MayLookAtAll,
    MayManage,
    MayManageAll,
    QueueName,
    Removed,
    SeesSome,
    answer,
)
from spanmq_service.routes.table import Table

routes = Table("queues")

Interval = Annotated[str, Meta(max_length=100)] | Annotated[int, Meta(ge=1, le=2**63 - 1)]
Lookback = Annotated[float, Meta(gt=0, le=3e9)]
Step = Annotated[float, Meta(ge=1, le=3e9)]


class NewQueue(Given, kw_only=True):
    """The kind of a queue; the intervals make it a partitioned queue as in PGMQ."""

    unlogged: bool = False
    partition_interval: Interval | None = None
    retention_interval: Interval | None = None


class StoppedWorker(Given, kw_only=True):
    """The name of a worker, as it is listed."""

    worker: Annotated[str, Meta(min_length=1, max_length=1_000)]


def _schema_of_change() -> dict[str, Any]:
    """Return the schema of a policy's change. Its values are checked by the database, which names their ranges."""
    settings = schema_components([Policy])[1]["Policy"]["properties"]
    for name, each in settings.items():
        del each["default"]
        each["anyOf"] = each.pop("anyOf", [{"type": each.pop("type", None)}, {"type": "null"}])
        each["description"] = SETTING_WORDS[name]
    return {"properties": settings, "additionalProperties": False}


PolicyAnswer = answer("PolicyAnswer", policy=Policy)
QueueNamed = answer("QueueNamed", queue=str)
Paused = answer("Paused", queue=str, is_paused=bool)
Closed = answer("Closed", closed=int)


@routes.get("/queues", answer=answer("Queues", queues=list[Queue]))
async def list_queues(backend: Backend, caller: SeesSome) -> Response:
    """List the queues that the token may look at."""
    found = await backend.client.queues.list()
    return reply(queues=[queue for queue in found if caller.may("look", queue.name)])


@routes.put("/queues/{queue}", answer=QueueNamed)
async def create_queue(
    queue: QueueName, backend: Backend, _: MayManage, new: NewQueue | None = None
) -> Response:
    """Create a queue; does nothing if it exists."""
    await backend.client.queues.create(queue, **asdict(new or NewQueue()))
    return reply(queue=queue)


@routes.delete("/queues/{queue}", answer=Existed, errors=(409,))
async def drop_queue(queue: QueueName, backend: Backend, _: MayManage) -> Response:
    """Drop a queue with its messages and its archive."""
    return reply(existed=await backend.client.queues.drop(queue))


@routes.post("/queues/{queue}/purge", answer=Removed)
async def purge(queue: QueueName, backend: Backend, _: MayManage) -> Response:
    """Remove all messages of a queue."""
    return reply(removed=await backend.client.queues.purge(queue))


@routes.post("/queues/{queue}/pause", answer=Paused)
async def pause(queue: QueueName, backend: Backend, _: MayManage) -> Response:
    """Pause deliveries; messages can still be sent."""
    await backend.client.queues.pause(queue)
    return reply(queue=queue, is_paused=True)


@routes.post("/queues/{queue}/resume", answer=Paused)
async def resume(queue: QueueName, backend: Backend, _: MayManage) -> Response:
    """Resume deliveries."""
    await backend.client.queues.resume(queue)
    return reply(queue=queue, is_paused=False)


@routes.post("/queues/{queue}/close-breaker", answer=Closed)
async def close_breaker(queue: QueueName, backend: Backend, _: MayManage) -> Response:
    """Close the circuit breakers of a queue's workers, which receive again within about a second."""
    return reply(closed=await backend.client.queues.close_breaker(queue))


@routes.get("/workers", answer=answer("Workers", workers=list[WorkerReport]))
async def list_workers(backend: Backend, caller: SeesSome) -> Response:
    """List the workers of queues that the token may look at, as they reported within the last minute."""
    return reply(workers=caller.seen(await backend.client.health.workers()))


@routes.post("/workers/stop", answer=answer("Stopped", worker=str, queues=int), errors=(404,))
async def stop_worker(which: StoppedWorker, backend: Backend, _: MayManageAll) -> Response:
    """Ask a worker to stop: it finishes what it handles, and ends. Returns for how many queues it is listed."""
    return reply(worker=which.worker, queues=await backend.client.admin.stop_worker(which.worker))


@routes.get("/queues/{queue}/policy", answer=PolicyAnswer)
async def get_policy(queue: QueueName, backend: Backend, _: MayLook) -> Response:
    """Return the settings of a queue's policy."""
    return reply(policy=await backend.client.queues.policy(queue))


@routes.patch("/queues/{queue}/policy", answer=PolicyAnswer, errors=(409,))
async def set_policy(
    queue: QueueName,
    settings: Annotated[
        dict[str, Any], BODY, Meta(examples=[{"max_attempts": 5}], extra_json_schema=_schema_of_change())
    ],
    backend: Backend,
    _: MayManage,
) -> Response:
    """Change the named settings; null resets one to its default."""
    return reply(policy=await backend.client.queues.set_policy(queue, **settings))


@routes.get("/queues/{queue}/schema", answer=QueueSchema)
async def get_schema(queue: QueueName, backend: Backend, _: MayLook) -> Response:
    """Return the JSON Schema of a queue's bodies, null if it has none."""
    return _schema_reply(await backend.client.queues.schema(queue))


@routes.put("/queues/{queue}/schema", answer=QueueSchema, errors=(409,))
async def set_schema(
    queue: QueueName,
    schema: Annotated[dict[str, Any] | bool, BODY, Meta(examples=[{"type": "object"}])],
    backend: Backend,
    _: MayManage,
    checked: bool = False,
) -> Response:
    """Set the JSON Schema of a queue's bodies; if `checked`, a body that does not fit is not sent."""
    await backend.client.queues.set_schema(queue, schema, checked=checked)
    return _schema_reply(QueueSchema(schema, checked))


@routes.delete("/queues/{queue}/schema", answer=QueueSchema, errors=(409,))
async def drop_schema(queue: QueueName, backend: Backend, _: MayManage) -> Response:
    """Remove the JSON Schema of a queue's bodies."""
    await backend.client.queues.set_schema(queue, None)
    return _schema_reply(QueueSchema(None, is_checked=False))


def _schema_reply(found: QueueSchema) -> Response:
    return reply(schema=found.schema, is_checked=found.is_checked)


@routes.get("/queues/{queue}/metrics", answer=answer("QueueCounts", metrics=QueueMetrics))
async def metrics(queue: QueueName, backend: Backend, _: MayLook) -> Response:
    """Return the metrics of a queue."""
    return reply(metrics=await backend.client.queues.metrics(queue))


@routes.get("/metrics", answer=answer("AllQueueCounts", metrics=list[QueueMetrics]))
async def metrics_all(backend: Backend, caller: SeesSome) -> Response:
    """Return the metrics of each queue that the token may look at."""
    queues = await backend.queues_of(caller)
    if queues is None:
        return reply(metrics=await backend.client.queues.metrics_all())
    found = []
    for queue in queues:
        with suppress(QueueNotFoundError):  # dropped since
            found.append(await backend.client.queues.metrics(queue))
    return reply(metrics=found)


@routes.get("/queues/{queue}/storage", answer=answer("Storage", storage=QueueStorage))
async def storage(queue: QueueName, backend: Backend, _: MayLook) -> Response:
    """Return the disk space that a queue uses."""
    return reply(storage=await backend.client.inspect.storage(queue))


@routes.get("/queues/{queue}/statistics", answer=answer("Statistics", samples=list[Sample]))
async def statistics(queue: QueueName, backend: Backend, _: MayLook, seconds: Lookback = 3600.0) -> Response:
    """Return the statistics of a queue for the last `seconds`, one sample a minute."""
    return reply(samples=await backend.client.health.statistics(queue, seconds=seconds))


@routes.get("/health", answer=answer("Health", queues=list[QueueHealth]))
async def health(backend: Backend, caller: SeesSome) -> Response:
    """Return the health of each queue that the token may look at."""
    return reply(queues=await backend.client.health.now(await backend.queues_of(caller)))


@routes.get("/attention", answer=answer("Attentions", reasons=list[Attention]))
async def attention(backend: Backend, caller: SeesSome) -> Response:
    """Return why queues that the token may look at need attention, such as dead letters or a queue without a worker."""
    return reply(reasons=await backend.client.health.attention(await backend.queues_of(caller)))


@routes.get("/doctor", answer=answer("Findings", findings=list[Finding]))
async def doctor(
    backend: Backend,
    _: MayLookAtAll,
    connections: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None,
) -> Response:
    """Check that the server's settings suit the queues."""
    return reply(findings=await backend.client.health.doctor(connections=connections))


@routes.get("/version", answer=answer("Version", version=str))
async def version(backend: Backend, _: SeesSome) -> Response:
    """Return the version of the schema."""
    return reply(version=await backend.client.admin.version())


@routes.post("/maintain", answer=answer("Maintenance", steps=list[MaintenanceStep]))
async def maintain(
    backend: Backend, _: MayManageAll, budget: Annotated[int, Meta(ge=1, le=1_000)] = 10
) -> Response:
    """Run one bounded step of maintenance; the service also does this in the background."""
    return reply(steps=await backend.client.admin.maintain(budget))


@routes.get("/count", answer=answer("WaitingCounts", queues=list[QueueCount]))
async def count_messages(
    backend: Backend, caller: SeesSome, most: Annotated[int, Meta(ge=1, le=10_000)] = 200
) -> Response:
    """Count the messages that wait in each queue that the token may look at, up to `most` in each."""
    queues = await backend.queues_of(caller)
    return reply(queues=await backend.client.inspect.count(queues, most=most))


@routes.get("/statistics", answer=answer("StatisticsSums", steps=list[StatisticsStep]))
async def sum_statistics(
    backend: Backend, caller: SeesSome, seconds: Lookback = 3600.0, step: Step = 60.0
) -> Response:
    """Return the sums of the statistics of all queues that the token may look at, in steps."""
    queues = await backend.queues_of(caller)
    return reply(steps=await backend.client.health.total(queues, seconds=seconds, step=step))


@routes.get("/queues/{queue}/leases", answer=answer("Leases", leases=list[HeldLease]))
async def list_leases(queue: QueueName, backend: Backend, _: MayLook, limit: Limit = 100) -> Response:
    """List what receivers hold, the oldest lease first."""
    return reply(leases=await backend.client.inspect.leases(queue, limit))


@routes.get("/queues/{queue}/groups", answer=answer("Groups", groups=list[Group]))
async def list_groups(queue: QueueName, backend: Backend, _: MayLook, limit: Limit = 100) -> Response:
    """List groups, those first that give nothing now, and what they wait for."""
    return reply(groups=await backend.client.inspect.groups(queue, limit))


@routes.get("/queues/{queue}/segments", answer=answer("Segments", segments=list[Segment]))
async def list_segments(queue: QueueName, backend: Backend, _: MayLook, limit: Limit = 100) -> Response:
    """List the tables of a queue's log, the newest first."""
    return reply(segments=await backend.client.inspect.segments(queue, limit))
