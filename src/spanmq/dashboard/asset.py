"""Files that pages use: a style sheet, a script and a picture."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

OURS: Final = Path(__file__).parent / "static"
# By the name in the URL: no other file is served.
FILES: Final = {"style.css": "text/css", "live.js": "text/javascript", "icon.svg": "image/svg+xml"}
FOR_EVER: Final = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class Asset:
    """A file as it is sent."""

    content: bytes
    packed: bytes
    media_type: str
    version: str


@cache
def asset(name: str) -> Asset:
    """Read a file, once."""
    content = (OURS / name).read_bytes()
    return Asset(content, gzip.compress(content), FILES[name], hashlib.sha256(content).hexdigest()[:12])


def address_of(name: str) -> str:
    """Return the URL of a file, which changes with its content: so it may be cached indefinitely."""
    return f"/assets/{name}?v={asset(name).version}"


def send(request: Request, name: str) -> Response | None:
    """Return a file; None if it does not exist."""
    if name not in FILES:
        return None
    found = asset(name)
    is_packed = "gzip" in request.headers.get("accept-encoding", "")
    headers = {"Vary": "Accept-Encoding"}
    headers["Cache-Control"] = FOR_EVER if request.query_params.get("v") == found.version else "no-cache"
    if is_packed:
        headers["Content-Encoding"] = "gzip"
    return Response(found.packed if is_packed else found.content, 200, headers, found.media_type)
