"""Models of the admin. Their rows come from functions: spanmq's own tables have no models."""

from typing import Any

from django.db import models


class NoRows(models.Manager):  # type: ignore[misc]
    """A manager without rows, for `dumpdata`: `loaddata` could not insert them."""

    def get_queryset(self) -> Any:
        """Return nothing."""
        return super().get_queryset().none()


class Row(models.Model):  # type: ignore[misc]
    """A row that can only be read."""

    objects = NoRows()

    class Meta:
        """Its options, which 0001_schema repeats."""

        abstract = True
        managed = False
        base_manager_name = "objects"
        default_permissions: tuple[str, ...] = ("view",)


class Queue(Row):
    """A queue that the role of the connection may look into."""

    name = models.TextField(primary_key=True, db_column="queue")
    backlog = models.BigIntegerField()
    visible = models.BigIntegerField()
    in_flight = models.BigIntegerField()
    delayed = models.BigIntegerField()
    failed = models.BigIntegerField()
    dead = models.BigIntegerField()
    oldest_ready_seconds = models.FloatField()
    oldest_lease_seconds = models.FloatField()
    is_paused = models.BooleanField()
    breaker_open_until = models.DateTimeField()

    def __str__(self) -> str:
        return str(self.name)


class DeadLetter(Row):
    """A dead letter that was not redriven: of each queue, the thousand oldest."""

    dead_letter_id = models.BigIntegerField(primary_key=True)
    queue = models.TextField(db_column="queue_name")
    message_id = models.BigIntegerField(db_column="msg_id")
    body = models.JSONField(db_column="message")
    headers = models.JSONField()
    group = models.TextField(db_column="group_key")
    attempts = models.IntegerField()
    enqueued_at = models.DateTimeField()
    first_failed_at = models.DateTimeField()
    dead_at = models.DateTimeField()
    category = models.TextField()
    error_class = models.TextField()
    error = models.TextField()
    traceback = models.TextField()
    worker = models.TextField()
    history = models.JSONField()

    class Meta(Row.Meta):
        """Its options, which 0001_schema repeats."""

        default_permissions = ("view", "change", "delete")

    def __str__(self) -> str:
        return f"{self.queue}/{self.message_id}"


class Schedule(Row):
    """A schedule of a queue that the role of the connection may look into."""

    name = models.TextField(primary_key=True)
    queue = models.TextField()
    cron = models.TextField()
    time_zone = models.TextField()
    body = models.JSONField(db_column="message")
    headers = models.JSONField()
    catch_up = models.BooleanField()
    is_paused = models.BooleanField()
    pause_reason = models.TextField()
    next_at = models.DateTimeField()
    last_at = models.DateTimeField()
    made_by = models.TextField()

    def __str__(self) -> str:
        return str(self.name)
