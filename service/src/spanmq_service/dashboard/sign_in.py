"""Signing in with a token's secret, and out."""

from typing import Final

from starlette.responses import Response

from spanmq_service.dashboard.page import Page, go, show
from spanmq_service.dashboard.visit import SESSION, SESSION_SECONDS, Visit

SECRET_MAX: Final = 200


async def ask(visit: Visit) -> Response:
    """Show the form, unless sign-in is not needed."""
    if visit.caller is not None:
        return go(_next_of(visit))
    return show(visit, "sign_in.html", next=_next_of(visit), is_wrong=False)


async def sign_in(visit: Visit) -> Response:
    """Open a session for the token, and redirect to the requested page."""
    fields = await visit.form()
    secret = fields.get("token", "").strip()[:SECRET_MAX]
    key = await visit.backend.credentials.open_session(secret, SESSION_SECONDS, visit.request.scope)
    if key is None:
        # Not the secret: the typed text may be another one.
        return show(visit, "sign_in.html", 401, next=_next_of(visit), is_wrong=True)
    if visit.key is not None:
        await visit.backend.credentials.close_session(visit.key)
    response = go(_next_of(visit))
    visit.remember(response, SESSION, key, seconds=SESSION_SECONDS)
    return response


async def sign_out(visit: Visit) -> Response:
    """End the session."""
    await visit.form()
    if visit.key is not None:
        await visit.backend.credentials.close_session(visit.key)
    response = go("/sign-in")
    visit.remember(response, SESSION, None)
    return response


def _next_of(visit: Visit) -> str:
    # Only paths on this host: browsers treat //elsewhere and /\elsewhere as other hosts.
    wanted = visit.text("next", "/")
    is_here = wanted.startswith("/") and not wanted.startswith(("//", "/\\"))
    return wanted if is_here and wanted.isprintable() else "/"


PAGES: Final = (
    Page("/sign-in", ask, None),
    Page("/sign-in", sign_in, None, method="POST"),
    Page("/sign-out", sign_out, None, method="POST"),
)
