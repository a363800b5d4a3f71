"""`manage.py spanmq_worker`: run the tasks of the project."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils.module_loading import autodiscover_modules, import_string

from spanmq.tasks import Tasks


class Command(BaseCommand):  # type: ignore[misc]
    """The command."""

    help = "Run the tasks of the project, of tasks.py in each installed app, until SIGTERM or Ctrl-C."

    def add_arguments(self, parser: Any) -> None:
        """Name the options."""
        parser.add_argument("tasks", nargs="?", help="such as shop.tasks.tasks; SPANMQ_TASKS by default")
        parser.add_argument("--queue", "-q", action="append", help="only this queue; may be given again")
        parser.add_argument("--concurrency", type=int, default=10, help="how many tasks run at once")
        parser.add_argument("--grace", type=float, default=25.0, help="seconds to end after a signal")

    def handle(self, *_: Any, **options: Any) -> None:
        """Run."""
        path = options["tasks"] or getattr(settings, "SPANMQ_TASKS", None)
        if path is None:
            raise CommandError("Name the tasks: manage.py spanmq_worker shop.tasks.tasks, or SPANMQ_TASKS.")
        # Tasks are known once their modules are imported.
        autodiscover_modules("tasks")
        tasks = import_string(path)
        if not isinstance(tasks, Tasks):
            raise CommandError(f"{path} is not a registry of tasks, it is a {type(tasks).__name__}.")
        if hasattr(settings, "TASKS"):
            from spanmq.django.backend import register_backends

            register_backends()
        queues = options["queue"] or tasks.queues
        self.stdout.write(f"Receiving from {', '.join(queues)}. Quit with CONTROL-C.")
        tasks.run(queues=queues, concurrency=options["concurrency"], grace=options["grace"])
