"""A worker of Celery and its results."""

from collections.abc import Iterator

import pytest
from celery import Celery, chord
from celery.contrib.testing.worker import start_worker
from celery.result import AsyncResult
from celery.signals import setup_logging
from tests.patience import WAIT_SECONDS, wait_until

import spanmq.celery  # noqa: F401, kombu knows the transport by it
from spanmq import Client

pytestmark = pytest.mark.filterwarnings("ignore::Warning")


def configure_nothing(**_: object) -> None:
    """Leave logging to pytest: without a receiver of its own the signal sets the level of all loggers."""


@pytest.fixture
def app(broker: str) -> Iterator[Celery]:
    app = Celery("shop", broker=broker, backend=broker, set_as_current=False)
    app.conf.update(task_acks_late=True, worker_prefetch_multiplier=2, result_expires=3600)

    @app.task(name="add")  # type: ignore[untyped-decorator]
    def add(one: int, other: int) -> int:
        return one + other

    @app.task(name="total")  # type: ignore[untyped-decorator]
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    @app.task(name="flaky", bind=True, max_retries=1)  # type: ignore[untyped-decorator]
    def flaky(task: object) -> int:
        if not task.request.retries:  # type: ignore[attr-defined]
            raise task.retry(countdown=0.01)  # type: ignore[attr-defined]
        return task.request.retries  # type: ignore[attr-defined,no-any-return]

    setup_logging.connect(configure_nothing)
    yield app
    setup_logging.disconnect(configure_nothing)
    app.close()


def test_worker_runs_tasks_and_answers_commands(app: Celery, client: Client) -> None:
    with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=WAIT_SECONDS):
        add = app.tasks["add"]
        results = [add.delay(number, number) for number in range(9)]
        assert [result.get(WAIT_SECONDS, interval=0.02) for result in results] == [*range(0, 18, 2)]
        joined = chord([add.s(1, 2), add.s(3, 4)])(app.tasks["total"].s())
        assert app.tasks["flaky"].delay().get(WAIT_SECONDS, interval=0.02) == 1
        failed = add.delay("a", 1)
        with pytest.raises(TypeError):
            failed.get(WAIT_SECONDS, interval=0.02)
        [stats] = app.control.inspect(timeout=WAIT_SECONDS, limit=1).stats().values()
        assert stats["broker"]["transport"] == "spanmq"
        assert joined.get(WAIT_SECONDS, interval=0.02) == 10
        wait_until(lambda: client.queues.metrics("celery").length == 0)


def test_results_are_kept_until_they_expire_or_are_forgotten(app: Celery, client: Client) -> None:
    assert AsyncResult("none", app=app).state == "PENDING"
    backend = app.backend
    long = {"text": 'ü"\\' * 60_000}
    backend.store_result("one", long, "SUCCESS")
    backend.store_result("two", 2, "SUCCESS")
    # The first success stays.
    backend.store_result("two", 3, "FAILURE")
    found = [AsyncResult(key, app=app).get(WAIT_SECONDS) for key in ("one", "two")]
    assert found == [long, 2]
    backend.set("key", "x" * 40_000)
    backend.set("key", "y")
    assert (backend.get("key"), backend.get("none")) == ("y", None)
    AsyncResult("one", app=app).forget()
    wait_until(lambda: AsyncResult("one", app=app).state == "PENDING")
