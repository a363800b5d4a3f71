# Generated from src/spanmq/client/_async/schedules.py by tools/generate_sync.py: change that file.

"""Recurring messages: `client.schedules`."""

import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from spanmq.client import argument, functions
from spanmq.client import cron as cron_expression
from spanmq.client.argument import optional
from spanmq.client.call import Shape, optional_queue_call, queue_call
from spanmq.client.rows import Unplanned, flag, nothing, number, schedules, upcoming_schedules
from spanmq.codec.body import Codec, Headers, encode_headers
from spanmq.errors import ExtraNotInstalledError, InvalidArgumentError, NotFoundError
from spanmq.model import Schedule

if TYPE_CHECKING:
    from spanmq.client._sync.connection import Link

logger = logging.getLogger("spanmq")
# Schedules that cannot be planned here are logged once, and left to other clients.
_logged: set[str] = set()


class Schedules:
    """Send messages at recurring times."""

    def __init__(self, link: "Link", codec: Codec) -> None:
        self._link = link
        self._codec = codec

    def create(
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
        """Create or replace a schedule, which sends a message at recurring times.

        The schedule of this `name` sends a `body` into a `queue` at the times of `cron`, an expression such as "*/5 *
        * * *", in a `time_zone`. `headers` and `group` are those of `send`. Times that were missed, while nothing ran
        maintenance, send one message together, or with `catch_up` one each. Raises InvalidArgumentError for a name, an
        expression or a time zone that is not valid, InvalidBodyError, and QueueNotFoundError.
        """
        arguments = (
            argument.text("name", name),
            argument.text("cron", cron),
            argument.json("body", self._codec.of(queue).encode(body)),
            argument.text("time_zone", time_zone),
            argument.json("headers", encode_headers(headers, group)),
            argument.boolean("catch_up", catch_up),
        )
        cron_expression.check(cron, time_zone)
        self._link.run(queue_call(queue, "schedule", nothing, *arguments))
        plan_schedules(self._link)

    def delete(self, name: str) -> bool:
        """Delete a schedule; messages that it has sent stay.

        Return whether one of this `name` existed. Raises MissingPrivilegeError without the right "send" on its queue.
        """
        return self._link.run(optional_queue_call(None, "unschedule", flag, argument.text("name", name)))

    def pause(self, name: str) -> None:
        """Pause a schedule: it sends nothing until it is resumed.

        The schedule of this `name` skips the times of the pause. Raises NotFoundError.
        """
        self._link.run(optional_queue_call(None, "pause_schedule", nothing, argument.text("name", name)))

    def resume(self, name: str) -> None:
        """Resume a paused schedule from now on.

        The schedule of this `name` has skipped the times of the pause. Raises NotFoundError.
        """
        self._link.run(optional_queue_call(None, "resume_schedule", nothing, argument.text("name", name)))
        plan_schedules(self._link)

    def run(self, name: str) -> int:
        """Send the message of a schedule once now, and return its id; its times stay as they are.

        The schedule of this `name` may be paused. The header `x-spanmq-scheduled-at` has the time of the call. Raises
        NotFoundError, and what `send` raises.
        """
        return self._link.run(optional_queue_call(None, "run_schedule", number, argument.text("name", name)))

    def list(
        self,
        *,
        queues: Iterable[str] | None = None,
        names: Iterable[str] | None = None,
        body_bytes_max: int | None = None,
    ) -> list[Schedule]:
        """List the schedules by name.

        They are those of these `queues` (None: all) with these `names` (None: any). A body that is stored in more than
        `body_bytes_max` bytes is replaced by {"spanmq.cut": bytes}. Raises InvalidArgumentError for a limit that is
        not valid.
        """
        arguments = (
            *functions.queue_names("queues", queues),
            *optional(argument.texts, "names", names),
            *optional(argument.integer, "body_bytes_max", body_bytes_max),
        )
        read = partial(schedules, self._codec)
        return self._link.run(
            optional_queue_call(None, "list_schedules", read, *arguments, shape=Shape.MESSAGES)
        )


def plan_schedules(link: "Link") -> float | None:
    """Plan the coming times of all schedules that need it; return the seconds until the next, or None."""
    upcoming = optional_queue_call(None, "upcoming_schedules", upcoming_schedules)
    unplanned, due_in = link.run(upcoming)
    planned = False
    for schedule in unplanned:
        planned |= _plan(link, schedule)
    if planned:
        _, due_in = link.run(upcoming)
    return due_in


def _plan(link: "Link", schedule: Unplanned) -> bool:
    from spanmq.client.concurrency import in_place

    now = schedule.looked_at
    try:
        # A thousand times of a rare expression may take a moment.
        times, until = in_place(
            lambda: cron_expression.plan(schedule.cron, schedule.time_zone, schedule.plan_from, now)
        )
        arguments = (
            argument.text("name", schedule.name),
            argument.moment("planned_until", schedule.planned_until),
            argument.moments("times", times),
            argument.moment("until", until).to("new_until"),
        )
        return link.run(optional_queue_call(None, "plan_schedule", flag, *arguments))
    except NotFoundError:
        return False  # deleted meanwhile
    except (ExtraNotInstalledError, InvalidArgumentError) as error:
        if schedule.name not in _logged:
            _logged.add(schedule.name)
            logger.warning("schedule_not_planned schedule=%s error=%s", schedule.name, error)
        return False
