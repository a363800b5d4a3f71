"""Queues, dead letters and schedules in Django's admin: to read, and dead letters also to redrive and to delete."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from django.contrib import admin, messages
from django.contrib.admin.actions import delete_selected
from django.core.exceptions import PermissionDenied
from django.db import connections, router, transaction
from django.db.models import QuerySet
from django.db.models.sql import Query
from django.db.models.sql.datastructures import BaseTable

from spanmq.client import Client
from spanmq.client.call import ACTOR
from spanmq.django.models import DeadLetter, Queue, Schedule
from spanmq.errors import MissingPrivilegeError

# Subqueries in place of tables. The functions return what the role of the connection may look into.
SOURCES: Final = {
    Queue._meta.db_table: "select * from spanmq.health()",
    DeadLetter._meta.db_table: "select letter.* from spanmq.health() cross join lateral "
    "spanmq.dead_letters(queue, qty => 1000, body_bytes_max => 10000) letter",
    Schedule._meta.db_table: "select * from spanmq.list_schedules()",
}


class SubqueryTable(BaseTable):  # type: ignore[misc]
    """A subquery in FROM."""

    def as_sql(self, _: Any, connection: Any) -> tuple[str, list[Any]]:
        """Return it with its alias."""
        return f"({SOURCES[self.table_name]}) {connection.ops.quote_name(self.table_alias)}", []


class SourceQuery(Query):  # type: ignore[misc]
    """A query of a subquery."""

    base_table_class = SubqueryTable


class RowAdmin(admin.ModelAdmin):  # type: ignore[misc]
    """Lists rows and shows one."""

    actions: tuple[str, ...] | None = None

    def get_queryset(self, _: Any) -> Any:
        """Return the rows that the role of the connection may see."""
        return QuerySet(self.model, SourceQuery(self.model), using=router.db_for_read(self.model))

    def has_add_permission(self, *_: Any) -> bool:
        """Return False."""
        return False

    def has_change_permission(self, *_: Any) -> bool:
        """Return False."""
        return False

    def has_delete_permission(self, *_: Any) -> bool:
        """Return False."""
        return False


@admin.register(Queue)
class QueueAdmin(RowAdmin):
    """Queues with their counts."""

    list_display = (
        *("name", "visible", "in_flight", "delayed", "failed", "dead"),
        *("oldest_ready_seconds", "is_paused"),
    )
    search_fields = ("name",)


@admin.register(DeadLetter)
class DeadLetterAdmin(RowAdmin):
    """Dead letters, the newest first; the permission to change is for redriving, that to delete for discarding.

    An act is done with the rights of the connection's role, for all selected rows or none, and is recorded with the
    name of the user.
    """

    actions = ("redrive", "delete_selected")
    list_display = ("__str__", "category", "error", "attempts", "dead_at")
    list_filter = ("queue", "category")
    search_fields = ("error", "error_class")

    def has_redrive_permission(self, request: Any) -> bool:
        """Return whether the user may redrive: has the model's permission to change."""
        return bool(request.user.has_perm("spanmq.change_deadletter"))

    def has_delete_permission(self, request: Any, _: Any = None) -> bool:
        """Return whether the user has the model's permission to delete."""
        return bool(request.user.has_perm("spanmq.delete_deadletter"))

    @admin.action(permissions=["redrive"], description="Redrive selected %(verbose_name_plural)s")  # type: ignore[untyped-decorator]
    def redrive(self, request: Any, letters: Any) -> None:
        """Return the selected dead letters to their queues, to be visible after the delay of each policy."""
        with _acting(request) as client:
            is_left = [
                letter.beside is not None
                for queue, ids in _by_queue(letters).items()
                for letter in client.dead_letters.redrive(queue, dead_letter_ids=ids, limit=len(ids))
            ]
        n = is_left.count(False)
        self.message_user(request, f"Redriven: {n} dead letters are in their queues again.", messages.SUCCESS)
        if any(is_left):
            text = f"{len(is_left) - n} stay: another message in the queue has the same dedup id."
            self.message_user(request, text, messages.WARNING)

    @admin.action(permissions=["delete"], description="Delete selected %(verbose_name_plural)s")  # type: ignore[untyped-decorator]
    def delete_selected(self, request: Any, letters: Any) -> Any:
        """Delete the selected dead letters after Django's page that lists them, and log it with the deletion."""
        with transaction.atomic(using=router.db_for_write(DeadLetter)):
            return delete_selected(self, request, letters)

    def delete_queryset(self, request: Any, letters: Any) -> None:
        """Discard dead letters."""
        with _acting(request) as client:
            for queue, ids in _by_queue(letters).items():
                client.dead_letters.discard(queue, dead_letter_ids=ids, limit=len(ids))

    def delete_model(self, request: Any, letter: DeadLetter) -> None:
        """Discard one dead letter."""
        self.delete_queryset(request, [letter])


@admin.register(Schedule)
class ScheduleAdmin(RowAdmin):
    """Schedules by name."""

    list_display = ("name", "queue", "cron", "time_zone", "is_paused", "next_at", "last_at")
    list_filter = ("queue",)
    search_fields = ("name",)


@contextmanager
def _acting(request: Any) -> Iterator[Client]:
    """Yield a client in a transaction of Django's connection; its changes are recorded with the user's name."""
    alias = router.db_for_write(DeadLetter)
    before = ACTOR.set(f"Django, user {request.user.get_username()}")
    try:
        with transaction.atomic(using=alias):
            yield Client(connection=connections[alias])
    except MissingPrivilegeError as error:
        raise PermissionDenied(error.message) from error
    finally:
        ACTOR.reset(before)


def _by_queue(letters: Iterable[DeadLetter]) -> dict[str, list[int]]:
    """Return the ids of dead letters by their queues."""
    ids: dict[str, list[int]] = {}
    for letter in letters:
        ids.setdefault(letter.queue, []).append(letter.dead_letter_id)
    return ids
