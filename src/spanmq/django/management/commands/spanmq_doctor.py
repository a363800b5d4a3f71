"""`manage.py spanmq_doctor`: say whether the server of a database is fit for queues."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from spanmq.client import Client
from spanmq.errors import SpanmqError


class Command(BaseCommand):  # type: ignore[misc]
    """The command."""

    help = "Check the server for its job as a queue."

    def add_arguments(self, parser: Any) -> None:
        """Name the options."""
        parser.add_argument("--database", default="default", help="the alias of a database")

    def handle(self, *_: Any, **options: Any) -> None:
        """Print the findings; fail if there is a problem."""
        connection = connections[options["database"]]
        connection.ensure_connection()
        try:
            findings = Client(connection=connection).health.doctor()
        except SpanmqError as error:
            raise CommandError(str(error)) from error
        for finding in findings:
            self.stdout.write(f"{finding.level:8}{finding.check}: {finding.finding}")
        if any(finding.level == "problem" for finding in findings):
            raise CommandError("The server is not fit.")
