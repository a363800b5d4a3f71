"""Recurring messages: their times, and forms that create, pause, resume and remove them."""

from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Final

from starlette.responses import Response

from spanmq.client import AsyncClient
from spanmq.errors import InvalidArgumentError
from spanmq.model import Schedule
from spanmq_service.dashboard import typed
from spanmq_service.dashboard.listing import Keys, listing_of
from spanmq_service.dashboard.page import Page, go, show, show_form
from spanmq_service.dashboard.visit import Visit
from spanmq_service.dashboard.wording import address
from spanmq_service.routes.schedules import LISTED_BODY_BYTES_MAX, changing

SHOWN_MAX: Final = 500
NEVER: Final = datetime.max.replace(tzinfo=UTC)
KEYS: Final[Keys[Schedule]] = {
    "name": (lambda each: each.name.lower(), False),
    "queue": (lambda each: each.queue.lower(), False),
    "next": (lambda each: NEVER if each.is_paused else each.next_at or NEVER, False),
    "last": (lambda each: each.last_at or datetime.min.replace(tzinfo=UTC), True),
}
NOTICES: Final = {
    "made": "The schedule was saved.",
    "paused": "Paused: it sends nothing until you resume it.",
    "resumed": "Resumed: it sends at its next time.",
    "ran": "Its message was sent once; its times stay as they are.",
    "ended": "Deleted. Messages that it has sent stay.",
}


async def answer(visit: Visit) -> Response:
    """Show the recurring messages of queues that the visitor may look at."""
    assert visit.caller is not None
    queues = await visit.backend.queues_of(visit.caller)
    found = await visit.backend.client.schedules.list(queues=queues, body_bytes_max=LISTED_BODY_BYTES_MAX)
    listing = listing_of(
        visit, "/schedules", found, KEYS, lambda each: f"{each.name} {each.queue} {each.cron}"
    )
    return show(
        visit,
        "schedules.html",
        listing=listing,
        schedules=listing.rows[:SHOWN_MAX],
        n_found=len(listing.rows),
        notice=NOTICES.get(visit.text("done")),
        may_make="manage" in visit.caller.verbs,
    )


async def ask(visit: Visit) -> Response:
    """Show the form of a new one."""
    return show_form(visit, "schedule.html", fields={"queue": visit.text("queue")})


async def make(visit: Visit) -> Response:
    """Create a schedule, or change the one with the same name."""
    fields = await visit.form()
    name, queue = fields.get("name", "").strip(), fields.get("queue", "").strip()
    visit.check("manage", queue)
    try:
        async with _held(visit, name, may_be_new=True) as client:
            await client.schedules.create(
                name,
                queue,
                fields.get("cron", "").strip(),
                typed.body(fields.get("body", "")),
                time_zone=fields.get("time_zone", "").strip() or "UTC",
                group=fields.get("group", "").strip() or None,
                catch_up=fields.get("catch_up") == "yes",
            )
    except InvalidArgumentError as error:
        return show_form(visit, "schedule.html", error.message, fields=fields)
    return go(address("/schedules", done="made"))


async def pause(visit: Visit) -> Response:
    """Pause a schedule: times from now on are skipped."""
    name = (await visit.form()).get("name", "")
    async with _held(visit, name) as client:
        await client.schedules.pause(name)
    return go(address("/schedules", done="paused"))


async def resume(visit: Visit) -> Response:
    """Fire again from now on."""
    name = (await visit.form()).get("name", "")
    async with _held(visit, name) as client:
        await client.schedules.resume(name)
    return go(address("/schedules", done="resumed"))


async def run(visit: Visit) -> Response:
    """Send its message once now."""
    name = (await visit.form()).get("name", "")
    async with _held(visit, name) as client:
        await client.schedules.run(name)
    return go(address("/schedules", done="ran"))


async def ask_end(visit: Visit) -> Response:
    """Ask whether it is to end."""
    name = visit.text("name")
    async with _held(visit, name):
        return show(visit, "schedule_end.html", name=name)


async def end(visit: Visit) -> Response:
    """End it."""
    name = (await visit.form()).get("name", "")
    async with _held(visit, name) as client:
        await client.schedules.delete(name)
    return go(address("/schedules", done="ended"))


def _held(visit: Visit, name: str, *, may_be_new: bool = False) -> AbstractAsyncContextManager[AsyncClient]:
    """Return a transaction's client, for a block, for a schedule that the caller may change."""
    assert visit.caller is not None
    return changing(visit.backend.client, visit.caller, name, may_be_new=may_be_new)


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
