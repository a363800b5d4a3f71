"""Routes of signals, and of the messages that wait for them."""

from typing import Annotated

from msgspec import Meta
from starlette.responses import Response

from spanmq.model import SignalEntry
from spanmq.service.backend import Backend
from spanmq.service.http.json_text import reply
from spanmq.service.routes.parts import Body, Given, Limit, MayLook, MaySend, Name, QueueName, answer
from spanmq.service.routes.table import Table

routes = Table("signals")


class NewSignal(Given, kw_only=True):
    """A signal to send."""

    name: Name
    body: Body = None
    keep_for: Annotated[float, Meta(ge=0, le=3e9)] = 86_400.0
    timed_out: bool = False


@routes.post("/queues/{queue}/signals", answer=answer("SignalSent", outcome=str), errors=(409,))
async def signal(queue: QueueName, signal: NewSignal, backend: Backend, _: MaySend) -> Response:
    """Send a signal: to the message that waits for it, or to be kept."""
    outcome = await backend.client.signals.send(
        queue, signal.name, signal.body, keep_for=signal.keep_for, timed_out=signal.timed_out
    )
    return reply(outcome=outcome)


@routes.get("/queues/{queue}/signals", answer=answer("Signals", signals=list[SignalEntry]))
async def list_signals(
    queue: QueueName, backend: Backend, _: MayLook, after: Name | None = None, quantity: Limit = 100
) -> Response:
    """List the messages that wait for a signal, and the signals that are kept."""
    return reply(signals=await backend.client.signals.list(queue, after=after, limit=quantity))
