"""What test_django.py checks of the site in this folder: `check.py`."""

import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from io import StringIO
from typing import Any
from unittest.mock import patch
from urllib.request import urlopen
from uuid import UUID

import django
import pytest
from django.conf import settings
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from django.db import connection, connections, transaction
from django.test import override_settings
from django.utils.module_loading import autodiscover_modules

FRAMEWORK = find_spec("django.tasks") or find_spec("django_tasks")
BACKEND = {
    "BACKEND": "spanmq.django.backend.SpanmqBackend",
    "QUEUES": ["orders", "mail"],
    "OPTIONS": {"tasks": "shop.tasks.tasks"},
}
settings.configure(
    USE_TZ=True,
    SECRET_KEY="-",
    ROOT_URLCONF="shop.urls",
    INSTALLED_APPS=[
        *(f"django.contrib.{name}" for name in ("admin", "auth", "contenttypes", "messages", "sessions")),
        "spanmq.django",
        "shop",
        "post",
    ],
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ],
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "APP_DIRS": True,
            "OPTIONS": {
                "context_processors": [
                    "django.template.context_processors.request",
                    "django.contrib.auth.context_processors.auth",
                    "django.contrib.messages.context_processors.messages",
                ]
            },
        }
    ],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": os.environ["SITE_DBNAME"],
            "USER": os.environ.get("SITE_USER", ""),
            "HOST": os.environ["SITE_HOST"],
            "PORT": os.environ.get("SITE_PORT", ""),
            "OPTIONS": {"connect_timeout": 7, "prepare_threshold": 5},
        },
        "files": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["SITE_FILE"]},
    },
    SPANMQ_TASKS="shop.tasks.tasks",
    **({"TASKS": {"default": BACKEND}} if FRAMEWORK else {}),
)


django.setup()

from psycopg.conninfo import conninfo_to_dict  # noqa: E402
from shop.tasks import before_end, end, ship, tasks  # type: ignore[import-not-found]  # noqa: E402

from spanmq import Client  # noqa: E402
from spanmq.errors import InvalidArgumentError  # noqa: E402
from spanmq.testing import Clock, assert_sent, drain, perform, sent  # noqa: E402


def shipped() -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute("select number from shipped order by 1")
        return [number for (number,) in cursor.fetchall()]


def bodies() -> list[Any]:
    return [message.body["args"] for message in Client(connection=connection).peek("orders")]


@contextmanager
def log_of(name: str) -> Iterator[list[Any]]:
    """Yield the records that a logger writes while the block runs."""
    records: list[Any] = []

    def keep(record: logging.LogRecord) -> bool:
        records.append(record)
        return True

    logger = logging.getLogger(name)
    logger.addFilter(keep)
    logger.setLevel(logging.INFO)
    yield records
    logger.removeFilter(keep)
    logger.setLevel(logging.NOTSET)


def check_migrations() -> None:
    assert [queue.name for queue in Client(connection=connection).queues.list()] == ["orders", "mail"]
    call_command("migrate", verbosity=0)
    output = StringIO()
    with suppress(CommandError):  # a server for tests is not fit for more
        call_command("spanmq_doctor", stdout=output)
    assert "ok      version: PostgreSQL" in output.getvalue(), output.getvalue()


def check_migrations_elsewhere() -> None:
    """A database that is not PostgreSQL gets no schema, and `migrate` works there; calls do not, and say so."""
    call_command("migrate", database="files", verbosity=0)
    calls: list[Callable[[], Any]] = [
        lambda: ship.using(connection=connections["files"]).send(1),
        lambda: call_command("spanmq_doctor", database="files"),
    ]
    for call in calls:
        with pytest.raises(
            (InvalidArgumentError, CommandError), match="connection to sqlite, not to PostgreSQL"
        ):
            call()
    connections["files"].close()
    assert run_checks() == []
    default = connections.settings.pop("default")
    assert [each.id for each in run_checks()] == ["spanmq.W001"]
    connections.settings["default"] = default


def check_missing_framework() -> None:
    """A project whose TASKS need a package that is not there is told so by a command, without a traceback."""
    autodiscover_modules("tasks")
    absent = {"django.tasks": None, "django_tasks": None}
    with patch.dict(sys.modules, absent):
        sys.modules.pop("spanmq.django.backend", None)
        with pytest.raises(CommandError, match="pip install django-tasks"):
            call_command("spanmq_queues", "shop")


def check_address() -> None:
    """Whatever the settings say to libpq is said for sends outside of Django's connection, too."""
    parts = conninfo_to_dict(tasks.clients.address())
    assert parts["connect_timeout"] == "7", parts
    assert parts["dbname"] == os.environ["SITE_DBNAME"]


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


def check_testing() -> None:
    kept = shipped()
    with transaction.atomic():
        perform(ship, 8)  # in this transaction, as a TestCase has one
        ship.send(9)
        assert assert_sent(ship, number=9)
        assert shipped() == [*kept, 8]
        transaction.set_rollback(True)
    assert (shipped(), sent(ship)) == (kept, [])
    assert drain(tasks) == 0
    with connection.cursor() as cursor:
        others = (
            "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        )
        for _ in range(18_000):  # a test's database can be dropped: no other session stays
            cursor.execute(
                f"select pg_stat_clear_snapshot(), array({others} and backend_type = 'client backend')"
            )
            if not cursor.fetchone()[1]:
                break
            cursor.execute("select pg_sleep(0.01)")
        else:
            raise AssertionError("a session stays")


def check_log_format() -> None:
    """The command logs with time and level, unless the project logs these lines itself."""
    from spanmq.django.management.commands.spanmq_worker import log_to_stderr

    logger = logging.getLogger("spanmq")
    log_to_stderr()
    log_to_stderr()
    [handler] = logger.handlers
    record = logging.LogRecord("spanmq.worker", logging.INFO, "", 0, "worker_started queue=orders", (), None)
    line = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO spanmq.worker worker_started queue=orders"
    assert re.fullmatch(line, handler.format(record))
    logger.handlers[:] = [logging.NullHandler()]


def check_worker() -> None:
    assert "post.tasks" not in sys.modules
    client = Client(connection=connection)
    ship.send(3)
    client.send("orders", {"task": "post", "args": {"to": "Ada"}})
    if FRAMEWORK:
        args = {"path": "post.tasks.post_all", "args": [["Bob"]], "kwargs": {}}
        client.send("orders", {"task": "django.default.orders", "args": args})
    end.send()
    output, metrics = StringIO(), list[str]()
    check_log_format()
    with log_of("spanmq") as logged:

        def read_metrics() -> None:
            [address] = [each.args[0] for each in logged if each.msg.startswith("metrics_served")]
            with urlopen(address) as answer:
                metrics.append(answer.read().decode())

        before_end.append(read_metrics)
        call_command("spanmq_worker", "--concurrency", "1", "--metrics-port", "0", stdout=output)
    assert output.getvalue() == f"Receiving from {', '.join(tasks.queues)}. Quit with CONTROL-C.\n"
    assert shipped() == [2, 3]
    assert 'spanmq_worker_messages_received_total{queue="orders"}' in metrics[0]
    # The tasks of an installed app are found, although nothing else imports their module.
    assert sys.modules["post.tasks"].posted == ["Ada", "Bob"][: 2 if FRAMEWORK else 1]


def check_paths_in_messages() -> None:
    """A message names a task that is registered, for its queue; nothing else is imported or run."""
    from shop.jobs import add  # type: ignore[import-not-found]

    client = Client(connection=connection)
    for path in ("shop.unused.run", "shop.jobs.added.clear", "shop.jobs.notify"):
        args: dict[str, Any] = {"path": path, "args": [], "kwargs": {}}
        client.send("orders", {"task": "django.default.orders", "args": args})
    assert drain(tasks, raises=False) == 3
    failures = [client.inspect.failures("orders", each.message_id) for each in client.peek("orders")]
    assert [each.error_class for [each] in failures] == ["spanmq.errors.UnknownTaskError"] * 3, failures
    assert "shop.unused" not in sys.modules
    with pytest.raises(InvalidArgumentError, match="registered for queue 'orders', not for 'mail'"):
        add.using(queue_name="mail").enqueue(1)


def check_backend() -> None:
    from shop.jobs import FRAMEWORK, add, added

    ended: list[Any] = []
    logging.getLogger(FRAMEWORK).setLevel(logging.CRITICAL)  # what fails here is to fail
    signals = import_module(f"{FRAMEWORK}.signals")
    signals.task_finished.connect(lambda sender, task_result, **_: ended.append(task_result), weak=False)
    with transaction.atomic():
        result = add.using(priority=50).enqueue(1, more=2)
    assert result.status.name == "READY"
    assert drain(tasks) == 1
    add.enqueue(-1)
    for _ in range(2):
        assert drain(tasks, raises=False) == 1
        Clock(tasks).advance(timedelta(minutes=1))
    assert added == [("RUNNING", 1, 3), ("RUNNING", 1, -1), ("RUNNING", 2, -1)]
    assert [(each.status.name, each.attempts) for each in ended] == [
        ("SUCCESSFUL", 1),
        ("FAILED", 1),
        ("FAILED", 2),
    ]
    assert ended[0].id == result.id
    assert [each.exception_class for each in ended[2].errors] == [ValueError]


def check_results() -> None:
    """A result has the status of its message, and what became of it."""
    from asgiref.sync import async_to_sync
    from post.tasks import post_all  # type: ignore[import-not-found]
    from shop.jobs import FRAMEWORK, RETURNED, add, notify, returned

    from spanmq.django.backend import id_of, message_of

    errors = import_module(f"{FRAMEWORK}.exceptions")
    client = Client(connection=connection)
    done, failing = add.enqueue(1, more=2), add.enqueue(-1)
    done.refresh()
    assert (done.status.name, done.attempts) == ("READY", 0)
    drain(tasks, raises=False)
    done.refresh()
    assert (done.status.name, done.return_value, done.attempts) == ("SUCCESSFUL", {"sum": 3}, 1)
    again = async_to_sync(add.aget_result)(done.id)
    assert (again, again.kwargs, again.is_finished) == (done, {"more": 2}, True)
    with pytest.raises(errors.TaskResultMismatch):
        notify.get_result(done.id)
    failing.refresh()
    assert (failing.status.name, [each.exception_class for each in failing.errors]) == ("READY", [ValueError])
    Clock(tasks).advance(timedelta(minutes=1))
    [message] = client.receive("orders")
    failing.refresh()
    assert (failing.status.name, failing.attempts) == ("RUNNING", 2)
    client.reject(message, "given up")
    failing.refresh()
    assert (failing.status.name, failing.attempts, failing.args) == ("FAILED", 2, [-1])
    assert "a number below 0" in failing.errors[0].traceback
    assert failing.errors[1].traceback == "given up"
    logging.getLogger("spanmq.worker").setLevel(logging.ERROR)
    # They run once, although their results cannot be stored.
    large = post_all.enqueue(["x" * 70_000])
    unstored = [returned.enqueue(kind) for kind in RETURNED]
    assert [returned.enqueue("text").args, drain(tasks)] == [["text"], len(unstored) + 2]
    for result in unstored:
        sent = message_of("default", {"orders", "mail"}, result.id)
        assert sent is not None
        assert client.inspect.state(*sent) == "completed"
        with pytest.raises(errors.TaskResultDoesNotExist, match="the result was not stored: "):
            returned.get_result(result.id)
    for argument in ("a\0b", "\ud800", float("nan"), {"k\0": 1}):
        with pytest.raises((InvalidArgumentError, ValueError)):
            returned.enqueue(argument)
    foreign = client.send("orders", {"task": "ship"})
    drain(tasks, raises=False)
    queues = {"orders", "mail"}
    found = message_of("default", queues, large.id)
    assert found is not None
    assert client.inspect.state(*found) == "completed"
    own = id_of("default", "orders", foreign)
    unknown = (
        large.id,
        own,
        id_of("default", "orders", 999_999),
        id_of("other", "orders", 1),
        f"orders/{foreign}",
    )
    for result_id in (*unknown, "", 7):
        with pytest.raises(errors.TaskResultDoesNotExist):
            add.get_result(result_id)


def check_result_ids() -> None:
    """An id fits into an address, and nothing about another result can be guessed from it."""
    from django.urls import path, resolve, reverse
    from shop.jobs import add

    from spanmq.django.backend import id_of, message_of

    queues = {"orders", "mail"}
    ids = [add.enqueue(1).id, add.enqueue(2).id]
    for kind in ("str", "uuid"):
        urls = (path(f"result/<{kind}:id>/", print, name="result"),)
        address = reverse("result", urls, [ids[0]])
        assert str(resolve(address, urls).kwargs["id"]) == ids[0]
    (_, first), (_, second) = (message_of("default", queues, each) or ("", 0) for each in ids)
    assert second == first + 1
    assert id_of("default", "orders", first) == id_of("default", "Orders", first) == ids[0]
    # Half of one id and half of another are not an id.
    halves = [UUID(each).bytes for each in ids]
    mixed = str(UUID(bytes=halves[0][:8] + halves[1][8:]))
    guessed = str(UUID(int=UUID(ids[0]).int + 1))
    for each in (mixed, guessed, id_of("other", "orders", first), id_of("default", "none", first)):
        assert message_of("default", queues, each) is None
    with override_settings(SECRET_KEY="another"):
        assert message_of("default", queues, ids[0]) is None
        with override_settings(SECRET_KEY_FALLBACKS=["-"]):
            assert message_of("default", queues, ids[0]) == ("orders", first)
    drain(tasks)


def check_backend_in_threads() -> None:
    from shop.jobs import add, added

    def enqueue() -> None:
        add.enqueue(5)
        connection.close()

    add.enqueue(4)
    with ThreadPoolExecutor() as threads:  # each thread has a backend of its own
        threads.submit(enqueue).result()
    assert drain(tasks) == 2
    assert added[-2:] == [("RUNNING", 1, 4), ("RUNNING", 1, 5)]


def check_backend_without_queues() -> None:
    """For Django it takes any queue; a worker must know its queues."""
    from shop.jobs import add

    from spanmq.django.backend import SpanmqBackend

    backend = SpanmqBackend("any", {**BACKEND, "QUEUES": []})
    # The name of the error is another one in each version of Django.
    with pytest.raises(Exception, match="Queue 'orders' is not valid for backend"):
        backend.enqueue(add, [1], {})


def check_admin_acts(client: Client) -> None:
    """Users with the permission redrive and delete dead letters; those of all selected, or none."""
    from django.contrib.auth.models import Permission, User
    from django.test import Client as Browser

    user = User.objects.create_user("bea", is_staff=True)
    browser = Browser(headers={"host": "localhost"})
    browser.force_login(user)
    for queue in ("orders", "mail", "mail"):
        client.send(queue, {"task": "ship", "args": {"number": "last"}})
        client.reject(client.receive(queue), "no such number", category="PERMANENT")

    def left() -> list[int]:
        return [each.dead_letter_id for each in client.dead_letters.list(category="PERMANENT")]

    letters = left()

    def permit(name: str) -> None:
        user.user_permissions.add(Permission.objects.get(codename=f"{name}_deadletter"))

    def act(name: str, **more: str) -> str:
        given = {"action": name, "_selected_action": letters, **more}
        response = browser.post("/admin/spanmq/deadletter/?category=PERMANENT", given, follow=True)
        assert response.status_code == 200, response.status_code
        return str(response.content.decode())

    permit("view")
    for name in ("redrive", "delete_selected"):
        assert f'value="{name}"' not in act(name, post="yes")
    assert left() == letters
    permit("delete")
    assert "Dead letters: 3" in act("delete_selected")  # the page that asks
    assert left() == letters
    permit("change")
    with (
        transaction.atomic(),
        connection.cursor() as cursor,
    ):  # not allowed to the role: none of them, and no log
        cursor.execute("create role spanmq_visitor")
        cursor.execute(
            "grant select, insert, update, delete on all tables in schema public to spanmq_visitor"
        )
        cursor.execute("grant usage on all sequences in schema public to spanmq_visitor")
        client.admin.grants.create("spanmq_visitor", "mail", "look")
        client.admin.grants.create("spanmq_visitor", "orders", "receive")
        cursor.execute("set local role spanmq_visitor")
        for name in ("redrive", "delete_selected"):
            given = {"action": name, "_selected_action": letters, "post": "yes"}
            assert browser.post("/admin/spanmq/deadletter/", given).status_code == 403, name
        cursor.execute("reset role")
        cursor.execute("select count(*) from django_admin_log")
        assert cursor.fetchone() == (0,)
        assert left() == letters
        transaction.set_rollback(True)
    first = letters.pop(0)
    assert "Redriven: 2 dead letters are in their queues again." in act("redrive")
    assert left() == [first]
    letters = [first]
    assert "Successfully deleted 1 dead letter." in act("delete_selected", post="yes")
    assert left() == []
    assert [
        (each.action, each.queue) for each in client.inspect.changes() if each.actor == f"Django, user {user}"
    ] == [
        ("purge_dead_letters", "orders"),
        ("redrive", "mail"),
    ]
    for queue in ("orders", "mail"):
        client.queues.purge(queue)


def check_admin() -> None:
    from django.contrib.auth.models import User
    from django.test import Client as Browser

    browser = Browser(headers={"host": "localhost"})
    browser.force_login(User.objects.create_superuser("ada"))
    client = Client(connection=connection)
    client.schedules.create("nightly", "orders", "0 3 * * *", {"kind": "report"})
    client.send("orders", {"task": "ship", "args": {"number": "first"}})
    client.reject(client.receive("orders"), "no such number", category="BUSINESS")

    def page(path: str) -> str:
        response = browser.get(f"/admin/spanmq/{path}")
        assert response.status_code == 200, (path, response.status_code)
        return str(response.content.decode())

    assert "2 queues" in page("queue/")
    assert "In flight:" in page("queue/orders/change/")
    assert "no such number" in page("deadletter/?q=number&category=BUSINESS&queue=orders&o=-5")
    assert "no such number" not in page("deadletter/?q=colour")
    assert "0 3 * * *" in page("schedule/?queue=orders")
    check_admin_acts(client)
    with connection.cursor() as cursor:
        cursor.execute("select dead_letter_id from spanmq.dead_letters()")
        letter = f"deadletter/{cursor.fetchone()[0]}"
        assert "first" in page(f"{letter}/change/")
        for path in ("queue/add/", "queue/orders/delete/", "deadletter/add/"):
            assert browser.get(f"/admin/spanmq/{path}").status_code == 403, path
        assert browser.post(f"/admin/spanmq/{letter}/change/", {"error": ""}).status_code == 403
        # Its rows are those that the role of the connection may see.
        with transaction.atomic():
            cursor.execute("create role spanmq_visitor")
            cursor.execute("grant select, update on all tables in schema public to spanmq_visitor")
            cursor.execute("set local role spanmq_visitor")
            assert "0 queues" in page("queue/")
            assert "0 dead letters" in page("deadletter/")
            cursor.execute("reset role")
            client.admin.grants.create("spanmq_visitor", "orders", "look")
            cursor.execute("set local role spanmq_visitor")
            assert "1 queue" in page("queue/")
            assert "1 dead letter" in page("deadletter/")
            transaction.set_rollback(True)
    client.schedules.delete("nightly")
    output = StringIO()
    call_command("dumpdata", "spanmq", all=True, stdout=output)
    assert output.getvalue().strip() == "[]"
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)


call_command("migrate", verbosity=0)
checks = [
    check_migrations,
    check_migrations_elsewhere,
    check_address,
    check_transactions,
    check_batches,
    check_testing,
    check_worker,
    check_admin,
]
if FRAMEWORK:
    checks += [
        check_paths_in_messages,
        check_backend,
        check_results,
        check_result_ids,
        check_backend_in_threads,
        check_backend_without_queues,
        check_missing_framework,
    ]
for check in checks:
    check()
    Client(connection=connection).queues.purge("orders")
tasks.close()
connection.close()
print("as expected")  # noqa: T201
