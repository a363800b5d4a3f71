"""Where a request comes from: its address, whether that is this machine, and whether a page of another site sent it."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    # The settings of the command need this module, also where the service's libraries are missing.
    from starlette.types import Scope


def is_from_elsewhere(headers: Mapping[str, str]) -> bool:
    """Return whether a browser says that a page of another site made the request; others say nothing."""
    origin = headers.get("origin")
    if origin is not None:
        try:
            if urlsplit(origin).netloc != headers.get("host"):
                return True
        except ValueError:
            return True
    return headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=256)
def is_named_here(host: str | None) -> bool:
    """Return whether a request's Host, with its port, is a name that means this machine alone.

    None, a request without one, is from no browser: a foreign page can't have sent it.
    """
    if host is None:
        return True
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False


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
