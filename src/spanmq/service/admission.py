"""Admission of one request, and the budget of requests whose client is unknown."""

import ipaddress
from collections import Counter
from functools import lru_cache
from typing import Final

from starlette.types import Scope

from spanmq.service.failure import Refusal

UNSIGNED_BYTES_MAX: Final = 64 * 1024 * 1024


class Arrivals:
    """Counts requests of unknown clients: those that arrive, and the anonymous ones that wait for them."""

    def __init__(self, anonymous_max: int) -> None:
        self.arriving = 0
        self.anonymous = 0
        self._anonymous_max = anonymous_max
        self._bytes = 0
        self._anonymous_of: Counter[str] = Counter()
        self._bytes_of: Counter[str] = Counter()

    def begin(self, who: str) -> None:
        """Count a request that waits for an unknown client; an address or a key may have half of them."""
        most = self._anonymous_max
        if self.anonymous >= most or self._anonymous_of[who] >= (most + 1) // 2:
            raise overloaded()
        self.arriving -= 1
        self.anonymous += 1
        self._anonymous_of[who] += 1

    def grow(self, who: str, size: int) -> None:
        """Count bytes that an unknown client has sent; an address or a key may have half of them."""
        self._bytes += size
        self._bytes_of[who] += size
        if self._bytes > UNSIGNED_BYTES_MAX or self._bytes_of[who] > UNSIGNED_BYTES_MAX // 2:
            raise overloaded()

    def end(self, who: str, size: int) -> None:
        """Release what a request of an unknown client took; it counts as arriving again."""
        self.arriving += 1
        self.anonymous -= 1
        self._bytes -= size
        for counter, by in ((self._anonymous_of, 1), (self._bytes_of, size)):
            counter[who] -= by
            if not counter[who]:
                del counter[who]


class Admission:
    """One request: the budget in which it counts, and the bytes that its body may have."""

    __slots__ = ("_arrivals", "_is_anonymous", "_size", "body_bytes_max", "caller", "is_exempt", "who")

    def __init__(self, arrivals: Arrivals, scope: Scope, *, is_exempt: bool, body_bytes_max: int) -> None:
        self._arrivals = arrivals
        self._is_anonymous = False
        self._size = 0
        self.is_exempt = is_exempt
        self.body_bytes_max = body_bytes_max
        # The address, or the access key that the request claims to be signed with.
        self.who = address_of(scope)
        self.caller: str | None = None

    def wait_for_client(self) -> None:
        """Move to the anonymous budget unless the client is known; raises 503 if that is full."""
        if self.caller is None and not self._is_anonymous and not self.is_exempt:
            self._arrivals.begin(self.who)
            self._is_anonymous = True

    def grow(self, size: int) -> None:
        """Count bytes of the body; raises 413 if it is too large, 503 if those of all clients are."""
        self._size += size
        if self._is_anonymous:
            self._arrivals.grow(self.who, size)
        if self._size > self.body_bytes_max:
            raise too_large(self.body_bytes_max)

    def end_anonymous(self) -> None:
        """Leave the anonymous budget, if the request is in it."""
        if self._is_anonymous:
            self._is_anonymous = False
            self._arrivals.end(self.who, self._size)


def too_large(most: int) -> Refusal:
    """Return the refusal of a body of more than `most` bytes."""
    return Refusal(413, "request_too_large", f"this request may have {most:,} bytes at most")


def overloaded() -> Refusal:
    """Return the refusal of a request that exceeds the service's capacity."""
    return Refusal(503, "overloaded", "the service is overloaded", retry_after=1)


def address_of(scope: Scope) -> str:
    """Return the address of a request; for IPv6 the network, within which a client may choose addresses."""
    client = scope.get("client")
    return "" if client is None else _network(client[0])


@lru_cache(maxsize=1024)
def _network(host: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))
