"""This machine's own names."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=256)
def is_named_here(host: str | None) -> bool:
    """Tell whether a request's Host, with its port, is a name by which this machine alone is meant.

    None, a request without one, is from no browser: a foreign page can't have sent it.
    """
    if host is None:
        return True
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False
