# Generated from src/spanmq/client/_async/maintenance.py by tools/generate_sync.py: change that file.

"""Housekeeping by the client's pool: `spanmq.maintain` in the background, a bounded step at a time."""

import logging
import weakref
from time import monotonic
from typing import Final

import psycopg

from spanmq.client import functions
from spanmq.client._sync.connection import PoolLink
from spanmq.client._sync.schedules import plan_schedules
from spanmq.client.concurrency import BackgroundTask, Event
from spanmq.errors import (
    MissingPrivilegeError,
    NotSupportedByUpstreamError,
    SchemaMissingError,
    ServerReadOnlyError,
    SpanmqError,
)

logger = logging.getLogger("spanmq")

# An idle client, in a database without pending work, polls this many times less often.
IDLE_FACTOR: Final = 32
# A run that found nothing to do is followed by a pause of this many times its duration: it has many queues to look at.
SLOWNESS: Final = 10
# The budget of one step: the default of spanmq.maintain().
BUDGET: Final = 10
# Failures in a row, at one a second, of which one is logged.
LOG_EVERY: Final = 60
# Steps in a row before other users of the pool get their turn.
STEPS_MAX: Final = 20


class Maintenance:
    """A job that calls `spanmq.maintain` about every `interval` seconds, for as long as the link exists.

    An error does not end it: another try may succeed. The first of a series is logged, and each of another
    class, and then every LOG_EVERY-th with its number.
    """

    def __init__(self, link: PoolLink, interval: float) -> None:
        # A weak reference: a client that is neither closed nor used any more ends with its pool.
        self._link = weakref.ref(link)
        self._interval = interval
        self._stopped = Event()
        self._job = BackgroundTask(self._run, "spanmq maintenance")

    def stop(self) -> None:
        """Stop after the step that runs."""
        self._stopped.set()

    def join(self) -> None:
        """Wait until it has stopped."""
        self._job.join()

    def _run(self) -> None:
        pause = self._interval
        seen = -1
        failures = 0
        last: type[BaseException] | None = None
        while not self._stopped.wait(pause):
            link = self._link()
            # It may have been begun beside the end of the client, which then did not know of it.
            if link is None or link.is_closed:
                return
            due_in = None
            busy = link.calls != seen
            least = 0.0
            began_at = monotonic()
            try:
                if self._steps(link):
                    busy = True
                else:
                    least = SLOWNESS * (monotonic() - began_at)
                due_in = plan_schedules(link)
                failures, last = 0, None
            except NotSupportedByUpstreamError:
                return  # upstream PGMQ keeps no house
            except MissingPrivilegeError as error:
                # Not asked again: each refusal is an error in the server's log.
                logger.info("maintenance_left_to_others error=%r", error.message)
                return
            except SchemaMissingError:
                pass  # not yet: the program may be about to install it
            except (SpanmqError, psycopg.Error) as error:
                # Errors of a client that is being closed are not logged.
                failures += 1
                if (type(error) is not last or failures % LOG_EVERY == 0) and not self._stopped.is_set():
                    name = type(error).__name__
                    logger.warning(
                        "maintenance_failed number=%d error_class=%s error=%r", failures, name, str(error)
                    )
                last = type(error)
                # A standby stays one for long, and refuses whatever the calls are.
                busy = busy and not isinstance(error, ServerReadOnlyError)
            seen = link.calls
            longest = self._interval * IDLE_FACTOR
            pause = self._interval if busy else min(pause * 2, longest)
            pause = max(pause, min(least, longest))
            if due_in is not None:
                # Messages that are due and were not sent are locked by another session: no hurry.
                pause = min(pause, due_in if due_in > 0 else self._interval)
            del link  # or it would live through the pause

    def _steps(self, link: PoolLink) -> bool:
        for number in range(STEPS_MAX):
            if self._stopped.is_set() or not link.run(functions.maintain(BUDGET), counted=False):
                return number > 0
        return True
