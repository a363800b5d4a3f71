"""The app: `spanmq.django` in INSTALLED_APPS."""

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate

from spanmq import schema


class SpanmqConfig(AppConfig):  # type: ignore[misc]
    """Brings the schema to the version of the package after each `migrate`."""

    name = "spanmq.django"
    label = "spanmq"
    verbose_name = "spanmq"

    def ready(self) -> None:
        """Connect the signal."""
        post_migrate.connect(upgrade, sender=self)


def upgrade(using: str, **_: Any) -> None:
    """Install what this version of the package adds, if the app's migration was applied."""
    from django.db import connections
    from django.db.migrations.recorder import MigrationRecorder

    connection = connections[using]
    if connection.vendor != "postgresql":
        return
    if ("spanmq", "0001_schema") in MigrationRecorder(connection).applied_migrations():
        connection.ensure_connection()
        schema.install(connection.connection)
