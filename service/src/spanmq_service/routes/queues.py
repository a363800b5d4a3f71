"""Routes of queues: create, measure, inspect, pause, purge and drop them, and change their policies."""

from contextlib import suppress
from typing import Annotated, Any

from msgspec import Meta
from msgspec.json import schema_components
from starlette.responses import Response

from spanmq.errors import QueueNotFoundError
from spanmq.model import (
    SETTING_WORDS,
    Policy,
    Queue,
    QueueMetrics,
    QueueSchema,
)
from spanmq_service.backend import Backend
from spanmq_service.http.arguments import BODY
from spanmq_service.http.json_text import reply
from spanmq_service.routes.doors import add_doors
from spanmq_service.routes.parts import (
    MayLook,
    MayManage,
    QueueName,
    SeesSome,
    answer,
)
from spanmq_service.routes.table import Table

routes = Table("queues")


def _schema_of_change() -> dict[str, Any]:
    """Return the schema of a policy's change. Its values are checked by the database, which names their ranges."""
    settings = schema_components([Policy])[1]["Policy"]["properties"]
    for name, schema in settings.items():
        del schema["default"]
        schema["anyOf"] = schema.pop("anyOf", [{"type": schema.pop("type", None)}, {"type": "null"}])
        schema["description"] = SETTING_WORDS[name]
    return {"properties": settings, "additionalProperties": False}


PolicyAnswer = answer("PolicyAnswer", policy=Policy)


@routes.get("/queues", answer=answer("Queues", queues=list[Queue]))
async def list_queues(backend: Backend, caller: SeesSome) -> Response:
    """List the queues that the token may look at."""
    queues = await backend.client.queues.list()
    return reply(queues=[queue for queue in queues if caller.may("look", queue.name)])


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


def _schema_reply(schema: QueueSchema) -> Response:
    return reply(schema=schema.schema, is_checked=schema.is_checked)


@routes.get("/metrics", answer=answer("AllQueueCounts", metrics=list[QueueMetrics]))
async def metrics_all(backend: Backend, caller: SeesSome) -> Response:
    """Return the metrics of each queue that the token may look at."""
    queues = await backend.queues_of(caller)
    if queues is None:
        return reply(metrics=await backend.client.queues.metrics_all())
    metrics = []
    for queue in queues:
        with suppress(QueueNotFoundError):  # dropped since
            metrics.append(await backend.client.queues.metrics(queue))
    return reply(metrics=metrics)


add_doors(routes, "queue", "policy", "doctor", "version", "maintain")
