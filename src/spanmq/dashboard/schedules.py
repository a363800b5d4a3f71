"""Recurring messages: their times, and forms that create, pause, resume and remove them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, get_args

from starlette.responses import Response

from spanmq.client import AsyncClient
from spanmq.dashboard import typed
from spanmq.dashboard.page import Page, go, show
from spanmq.dashboard.visit import RefusedError, Visit, forbidden
from spanmq.dashboard.wording import address
from spanmq.errors import InvalidArgumentError, NotFoundError
from spanmq.model import Schedule
from spanmq.service.caller import Verb

SHOWN_MAX: Final = 500
NOTICES: Final = {
    "made": "The schedule was saved.",
    "paused": "Paused: it sends nothing until you resume it.",
    "resumed": "Resumed: it sends at its next time.",
    "ended": "Deleted. Messages that it has sent stay.",
}


async def answer(visit: Visit) -> Response:
    """Show the recurring messages of queues that the visitor may look at."""
    found = [each for each in await visit.behind.client.schedules.list() if visit.may("look", each.queue)]
    return show(
        visit,
        "schedules.html",
        schedules=found[:SHOWN_MAX],
        n_found=len(found),
        notice=NOTICES.get(visit.text("done")),
        may_make="manage" in visit.caller.verbs if visit.caller is not None else False,
    )


async def ask(visit: Visit) -> Response:
    """Show the form of a new one."""
    return show(visit, "schedule.html", fields={"queue": visit.text("queue")}, problem=None)


async def make(visit: Visit) -> Response:
    """Create a schedule, or change the one with the same name."""
    fields = await visit.form()
    name, queue = fields.get("name", "").strip(), fields.get("queue", "").strip()
    if not visit.may("manage", queue):
        raise forbidden("manage", queue)
    try:
        async with _held(visit, name) as (client, _):
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
        return show(visit, "schedule.html", 422, fields=fields, problem=error.message)
    return go(address("/schedules", done="made"))


async def pause(visit: Visit) -> Response:
    """Pause a schedule: times from now on are skipped."""
    fields = await visit.form()
    async with _held(visit, fields.get("name", ""), is_needed=True) as (client, schedule):
        await client.schedules.pause(schedule)
    return go(address("/schedules", done="paused"))


async def resume(visit: Visit) -> Response:
    """Fire again from now on."""
    fields = await visit.form()
    async with _held(visit, fields.get("name", ""), is_needed=True) as (client, schedule):
        await client.schedules.resume(schedule)
    return go(address("/schedules", done="resumed"))


async def ask_end(visit: Visit) -> Response:
    """Ask whether it is to end."""
    async with _held(visit, visit.text("name"), is_needed=True) as (_, name):
        return show(visit, "schedule_end.html", name=name)


async def end(visit: Visit) -> Response:
    """End it."""
    fields = await visit.form()
    async with _held(visit, fields.get("name", ""), is_needed=True) as (client, name):
        await client.schedules.delete(name)
    return go(address("/schedules", done="ended"))


@asynccontextmanager
async def _held(
    visit: Visit, name: str, *, is_needed: bool = False
) -> AsyncIterator[tuple[AsyncClient, str]]:
    """Yield a transaction's client for a schedule that the caller may change.

    As in the service, a schedule of a queue on which the caller has no right does not exist, but its name is
    taken. A schedule that does not exist is refused only if it `is_needed`.
    """
    async with visit.behind.client.transaction() as client:
        found = _named(await client.schedules.list(), name)
        is_seen = found is not None and any(visit.may(verb, found.queue) for verb in get_args(Verb))
        if is_needed and not is_seen:
            raise NotFoundError(f"schedule {name!r} does not exist", code="schedule_not_found")
        if found is not None and not visit.may("manage", found.queue):
            if is_needed:
                raise forbidden("manage", found.queue)
            raise RefusedError(403, "Not yours", f"Your token may not change schedule {name!r}.")
        yield client, name


def _named(schedules: list[Schedule], name: str) -> Schedule | None:
    return next((each for each in schedules if each.name == name), None)


PAGES: Final = (
    Page("/schedules", answer),
    Page("/schedules/new", ask, "manage"),
    Page("/schedules/new", make, "manage", method="POST"),
    Page("/schedules/pause", pause, "manage", method="POST"),
    Page("/schedules/resume", resume, "manage", method="POST"),
    Page("/schedules/end", ask_end, "manage"),
    Page("/schedules/end", end, "manage", method="POST"),
)
