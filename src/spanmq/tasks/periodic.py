"""Periodic tasks: what the program says becomes schedules in the database, which send each time once."""

import asyncio
import hashlib
import json
import logging
from collections.abc import Sequence
from typing import Any, Final

from spanmq.client import AsyncClient
from spanmq.errors import MissingPrivilegeError, SpanmqError
from spanmq.model import Schedule
from spanmq.model.queue import folded
from spanmq.tasks.task import Catalog, Periodic

logger = logging.getLogger("spanmq.tasks")

# The header of every schedule of a registry: its owner, the version of the whole set, and all versions so
# far.
HEADER: Final = "x-spanmq-periodic"
VERSIONS_MAX: Final = 20
CHECK_SECONDS: Final = 60.0


def version_of(periodic: dict[str, Periodic]) -> str:
    """Return a fingerprint of all of them."""
    parts = [
        [name, entry.task.queue, entry.cron, entry.zone, entry.catch_up, entry.body().text]
        for name, entry in sorted(periodic.items())
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


async def synchronise(client: AsyncClient, catalog: Catalog, *, at_start: bool) -> None:
    """Make the schedules in the database those of this program.

    A worker that starts always does. Later it does so only if an older version has come back meanwhile, by a
    worker of it that was started again: of two versions that run at once, the one that came last stays.
    """
    periodic = catalog.periodic
    mine = version_of(periodic)
    try:
        schedules = await client.schedules.list()
    except MissingPrivilegeError:
        if periodic:
            raise
        return
    present = {schedule.name: schedule for schedule in schedules if state_of(schedule, catalog)}
    states = [state_of(schedule, catalog) for schedule in present.values()]
    others = {state["version"] for state in states} - {mine}
    if not others and present.keys() == periodic.keys():
        return
    versions: Sequence[str] = max((state["versions"] for state in states), key=len, default=[])
    if not at_start:
        newer = versions[versions.index(mine) + 1 :] if mine in versions else versions
        if not others or mine not in versions or others & {*newer}:
            return
    versions = [*versions, *([] if mine in versions else [mine])][-VERSIONS_MAX:]
    state = {"tasks": catalog.name, "version": mine, "versions": versions}
    async with client.transaction() as transaction:
        # In one order, so that workers of two versions that start at once do not wait for each other.
        for name in sorted({*periodic, *present}):
            entry = periodic.get(name)
            # A schedule can't be changed to another queue.
            if name in present and (entry is None or folded(entry.task.queue) != folded(present[name].queue)):
                await transaction.schedules.delete(name)
            if entry is not None:
                await transaction.schedules.create(
                    name,
                    entry.task.queue,
                    entry.cron,
                    entry.body(),
                    time_zone=entry.zone,
                    catch_up=entry.catch_up,
                    headers={HEADER: state},
                )
    logger.info(
        "periodic_synchronised tasks=%s added=%s kept=%s removed=%s",
        catalog.name,
        len(periodic.keys() - present.keys()),
        len(periodic.keys() & present.keys()),
        len(present.keys() - periodic.keys()),
    )


async def keep(client: AsyncClient, catalog: Catalog) -> None:
    """Check periodically, until cancelled."""
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        try:
            await synchronise(client, catalog, at_start=False)
        except SpanmqError as error:
            logger.warning("periodic_failed tasks=%s error=%s", catalog.name, error)


def state_of(schedule: Schedule, catalog: Catalog) -> Any:
    """Return what the header of a schedule says if it is one of these tasks', else None."""
    state = (schedule.headers or {}).get(HEADER)
    return state if isinstance(state, dict) and state.get("tasks") == catalog.name else None
