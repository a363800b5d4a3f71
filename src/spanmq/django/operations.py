"""Operations for migrations of yours."""

from typing import Any

from django.db.migrations.operations.base import Operation

from spanmq import schema
from spanmq.client import Client


class InstallSchema(Operation):  # type: ignore[misc]
    """Install the schema of spanmq, or bring it to this version; going back leaves it in place."""

    reversible = True
    reduces_to_sql = False

    def state_forwards(self, *_: Any) -> None:
        """Do nothing: the schema has no models."""

    def database_forwards(self, _: str, schema_editor: Any, *__: Any) -> None:
        """Install it, in the transaction of the migration."""
        connection = schema_editor.connection
        if connection.vendor == "postgresql":
            connection.ensure_connection()
            schema.install(connection.connection)

    def database_backwards(self, *_: Any) -> None:
        """Do nothing: `spanmq schema uninstall` removes it."""

    def describe(self) -> str:
        """Describe the operation."""
        return "Install the schema of spanmq"


class CreateQueues(InstallSchema):
    """Create queues; going back leaves them in place."""

    def __init__(self, *queues: str) -> None:
        self.queues = queues

    def database_forwards(self, _: str, schema_editor: Any, *__: Any) -> None:
        """Create them, in the transaction of the migration."""
        if schema_editor.connection.vendor == "postgresql":
            client = Client(connection=schema_editor.connection)
            for queue in self.queues:
                client.queues.create(queue)

    def describe(self) -> str:
        """Describe the operation."""
        return f"Create the queues {', '.join(self.queues)}"
