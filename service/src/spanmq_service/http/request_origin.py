"""Checks whether a request comes from this machine, and whether from a page of another site."""

import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit


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
