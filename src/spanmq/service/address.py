"""The address of a client, as far as limits tell clients apart."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

from starlette.types import Scope


def address_of(scope: Scope) -> str:
    """Return the address of a request; of IPv6 the network, within which a client may choose addresses."""
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
