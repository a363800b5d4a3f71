"""One request, as the actions see it: who asks, from where, and the queues that he may touch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from spanmq.errors import QueueNotFoundError
from spanmq.service.access import Caller, Verb
from spanmq.service.sqs.queue import ACCOUNT, QueueView, arn_of
from spanmq.service.sqs.refusal import SqsError, no_queue

if TYPE_CHECKING:
    from starlette.requests import Request

    from spanmq.service.backend import Backend


@dataclass(frozen=True, slots=True)
class Call:
    """An action with its values; `queue_path` is the queue in the URL of the older protocol, if any."""

    backend: Backend
    request: Request
    caller: Caller
    region: str
    values: dict[str, Any]
    queue_path: str | None = None

    @property
    def queue_name(self) -> str:
        """Give the queue that the request is for."""
        url = self.values.get("QueueUrl") or self.queue_path
        if not url:
            raise SqsError("MissingParameter", "The request must contain the parameter QueueUrl.")
        account, _, name = urlsplit(url).path.strip("/").rpartition("/")
        if account not in ("", ACCOUNT) or not name:
            raise no_queue()
        return name

    def check(self, verb: Verb, queue: str | None) -> None:
        """Raise an SqsError if the caller may not do that, in the same words of queues that don't exist."""
        if not self.caller.may(verb, queue):
            raise SqsError("AccessDeniedException", f"This key may not {verb} here.", status=403)

    async def queue(self, verb: Verb, name: str | None = None) -> QueueView:
        """Give the queue that the request is for, or the one named, if the caller may do that with it."""
        name = name or self.queue_name
        self.check(verb, name)
        try:
            [known] = await self.backend.client.list_sqs_queues(name)
        except QueueNotFoundError as error:
            raise no_queue() from error
        if known.queue != name:
            raise no_queue()  # in SQS names differ by case, too
        return QueueView(known)

    def url_of(self, queue: str) -> str:
        """Give the URL of a queue, at the address that the request was sent to."""
        return f"{str(self.request.base_url).rstrip('/')}/{ACCOUNT}/{queue}"

    def arn_of(self, queue: str) -> str:
        """Give the ARN of a queue."""
        return arn_of(queue, self.region)
