"""The appearance of pages and the interval of their updates, chosen by a browser's user: kept in cookies."""

from typing import Final

from starlette.responses import Response

from spanmq_service.dashboard.page import Page, go, show_form
from spanmq_service.dashboard.visit import REFRESH, REFRESHES, THEME, THEMES, Visit

KEPT_SECONDS: Final = 365 * 86_400


async def ask(visit: Visit) -> Response:
    """Show the choices."""
    is_saved = visit.text("done") == "saved"
    return show_form(visit, "appearance.html", themes=THEMES, refreshes=REFRESHES, is_saved=is_saved)


async def save(visit: Visit) -> Response:
    """Remember the choices in this browser; one that does not exist changes nothing."""
    fields = await visit.form()
    response = go("/appearance?done=saved")
    for name, choices in ((THEME, THEMES), (REFRESH, REFRESHES)):
        if (chosen := fields.get(name, "")) in choices:
            visit.remember(response, name, chosen, seconds=KEPT_SECONDS)
    return response


PAGES: Final = (
    Page("/appearance", ask, None),
    Page("/appearance", save, None, method="POST"),
)
