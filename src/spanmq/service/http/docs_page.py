"""The page that describes the routes for people: Swagger UI, whose files `fastapi_offline` has."""

import re
from base64 import b64encode
from hashlib import sha256
from typing import Final

from fastapi.openapi.docs import get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

FILES: Final = "docs-files"


def routes() -> list[BaseRoute]:
    """Return the routes of the page and its files; its links are relative, for proxies that add a prefix."""
    page = get_swagger_ui_html(
        openapi_url="openapi.json",
        title="spanmq: HTTP interface",
        swagger_js_url=f"{FILES}/swagger-ui-bundle.js",
        swagger_css_url=f"{FILES}/swagger-ui.css",
        swagger_favicon_url=f"{FILES}/favicon.png",
    )
    html = bytes(page.body).decode()
    [script] = re.findall("<script>(.*?)</script>", html, re.DOTALL)
    allowed = b64encode(sha256(script.encode()).digest()).decode()
    headers = {
        # The page's own few lines by their hash; pictures that its style sheet holds.
        "Content-Security-Policy": (
            f"default-src 'none'; script-src 'self' 'sha256-{allowed}'; style-src 'self'; "
            "img-src 'self' data:; connect-src 'self'; form-action 'none'; base-uri 'none'; "
            "frame-ancestors 'none'"
        ),
        "Referrer-Policy": "same-origin",
    }

    async def show(_: Request) -> Response:
        return HTMLResponse(html, headers=headers)

    files = StaticFiles(packages=[("fastapi_offline", "static")])
    return [Route("/docs", show, methods=["GET"]), Mount(f"/{FILES}", files)]
