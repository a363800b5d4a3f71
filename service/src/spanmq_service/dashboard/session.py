"""What a browser keeps in cookies: its session, opened with a token's secret, and the appearance of pages."""

from typing import Final

from starlette.responses import Response

from spanmq_service.dashboard.page import Page, go, show, show_form
from spanmq_service.dashboard.page_request import (
    REFRESH,
    REFRESHES,
    SESSION,
    SESSION_SECONDS,
    THEME,
    THEMES,
    PageRequest,
)

SECRET_MAX: Final = 200
APPEARANCE_SECONDS: Final = 365 * 86_400


async def ask(request: PageRequest) -> Response:
    """Show the form, unless sign-in is not needed."""
    if request.caller is not None:
        return go(_next_of(request))
    return show(request, "sign_in.html", next=_next_of(request), is_wrong=False)


async def sign_in(request: PageRequest) -> Response:
    """Open a session for the token, and redirect to the requested page."""
    fields = await request.form()
    secret = fields.get("token", "").strip()[:SECRET_MAX]
    key = await request.backend.credentials.open_session(secret, SESSION_SECONDS, request.http.scope)
    if key is None:
        # Not the secret: the typed text may be another one.
        return show(request, "sign_in.html", 401, next=_next_of(request), is_wrong=True)
    if request.key is not None:
        await request.backend.credentials.close_session(request.key)
    response = go(_next_of(request))
    request.remember(response, SESSION, key, seconds=SESSION_SECONDS)
    return response


async def sign_out(request: PageRequest) -> Response:
    """End the session."""
    await request.form()
    if request.key is not None:
        await request.backend.credentials.close_session(request.key)
    response = go("/sign-in")
    request.remember(response, SESSION, None)
    return response


async def ask_appearance(request: PageRequest) -> Response:
    """Show the choices."""
    is_saved = request.text("done") == "saved"
    return show_form(request, "appearance.html", themes=THEMES, refreshes=REFRESHES, is_saved=is_saved)


async def save_appearance(request: PageRequest) -> Response:
    """Remember the choices in this browser; one that does not exist changes nothing."""
    fields = await request.form()
    response = go("/appearance?done=saved")
    for name, choices in ((THEME, THEMES), (REFRESH, REFRESHES)):
        if (chosen := fields.get(name, "")) in choices:
            request.remember(response, name, chosen, seconds=APPEARANCE_SECONDS)
    return response


def _next_of(request: PageRequest) -> str:
    # Only paths on this host: browsers treat //elsewhere and /\elsewhere as other hosts.
    path = request.text("next", "/")
    is_here = path.startswith("/") and not path.startswith(("//", "/\\"))
    return path if is_here and path.isprintable() else "/"


PAGES: Final = (
    Page("/sign-in", ask, None),
    Page("/sign-in", sign_in, None, method="POST"),
    Page("/sign-out", sign_out, None, method="POST"),
    Page("/appearance", ask_appearance, None),
    Page("/appearance", save_appearance, None, method="POST"),
)
