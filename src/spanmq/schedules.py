# Generated from src/spanmq/schedules_async.py by tools/generate_sync.py: change that file.

"""What a client does with recurring messages; a part of Client."""

from __future__ import annotations

import logging

from spanmq import cron as cron_text
from spanmq import schedule_calls
from spanmq.body import Codec, Headers, encode_headers
from spanmq.concurrency import in_place
from spanmq.errors import CronNotAvailableError, InvalidArgumentError, ScheduleNotFoundError
from spanmq.link import Link
from spanmq.message import Schedule
from spanmq.schedule_calls import Unplanned

logger = logging.getLogger("spanmq")
# What can't be planned here is said once for each text, and left to others.
_said: set[str] = set()


class Schedules:
    """Messages that come by themselves."""

    _link: Link
    _codec: Codec

    def schedule(
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
        self._link.run(call)
        plan_schedules(self._link)

    def unschedule(self, name: str) -> bool:
        """End it; tell whether it was there. What it has sent stays."""
        return self._link.run(schedule_calls.unschedule(name))

    def list_schedules(self) -> list[Schedule]:
        """List the recurring messages, by name."""
        return self._link.run(schedule_calls.list_schedules(self._codec))

    def pause_schedule(self, name: str) -> None:
        """Let its times pass; raises ScheduleNotFoundError if there is none of that name."""
        self._link.run(schedule_calls.pause_schedule(name))

    def resume_schedule(self, name: str) -> None:
        """Fire again from now on; what fell into the pause is not made up for."""
        self._link.run(schedule_calls.resume_schedule(name))
        plan_schedules(self._link)


def plan_schedules(link: Link) -> float | None:
    """Plan the times to come of all schedules that want it; give the seconds until the next, or None."""
    upcoming = link.run(schedule_calls.upcoming_schedules())
    planned = False
    for schedule in upcoming.unplanned:
        planned |= _plan(link, schedule)
    if planned:
        upcoming = link.run(schedule_calls.upcoming_schedules())
    return upcoming.due_in


def _plan(link: Link, schedule: Unplanned) -> bool:
    now = schedule.looked_at
    try:
        # A thousand times of a rare text may take a moment.
        times, until = in_place(
            lambda: cron_text.plan(schedule.cron, schedule.time_zone, schedule.plan_from, now)
        )
        planned = schedule_calls.plan_schedule(schedule.name, schedule.planned_until, times, until)
        return link.run(planned)
    except ScheduleNotFoundError:
        return False  # ended meanwhile
    except (CronNotAvailableError, InvalidArgumentError) as error:
        if schedule.name not in _said:
            _said.add(schedule.name)
            logger.warning("schedule_not_planned schedule=%s error=%s", schedule.name, error)
        return False
