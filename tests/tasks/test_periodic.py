"""Periodic tasks: the schedules in the database follow the program, also while two versions run."""

from collections.abc import Callable, Mapping

import pytest
from tests.tasks.shop import working

from spanmq import AsyncClient, Client, errors
from spanmq.tasks import Tasks
from spanmq.tasks.periodic import synchronise

Crons = Mapping[str, str]
NIGHTLY, HOURLY = "30 2 * * *", "0 * * * *"


def version(crons: Crons, dsn: str = "") -> Tasks:
    """Make a version of a program, with these periodic tasks."""
    tasks = Tasks("orders", dsn=dsn)
    for name, cron in crons.items():

        def report(kind: str = "daily") -> None: ...

        tasks.periodic(cron, zone="Europe/Berlin", arguments={"kind": "x"})(tasks.task(name=name)(report))
    return tasks


def schedules(client: Client) -> Crons:
    return {each.name.removeprefix("orders."): each.cron for each in client.schedules.list()}


async def test_schedules_follow_the_version_that_came_last(client: Client, database: str) -> None:
    older = version({"report": NIGHTLY, "sweep": HOURLY})
    newer = version({"report": HOURLY, "count": HOURLY})
    client.schedules.create("by hand", "orders", NIGHTLY, {})
    async with AsyncClient(database) as other:

        async def run(tasks: Tasks, *, at_start: bool) -> Crons:
            await synchronise(other, tasks.catalog, at_start=at_start)
            found = {**schedules(client)}
            assert found.pop("by hand") == NIGHTLY
            return found

        old, new = {"report": NIGHTLY, "sweep": HOURLY}, {"report": HOURLY, "count": HOURLY}
        steps: list[tuple[Tasks, bool, Crons]] = [
            (older, True, old),
            (newer, True, new),
            (older, False, new),  # a worker of the older version that goes on
            (newer, False, new),
            (older, True, old),  # one that starts again
            (older, False, old),
            (newer, False, new),  # the newer version is still there
            (version({}), True, {}),
            (newer, True, new),
        ]
        for number, (tasks, at_start, expected) in enumerate(steps):
            assert await run(tasks, at_start=at_start) == expected, number


async def test_pause_and_planned_times_outlive_a_start(client: Client, database: str) -> None:
    async with AsyncClient(database) as other:
        await synchronise(other, version({"report": NIGHTLY}).catalog, at_start=True)
        client.schedules.pause("orders.report")
        [before] = client.schedules.list()
        await synchronise(other, version({"report": NIGHTLY, "sweep": HOURLY}).catalog, at_start=True)
    after = client.schedules.list()[0]
    assert (after.is_paused, after.next_at) == (True, before.next_at)


async def test_task_that_moves_to_another_queue_takes_its_schedule_along(
    client: Client, database: str
) -> None:
    client.queues.create("reports")
    moved = Tasks("orders", dsn="")

    def report(kind: str = "daily") -> None: ...

    moved.periodic(HOURLY, zone="Europe/Berlin", arguments={"kind": "x"})(
        moved.task(name="report", queue="reports")(report)
    )
    async with AsyncClient(database) as other:
        await synchronise(other, version({"report": HOURLY}).catalog, at_start=True)
        await synchronise(other, moved.catalog, at_start=True)
    assert [(each.name, each.queue) for each in client.schedules.list()] == [("orders.report", "reports")]


async def test_periodic_task_runs(client: Client, database: str) -> None:
    tasks = version({"report": "* * * * * *"}, database)
    async with working(tasks) as outcomes:
        assert await outcomes.all(2) == ["acked", "acked"]
    tasks.close()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda tasks, task: tasks.periodic("never")(task),
        lambda tasks, task: tasks.periodic(HOURLY, zone="Nowhere")(task),
        lambda tasks, task: tasks.periodic(HOURLY, arguments={"colour": 1})(task),
    ],
)
async def test_wrong_period_stops_the_start(
    client: Client, database: str, spoil: Callable[[Tasks, object], object]
) -> None:
    tasks = Tasks("orders", dsn=database)
    spoil(tasks, tasks.task(lambda: None))
    with pytest.raises(errors.InvalidArgumentError):
        async with tasks.running():
            raise AssertionError("it has a period that means nothing")
    assert client.schedules.list() == []
