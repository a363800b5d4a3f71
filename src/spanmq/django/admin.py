"""Queues, dead letters and schedules in Django's admin, to read; `spanmq serve` changes them."""

from typing import Any, Final

from django.contrib import admin
from django.db import router
from django.db.models import QuerySet
from django.db.models.sql import Query
from django.db.models.sql.datastructures import BaseTable

from spanmq.django.models import DeadLetter, Queue, Schedule

# Subqueries in place of tables. The functions return what the role of the connection may look into.
SOURCES: Final = {
    Queue._meta.db_table: "select * from spanmq.health()",
    DeadLetter._meta.db_table: "select letter.* from spanmq.health() cross join lateral "
    "spanmq.dead_letters(queue, qty => 1000, body_bytes_max => 10000) letter",
    Schedule._meta.db_table: "select * from spanmq.list_schedules()",
}


class Source(BaseTable):  # type: ignore[misc]
    """A subquery in FROM."""

    def as_sql(self, _: Any, connection: Any) -> tuple[str, list[Any]]:
        """Return it with its alias."""
        return f"({SOURCES[self.table_name]}) {connection.ops.quote_name(self.table_alias)}", []


class SourceQuery(Query):  # type: ignore[misc]
    """A query of a subquery."""

    base_table_class = Source


class RowAdmin(admin.ModelAdmin):  # type: ignore[misc]
    """Lists rows and shows one."""

    actions = None

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
    """Dead letters, the newest first."""

    list_display = ("__str__", "category", "error", "attempts", "dead_at")
    list_filter = ("queue", "category")
    search_fields = ("error", "error_class")


@admin.register(Schedule)
class ScheduleAdmin(RowAdmin):
    """Schedules by name."""

    list_display = ("name", "queue", "cron", "time_zone", "is_paused", "next_at", "last_at")
    list_filter = ("queue",)
    search_fields = ("name",)
