"""Recurring messages: their times, and forms that create, pause, resume and remove them."""

from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Final

from starlette.responses import Response

from spanmq.client import AsyncClient
from spanmq.errors import InvalidArgumentError
from spanmq.model import Schedule
from spanmq_service.dashboard import form_values
from spanmq_service.dashboard.formatting import address
from spanmq_service.dashboard.listing import Keys, listing_of
from spanmq_service.dashboard.page import Page, go, show, show_form
from spanmq_service.dashboard.page_request import PageRequest
from spanmq_service.routes.schedules import LISTED_BODY_BYTES_MAX, changing

SHOWN_MAX: Final = 500
NEVER: Final = datetime.max.replace(tzinfo=UTC)
KEYS: Final[Keys[Schedule]] = {
    "name": (lambda schedule: schedule.name.lower(), False),
    "queue": (lambda schedule: schedule.queue.lower(), False),
    "next": (lambda schedule: NEVER if schedule.is_paused else schedule.next_at or NEVER, False),
    "last": (lambda schedule: schedule.last_at or datetime.min.replace(tzinfo=UTC), True),
}
NOTICES: Final = {
    "made": "The schedule was saved.",
    "paused": "Paused: it sends nothing until you resume it.",
    "resumed": "Resumed: it sends at its next time.",
    "ran": "Its message was sent once; its times stay as they are.",
    "ended": "Deleted. Messages that it has sent stay.",
}


async def answer(request: PageRequest) -> Response:
    """Show the recurring messages of queues that the visitor may look at."""
    assert request.caller is not None
    queues = await request.backend.queues_of(request.caller)
    schedules = await request.backend.client.schedules.list(
        queues=queues, body_bytes_max=LISTED_BODY_BYTES_MAX
    )
    listing = listing_of(
        request,
        "/schedules",
        schedules,
        KEYS,
        lambda schedule: f"{schedule.name} {schedule.queue} {schedule.cron}",
    )
    return show(
        request,
        "schedules.html",
        listing=listing,
        schedules=listing.rows[:SHOWN_MAX],
        n_found=len(listing.rows),
        notice=NOTICES.get(request.text("done")),
        may_make="manage" in request.caller.verbs,
    )


async def ask(request: PageRequest) -> Response:
    """Show the form of a new one."""
    return show_form(request, "schedule.html", fields={"queue": request.text("queue")})


async def make(request: PageRequest) -> Response:
    """Create a schedule, or change the one with the same name."""
    fields = await request.form()
    name, queue = fields.get("name", "").strip(), fields.get("queue", "").strip()
    request.check("manage", queue)
    try:
        async with _held(request, name, may_be_new=True) as client:
            await client.schedules.create(
                name,
                queue,
                fields.get("cron", "").strip(),
                form_values.body(fields.get("body", "")),
                time_zone=fields.get("time_zone", "").strip() or "UTC",
                group=fields.get("group", "").strip() or None,
                catch_up=fields.get("catch_up") == "yes",
            )
    except InvalidArgumentError as error:
        return show_form(request, "schedule.html", error.message, fields=fields)
    return go(address("/schedules", done="made"))


async def pause(request: PageRequest) -> Response:
    """Pause a schedule: times from now on are skipped."""
    name = (await request.form()).get("name", "")
    async with _held(request, name) as client:
        await client.schedules.pause(name)
    return go(address("/schedules", done="paused"))


async def resume(request: PageRequest) -> Response:
    """Fire again from now on."""
    name = (await request.form()).get("name", "")
    async with _held(request, name) as client:
        await client.schedules.resume(name)
    return go(address("/schedules", done="resumed"))


async def run(request: PageRequest) -> Response:
    """Send its message once now."""
    name = (await request.form()).get("name", "")
    async with _held(request, name) as client:
        await client.schedules.run(name)
    return go(address("/schedules", done="ran"))


async def ask_end(request: PageRequest) -> Response:
    """Ask whether it is to end."""
    name = request.text("name")
    async with _held(request, name):
        return show(request, "schedule_end.html", name=name)


async def end(request: PageRequest) -> Response:
    """End it."""
    name = (await request.form()).get("name", "")
    async with _held(request, name) as client:
        await client.schedules.delete(name)
    return go(address("/schedules", done="ended"))


def _held(
    request: PageRequest, name: str, *, may_be_new: bool = False
) -> AbstractAsyncContextManager[AsyncClient]:
    """Return a transaction's client, for a block, for a schedule that the caller may change."""
    assert request.caller is not None
    return changing(request.backend.client, request.caller, name, may_be_new=may_be_new)


PAGES: Final = (
    Page("/schedules", answer),
    Page("/schedules/new", ask, "manage"),
    Page("/schedules/new", make, "manage", method="POST"),
    Page("/schedules/pause", pause, "manage", method="POST"),
    Page("/schedules/resume", resume, "manage", method="POST"),
    Page("/schedules/run", run, "manage", method="POST"),
    Page("/schedules/end", ask_end, "manage"),
    Page("/schedules/end", end, "manage", method="POST"),
)
