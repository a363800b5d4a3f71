"""`manage.py spanmq_queues`: write the migration that creates the queues of the tasks."""

from pathlib import Path
from typing import Any

from django.apps import apps
from django.core.management.base import BaseCommand, CommandError
from django.db.migrations import Migration
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.writer import MigrationWriter

from spanmq.django.management.project import project_tasks
from spanmq.django.operations import CreateQueues

FILE = '''"""Queues of tasks."""

from django.db import migrations
from spanmq.django.operations import CreateQueues


class Migration(migrations.Migration):
    dependencies = {dependencies!r}
    operations = [CreateQueues({queues})]
'''


class Command(BaseCommand):  # type: ignore[misc]
    """The command."""

    help = "Write a migration that creates the queues of the tasks which no migration creates yet."

    def add_arguments(self, parser: Any) -> None:
        """Name the options."""
        parser.add_argument("app", help="the label of the app that gets the migration")
        parser.add_argument("tasks", nargs="?", help="such as shop.tasks.tasks; SPANMQ_TASKS by default")

    def handle(self, *_: Any, **options: Any) -> None:
        """Write it, unless a migration creates each queue."""
        try:
            app = apps.get_app_config(options["app"])
        except LookupError as error:
            raise CommandError(str(error)) from error
        loader = MigrationLoader(None, ignore_no_migrations=True)
        created = {
            queue.lower()
            for migration in loader.disk_migrations.values()
            for operation in migration.operations
            if isinstance(operation, CreateQueues)
            for queue in operation.queues
        }
        queues = [queue for queue in project_tasks(options["tasks"]).queues if queue.lower() not in created]
        if not queues:
            self.stdout.write("Migrations create all queues of the tasks.")
            return
        leaves = loader.graph.leaf_nodes(app.label)
        if len(leaves) > 1:
            raise CommandError(f"App {app.label} has several last migrations: run makemigrations --merge.")
        number = (MigrationAutodetector.parse_number(leaves[0][1]) or 0) + 1 if leaves else 1
        path = Path(MigrationWriter(Migration(f"{number:04}_queues", app.label)).path)
        path.parent.mkdir(exist_ok=True)
        (path.parent / "__init__.py").touch()
        dependencies = [*leaves, ("spanmq", "0001_schema")]
        path.write_text(
            FILE.format(dependencies=dependencies, queues=", ".join(map(repr, queues))), encoding="utf-8"
        )
        self.stdout.write(f"Wrote {path}: it creates {', '.join(queues)}. Run manage.py migrate.")
