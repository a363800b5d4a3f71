"""The endpoint: POST to the service's root or to a queue's URL, in either protocol."""

import base64
import json
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl
from uuid import uuid4

import msgspec
from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from spanmq import errors
from spanmq.model import AccessKey
from spanmq_service.backend import Backend
from spanmq_service.guard.access import check_is_ours, hung_up, whole_body
from spanmq_service.guard.caller import EVERYBODY, Caller, caller_of_key
from spanmq_service.guard.credentials import TtlCache
from spanmq_service.http.failure import STATUS_OF, Refusal, kind_of
from spanmq_service.http.request_json import RequestJson
from spanmq_service.sqs import message_actions, moves, protocol, queue_actions, signature
from spanmq_service.sqs.call import Call
from spanmq_service.sqs.refusal import SqsError, no_queue
from spanmq_service.sqs.signature import Signature
from spanmq_service.sqs.store import SqsQueue

logger = logging.getLogger("spanmq.service")

Values = dict[str, Any]
TARGET: Final = "AmazonSQS."
JSON_TYPE: Final = "application/x-amz-json-1.0"
_json: Final = RequestJson(dict[str, Any])


async def refuse(_: Call) -> Values:
    """Raise an SqsError: access is controlled by scopes of keys, not by permissions of accounts."""
    raise SqsError(
        "UnsupportedOperation",
        "A queue has no permissions for accounts: create a key with a scope (spanmq key create) instead.",
    )


ACTIONS: Final[dict[str, Callable[[Call], Awaitable[Values]]]] = {
    "AddPermission": refuse,
    "CancelMessageMoveTask": moves.cancel_message_move_task,
    "ChangeMessageVisibility": message_actions.change_message_visibility,
    "ChangeMessageVisibilityBatch": message_actions.change_message_visibility_batch,
    "CreateQueue": queue_actions.create_queue,
    "DeleteMessage": message_actions.delete_message,
    "DeleteMessageBatch": message_actions.delete_message_batch,
    "DeleteQueue": queue_actions.delete_queue,
    "GetQueueAttributes": queue_actions.get_queue_attributes,
    "GetQueueUrl": queue_actions.get_queue_url,
    "ListDeadLetterSourceQueues": queue_actions.list_dead_letter_source_queues,
    "ListMessageMoveTasks": moves.list_message_move_tasks,
    "ListQueueTags": queue_actions.list_queue_tags,
    "ListQueues": queue_actions.list_queues,
    "PurgeQueue": queue_actions.purge_queue,
    "ReceiveMessage": message_actions.receive_message,
    "RemovePermission": refuse,
    "SendMessage": message_actions.send_message,
    "SendMessageBatch": message_actions.send_message_batch,
    "SetQueueAttributes": queue_actions.set_queue_attributes,
    "StartMessageMoveTask": moves.start_message_move_task,
    "TagQueue": queue_actions.tag_queue,
    "UntagQueue": queue_actions.untag_queue,
}


class _Account(IntegerConvertor):
    # Python converts at most 4,300 digits; an account has twelve.
    regex = "[0-9]{1,20}"


register_url_convertor("account", _Account())


class Endpoint:
    """Answers requests."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        # By name in lower case.
        self._queues: TtlCache[SqsQueue] = TtlCache(backend.settings.token_cache, lambda _: None)
        backend.caches.append(self._queues)

    def routes(self) -> list[Route]:
        """Return the routes: the root, and the URLs of queues."""
        return [
            Route("/", self.answer, methods=["POST"]),
            Route("/{account:account}/{queue:path}", self.answer, methods=["POST", "GET"]),
            _SignedLink("/", self.answer, methods=["GET"]),
        ]

    async def answer(self, request: Request) -> Response:
        """Answer a request in the protocol that it uses."""
        request_id = str(uuid4())
        is_json = request.headers.get("x-amz-target", "").startswith(TARGET)
        try:
            _check_method(request)
            signed = await self._look_up(request)
            body = await whole_body(request)
            caller, region = self._identify(request, body, signed)
            await self._backend.gate.acquire(request.scope, caller, partial(hung_up, request))
            action, values = _read(request, body, is_json=is_json)
            if "queue" in request.path_params and protocol.takes(action, "QueueUrl"):
                values.setdefault("QueueUrl", _raw_path(request))
            call = Call(self._backend, self._queues, request, caller, region, values)
            protocol.check(action, values)
            result = await ACTIONS[action](call)
        except (SqsError, errors.SpanmqError, Refusal) as error:
            if isinstance(error, errors.QueueNotFoundError):
                # Dropped since it was looked up.
                self._queues.forget()
            return _fault(_error_of(error), request_id, is_json=is_json)
        if is_json:
            return Response(json.dumps(result, default=_blob), media_type=JSON_TYPE, headers=_id(request_id))
        return Response(
            protocol.render(action, result, request_id), media_type="text/xml", headers=_id(request_id)
        )

    async def _look_up(self, request: Request) -> tuple[Signature, AccessKey] | None:
        """Return the signature and its key, before the body is read: it may not be signed at all."""
        if not self._backend.settings.with_tokens:
            check_is_ours(request)
            return None
        claimed = signature.read(request.headers)
        key = await self._backend.credentials.find_key(claimed.access_key_id, request.scope)
        if key is None or key.secret is None:
            raise SqsError("InvalidClientTokenId", "The key is unknown, expired or revoked.", status=403)
        self._backend.gate.expect_signed(request.scope, claimed.access_key_id)
        return claimed, key

    def _identify(
        self, request: Request, body: bytes, signed: tuple[Signature, AccessKey] | None
    ) -> tuple[Caller, str]:
        if signed is None:
            return EVERYBODY, "us-east-1"
        claimed, key = signed
        signature.check(
            claimed,
            key.secret or "",
            method=request.method,
            url=str(request.url.replace(path=_raw_path(request))),
            headers=request.headers,
            body=body,
        )
        caller = caller_of_key(key)
        self._backend.gate.count(request.scope, caller)
        return caller, claimed.region


class _SignedLink(Route):
    """Refuses requests that are signed in their URL; the same path without a signature is a page."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http" or b"X-Amz-" not in scope["query_string"]:
            return Match.NONE, {}
        return super().matches(scope)


def _check_method(request: Request) -> None:
    if "X-Amz-Signature" in request.query_params:
        raise SqsError(
            "IncompleteSignature",
            "Presigned URLs are not supported: sign the request in its Authorization header.",
            status=403,
        )
    if request.method != "POST":
        raise SqsError("InvalidAction", "Send the request with POST.", status=405)


def _raw_path(request: Request) -> str:
    """Return the path as it was sent and signed: names of queues may contain escaped characters."""
    return request.scope.get("raw_path", b"").decode("latin-1") or request.url.path


def _read(request: Request, body: bytes, *, is_json: bool) -> tuple[str, Values]:
    if is_json:
        action = request.headers["x-amz-target"].removeprefix(TARGET)
        _check_action(action)
        try:
            values = _json.read(body or b"{}")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SqsError("SerializationException", "The body is not valid JSON.") from error
        if not isinstance(values, dict):
            raise SqsError("SerializationException", "The body is not a JSON object.")
        return action, _with_blobs(values)
    try:
        fields = [
            field
            for text in (request.url.query, body.decode())
            for field in parse_qsl(text, keep_blank_values=True, max_num_fields=1_000)
        ]
    except ValueError as error:
        raise SqsError("MalformedQueryString", "The body is not a form.") from error
    form = dict(fields)
    if len(form) < len(fields):
        names = [name for name, _ in fields]
        twice = next(name for name in names if names.count(name) > 1)
        raise SqsError("MalformedQueryString", f"The parameter {twice[:80]!r} occurs twice.")
    action = form.get("Action", "")
    _check_action(action)
    return action, protocol.parse(action, form)


def _check_action(action: str) -> None:
    if action not in ACTIONS:
        raise SqsError("InvalidAction", f"The action {action[:80]!r} is not valid for this endpoint.")


def _with_blobs(values: Values) -> Values:
    """Decode the base64 values in JSON: the binary values of attributes."""
    entries = values.get("Entries")
    for holder in (values, *(entries if isinstance(entries, list) else ())):
        if not isinstance(holder, dict):
            continue
        for name in ("MessageAttributes", "MessageSystemAttributes"):
            attributes = holder.get(name)
            for value in attributes.values() if isinstance(attributes, dict) else ():
                if isinstance(value, dict) and isinstance(text := value.get("BinaryValue"), str):
                    try:
                        value["BinaryValue"] = base64.b64decode(text, validate=True)
                    except ValueError as error:
                        raise SqsError(
                            "SerializationException", "A BinaryValue is not valid base64."
                        ) from error
    return values


def _error_of(error: SqsError | errors.SpanmqError | Refusal) -> SqsError:
    if isinstance(error, SqsError):
        return error
    if isinstance(error, Refusal):
        code = "RequestThrottled" if error.status_code in (429, 503) else "InvalidParameterValue"
        return SqsError(code, error.message, status=error.status_code, is_sender=error.status_code != 503)
    if isinstance(error, errors.QueueNotFoundError):
        return no_queue()
    status = STATUS_OF[kind_of(error)]
    if status == 429:
        return SqsError("RequestThrottled", error.message, status=status)
    if status < 500:
        return SqsError("InvalidParameterValue", error.message, status=400)
    logger.warning("sqs_failed error=%s message=%r", type(error).__name__, error.message)
    code = "ServiceUnavailable" if status == 503 else "InternalFailure"
    return SqsError(code, "The service could not process the request.", status=status, is_sender=False)


def _fault(fault: SqsError, request_id: str, *, is_json: bool) -> Response:
    headers = {**_id(request_id), "x-amzn-query-error": f"{fault.query_code};{fault.side}"}
    if fault.status in (429, 503):
        headers["Retry-After"] = "1"
    if is_json:
        body = json.dumps({"__type": f"com.amazonaws.sqs#{fault.json_code}", "message": fault.message})
        return Response(body, fault.status, headers, JSON_TYPE)
    return Response(protocol.render_fault(fault, request_id), fault.status, headers, "text/xml")


def _id(request_id: str) -> dict[str, str]:
    return {"x-amzn-RequestId": request_id}


def _blob(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} is no JSON")
