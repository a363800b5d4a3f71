"""The app: `spanmq.django` in INSTALLED_APPS."""

from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db.models.signals import post_migrate

from spanmq import schema


class SpanmqConfig(AppConfig):  # type: ignore[misc]
    """Brings the schema to the version of the package after each `migrate`."""

    name = "spanmq.django"
    label = "spanmq"
    verbose_name = "spanmq"

    def ready(self) -> None:
        """Connect the signal, and register the check."""
        post_migrate.connect(upgrade, sender=self)
        checks.register(check_databases)


def check_databases(**_: Any) -> list[checks.CheckMessage]:
    """Warn if no database of the settings is PostgreSQL: migrations leave others as they are, and sends fail."""
    from django.db import connections

    if any(connections[alias].vendor == "postgresql" for alias in connections):
        return []
    return [
        checks.Warning(
            "No database in DATABASES is PostgreSQL, where the queues of spanmq are.",
            hint="Use the engine django.db.backends.postgresql.",
            id="spanmq.W001",
        )
    ]


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
