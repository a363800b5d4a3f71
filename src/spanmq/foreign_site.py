"""Requests that a page of another site lets a browser make: browsers say so."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit


def is_from_elsewhere(headers: Mapping[str, str]) -> bool:
    """Tell whether a request is that of another site's page; what is no browser says nothing of it."""
    origin = headers.get("origin")
    if origin is not None:
        try:
            if urlsplit(origin).netloc != headers.get("host"):
                return True
        except ValueError:
            return True
    return headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")
