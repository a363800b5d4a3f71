"""Whether answers are as the description of the routes says; every client of a running service asks this."""

from __future__ import annotations

import copy
from functools import cache
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from schemathesis.schemas import APIOperation
    from schemathesis.specs.openapi.schemas import OpenApiSchema


@cache
def _schema() -> OpenApiSchema:
    import schemathesis

    from spanmq_service.app import description

    # Clients must expect more members in an answer; here one that is not described is a fault.
    strict: dict[str, Any] = copy.deepcopy(description())
    for each in strict["components"]["schemas"].values():
        if "properties" in each:
            each["additionalProperties"] = False
    return schemathesis.openapi.from_dict(strict)


def check_described(response: httpx.Response) -> None:
    """Fail unless the status, the content type and the shape of an answer are those of the description."""
    operation = operation_of(response)
    if operation is None:
        return
    response.read()
    status = str(response.status_code)
    where = f"{operation.label} {status} {response.text[:500]}"
    responses = operation.definition.raw["responses"]
    assert status in responses, where
    assert response.headers["content-type"].partition(";")[0] in responses[status]["content"], where
    # Another request: a body that was sent in pieces can't be read again.
    request = httpx.Request(response.request.method, response.request.url)
    same = httpx.Response(
        response.status_code, headers=response.headers, content=response.content, request=request
    )
    same.elapsed = response.elapsed
    operation.validate_response(same)


def operation_of(response: httpx.Response) -> APIOperation[Any, Any, Any, Any] | None:
    """Return the operation that was asked for, None if the description has none like that."""
    method, path = response.request.method, response.request.url.path
    if method == "HEAD" or not path.startswith(("/v1/", "/health/", "/metrics")):
        return None
    found: APIOperation[Any, Any, Any, Any] | None = _schema().find_operation_by_path(method, path)
    return found
