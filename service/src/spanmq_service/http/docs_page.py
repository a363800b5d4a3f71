"""The page that describes the routes for people: Swagger UI, whose files `openapi_ui_bundles` has."""

from base64 import b64encode
from hashlib import sha256
from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

FILES: Final = "docs-files"
SCRIPT: Final = """
SwaggerUIBundle({
  url: "openapi.json", dom_id: "#description", deepLinking: true, showExtensions: true, showCommonExtensions: true
})
"""
# Its links are relative, for proxies that add a prefix.
PAGE: Final = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>spanmq: HTTP interface</title>
<link rel="stylesheet" href="{FILES}/swagger-ui.css">
<link rel="icon" href="{FILES}/favicon-32x32.png">
</head>
<body>
<div id="description"></div>
<script src="{FILES}/swagger-ui-bundle.js"></script>
<script>{SCRIPT}</script>
</body>
</html>
"""
# The page's own script by its hash; pictures that its style sheet holds.
HEADERS: Final = {
    "Content-Security-Policy": (
        f"default-src 'none'; script-src 'self' 'sha256-{b64encode(sha256(SCRIPT.encode()).digest()).decode()}'; "
        "style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'none'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "Referrer-Policy": "same-origin",
}


def routes() -> list[BaseRoute]:
    """Return the routes of the page and its files."""

    async def show(_: Request) -> Response:
        return HTMLResponse(PAGE, headers=HEADERS)

    files = StaticFiles(packages=[("openapi_ui_bundles", "swagger_ui/vendor")])
    return [Route("/docs", show, methods=["GET"]), Mount(f"/{FILES}", files)]
