"""A trace span for each request, as an ASGI middleware."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spanmq import tracing


def is_traced(scope: Scope) -> bool:
    """Return whether a request gets a span: periodic checks get none."""
    path: str = scope.get("path", "")
    return scope["type"] == "http" and not path.startswith("/health/") and path != "/metrics"


def traced(app: ASGIApp) -> ASGIApp:
    """Return the application with a span around each request, if tracing is enabled."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if not tracing.is_on() or not is_traced(scope):
            await app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        with tracing.serving(scope["method"], scope["path"], headers) as span:

            async def forward(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.answered(getattr(scope.get("route"), "path", None), message["status"])
                await send(message)

            await app(scope, receive, forward)

    return serve
