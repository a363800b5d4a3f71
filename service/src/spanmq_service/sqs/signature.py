"""Signature V4: its key, and whether it is valid. botocore computes the expected signature."""

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from spanmq_service.sqs.refusal import SqsError

HASH: Final = "x-amz-content-sha256"
SKEW: Final = timedelta(minutes=15)
_HEADER: Final = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/\s,]{1,128})/(?P<date>\d{8})/(?P<region>[\w-]+)/(?P<service>\w+)"
    r"/aws4_request, ?SignedHeaders=(?P<signed>[\w;-]+), ?Signature=(?P<signature>[0-9a-f]{64})"
)


@dataclass(frozen=True, slots=True)
class Signature:
    """The parts of a request's signature."""

    access_key_id: str
    region: str
    service: str
    at: str
    signed: tuple[str, ...]
    value: str


def read(headers: Mapping[str, str], now: datetime | None = None) -> Signature:
    """Parse the signature of a request; raises an SqsError if it is missing, expired or from the future."""
    match = _HEADER.fullmatch(headers.get("authorization", "").strip())
    at = headers.get("x-amz-date", "")
    if match is None:
        raise SqsError("MissingAuthenticationToken", "The request has no Signature V4.", status=403)
    try:
        moment = datetime.strptime(at, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError as error:
        raise SqsError(
            "IncompleteSignature", "X-Amz-Date is missing or not a valid time.", status=403
        ) from error
    if at[:8] != match["date"] or abs((now or datetime.now(UTC)) - moment) > SKEW:
        raise SqsError(
            "InvalidSignatureException",
            "The signature has expired, or its time is in the future.",
            status=403,
        )
    signed = tuple(match["signed"].split(";"))
    if "host" not in signed or match["service"] != "sqs":
        raise SqsError("InvalidSignatureException", "Host must be signed, for the service sqs.", status=403)
    # X-Amz-Target names the action: if it were not signed, it could turn a signed request into another one.
    for name in headers:
        if name.lower().startswith("x-amz-") and name.lower() not in signed:
            raise SqsError("InvalidSignatureException", f"The header {name[:80]} must be signed.", status=403)
    return Signature(match["key"], match["region"], match["service"], at, signed, match["signature"])


def check(
    signature: Signature, secret: str, *, method: str, url: str, headers: Mapping[str, str], body: bytes
) -> None:
    """Raise an SqsError unless the request was signed with this secret."""
    # botocore takes the hash in this header for the body's; some SDKs send it.
    if headers.get(HASH, digest := sha256(body).hexdigest()) != digest:
        raise SqsError("InvalidSignatureException", f"The header {HASH} is not the body's hash.", status=403)
    signed = {name: headers[name] for name in signature.signed if name in headers}
    request = AWSRequest(method=method, url=url, headers=signed, data=body)
    request.context["timestamp"] = signature.at
    author = SigV4Auth(Credentials(signature.access_key_id, secret), signature.service, signature.region)
    canonical = author.canonical_request(request)
    expected = author.signature(author.string_to_sign(request, canonical), request)
    if not hmac.compare_digest(expected, signature.value):
        raise SqsError(
            "InvalidSignatureException",
            "The request signature does not match: check the secret access key and the endpoint.",
            status=403,
        )
