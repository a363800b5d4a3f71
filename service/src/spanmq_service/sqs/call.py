"""One request, as the actions see it: the caller, its address, and the queues that it may access."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from starlette.requests import Request

from spanmq.errors import QueueNotFoundError
from spanmq.model import folded
from spanmq_service.backend import Backend
from spanmq_service.guard.caller import Caller, Verb, caller_of_key
from spanmq_service.guard.credentials import TtlCache
from spanmq_service.http.failure import Refusal
from spanmq_service.sqs import store
from spanmq_service.sqs.queue import ACCOUNT, QueueView, arn_of, queue_of_name
from spanmq_service.sqs.refusal import SqsError, no_queue


@dataclass(frozen=True, slots=True)
class Call:
    """An action with its values."""

    backend: Backend
    queues: TtlCache[store.SqsQueue]
    request: Request
    caller: Caller
    region: str
    values: dict[str, Any]

    @property
    def queue_name(self) -> str:
        """Return the name in SQS of the queue that the request is for."""
        url = self.values.get("QueueUrl")
        if not url:
            raise SqsError("MissingParameter", "The request must contain the parameter QueueUrl.")
        try:
            account, _, name = urlsplit(url).path.strip("/").rpartition("/")
        except ValueError as error:
            raise no_queue() from error
        if account not in ("", ACCOUNT) or not name:
            raise no_queue()
        return unquote(name)

    def check(self, verb: Verb, queue: str | None) -> None:
        """Raise an SqsError if the caller lacks the verb, with the same message for queues that do not exist."""
        if not self.caller.may(verb, queue):
            raise SqsError("AccessDeniedException", f"This key may not {verb} here.", status=403)

    async def still_may(self, verb: Verb, queue: str) -> bool:
        """Return whether the key of a waiting request is still valid and still allows the verb."""
        if not self.backend.settings.with_tokens:
            return True
        try:
            key = await self.backend.credentials.find_key(self.caller.name, self.request.scope)
        except Refusal:
            return False
        return key is not None and caller_of_key(key).may(verb, queue)

    async def queue(self, verb: Verb, name: str | None = None) -> QueueView:
        """Return the queue of the request, or the one with that name in SQS, if the caller has the verb."""
        name = name or self.queue_name
        queue = queue_of_name(name)
        self.check(verb, queue)

        async def find() -> store.SqsQueue:
            [known] = await store.list_queues(self.backend.client, queue)
            return known

        try:
            known = await self.queues.get(folded(queue), find)
        except QueueNotFoundError as error:
            raise no_queue() from error
        view = QueueView(known)
        if view.sqs_name != name:
            raise no_queue()  # in SQS, names are case-sensitive
        return view

    def url_of(self, name: str) -> str:
        """Return the URL of a queue, at the address that the request was sent to."""
        return f"{str(self.request.base_url).rstrip('/')}/{ACCOUNT}/{quote(name, safe='')}"

    def arn_of(self, name: str) -> str:
        """Return the ARN of a queue."""
        return arn_of(name, self.region)
