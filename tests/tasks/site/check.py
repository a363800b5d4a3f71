"""What test_django.py checks of the site in this folder: `check.py`."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from io import StringIO
from typing import Any

import django
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection, transaction

FRAMEWORK = find_spec("django.tasks") or find_spec("django_tasks")
BACKEND = {
    "BACKEND": "spanmq.django.backend.SpanmqBackend",
    "QUEUES": ["orders"],
    "OPTIONS": {"tasks": "shop.tasks.tasks"},
}
settings.configure(
    USE_TZ=True,
    INSTALLED_APPS=["spanmq.django", "shop"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": os.environ["SITE_DBNAME"],
            "USER": os.environ.get("SITE_USER", ""),
            "HOST": os.environ["SITE_HOST"],
            "PORT": os.environ.get("SITE_PORT", ""),
        }
    },
    SPANMQ_TASKS="shop.tasks.tasks",
    **({"TASKS": {"default": BACKEND}} if FRAMEWORK else {}),
)


django.setup()

from shop.tasks import end, ship, tasks  # type: ignore[import-not-found]  # noqa: E402

from spanmq import Client  # noqa: E402
from spanmq.testing import drain  # noqa: E402


def shipped() -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute("select number from shipped order by 1")
        return [number for (number,) in cursor.fetchall()]


def bodies() -> list[Any]:
    return [message.body["args"] for message in Client(connection=connection).peek("orders")]


def check_migrations() -> None:
    assert [queue.name for queue in Client(connection=connection).queues.list()] == ["orders"]
    call_command("migrate", verbosity=0)
    output = StringIO()
    with suppress(CommandError):  # a server for tests is not fit for more
        call_command("spanmq_doctor", stdout=output)
    assert "ok      version: PostgreSQL" in output.getvalue(), output.getvalue()


def check_transactions() -> None:
    with transaction.atomic():
        ship.send(1)
        transaction.set_rollback(True)
    assert bodies() == []
    with transaction.atomic():
        ship.send(2)
    assert bodies() == [{"number": 2}]
    ship.send(-1)
    assert drain(tasks, raises=False) == 2
    assert shipped() == [2]


def check_batches() -> None:
    batch = tasks.batch([ship.call(4), ship.call(5)], then=ship.call(6))
    with transaction.atomic():
        batch.send()
        transaction.set_rollback(True)
    assert bodies() == []
    batch.send()  # in autocommit
    with transaction.atomic():
        batch.send()
    assert drain(tasks) == 6
    assert shipped() == [2, 4, 4, 5, 5, 6, 6]
    with connection.cursor() as cursor:
        cursor.execute("delete from shipped where number > 2")


def check_worker() -> None:
    ship.send(3)
    end.send()
    call_command("spanmq_worker", "--concurrency", "1")
    assert shipped() == [2, 3]


def check_backend() -> None:
    from shop.jobs import FRAMEWORK, add, added  # type: ignore[import-not-found]

    ended: list[Any] = []
    signals = import_module(f"{FRAMEWORK}.signals")
    signals.task_finished.connect(lambda sender, task_result, **_: ended.append(task_result), weak=False)
    with transaction.atomic():
        result = add.using(priority=50).enqueue(1, more=2)
    assert (result.status.name, result.id.split("/")[0]) == ("READY", "orders")
    assert drain(tasks) == 1
    assert added == [("RUNNING", 3)]
    assert [(each.status.name, each.id) for each in ended] == [("SUCCESSFUL", result.id)]


call_command("migrate", verbosity=0)
checks = [check_migrations, check_transactions, check_batches, check_worker]
if FRAMEWORK:
    checks.append(check_backend)
for check in checks:
    check()
    Client(connection=connection).queues.purge("orders")
tasks.close()
connection.close()
print("as expected")  # noqa: T201
