"""What a client does with recurring messages; a part of AsyncClient."""

from __future__ import annotations

import logging

from spanmq import cron as cron_text
from spanmq import schedule_calls
from spanmq.body import Codec, Headers, encode_headers
from spanmq.concurrency import in_thread
from spanmq.errors import CronNotAvailableError, InvalidArgumentError, ScheduleNotFoundError
from spanmq.link_async import AsyncLink
from spanmq.message import Schedule
from spanmq.schedule_calls import Unplanned

logger = logging.getLogger("spanmq")
# What can't be planned here is said once for each text, and left to others.
_said: set[str] = set()


class AsyncSchedules:
    """Messages that come by themselves."""

    _link: AsyncLink
    _codec: Codec

    async def schedule(
        self,
        name: str,
        queue: str,
        cron: str,
        body: object,
        *,
        time_zone: str = "UTC",
        headers: Headers | None = None,
        group: str | None = None,
        catch_up: bool = False,
    ) -> None:
        """Send a message at every time of a cron text, such as "*/5 * * * *"; change it if `name` is there.

        Times that were missed, while nobody kept house, give one message together, or with `catch_up` one
        each. Raises InvalidArgumentError for a text or time zone that means nothing.
        """
        call = schedule_calls.schedule(
            name,
            queue,
            cron,
            self._codec.of(queue).encode(body),
            time_zone,
            encode_headers(headers, group),
            catch_up,
        )
        cron_text.check(cron, time_zone)
        await self._link.run(call)
        await plan_schedules(self._link)

    async def unschedule(self, name: str) -> bool:
        """End it; tell whether it was there. What it has sent stays."""
        return await self._link.run(schedule_calls.unschedule(name))

    async def list_schedules(self) -> list[Schedule]:
        """List the recurring messages, by name."""
        return await self._link.run(schedule_calls.list_schedules(self._codec))

    async def pause_schedule(self, name: str) -> None:
        """Let its times pass; raises ScheduleNotFoundError if there is none of that name."""
        await self._link.run(schedule_calls.pause_schedule(name))

    async def resume_schedule(self, name: str) -> None:
        """Fire again from now on; what fell into the pause is not made up for."""
        await self._link.run(schedule_calls.resume_schedule(name))
        await plan_schedules(self._link)


async def plan_schedules(link: AsyncLink) -> float | None:
    """Plan the times to come of all schedules that want it; give the seconds until the next, or None."""
    upcoming = await link.run(schedule_calls.upcoming_schedules())
    planned = False
    for schedule in upcoming.unplanned:
        planned |= await _plan(link, schedule)
    if planned:
        upcoming = await link.run(schedule_calls.upcoming_schedules())
    return upcoming.due_in


async def _plan(link: AsyncLink, schedule: Unplanned) -> bool:
    now = schedule.looked_at
    try:
        # A thousand times of a rare text may take a moment.
        times, until = await in_thread(
            lambda: cron_text.plan(schedule.cron, schedule.time_zone, schedule.plan_from, now)
        )
        planned = schedule_calls.plan_schedule(schedule.name, schedule.planned_until, times, until)
        return await link.run(planned)
    except ScheduleNotFoundError:
        return False  # ended meanwhile
    except (CronNotAvailableError, InvalidArgumentError) as error:
        if schedule.name not in _said:
            _said.add(schedule.name)
            logger.warning("schedule_not_planned schedule=%s error=%s", schedule.name, error)
        return False
