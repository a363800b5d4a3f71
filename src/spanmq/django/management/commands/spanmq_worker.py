"""`manage.py spanmq_worker`: run the tasks of the project."""

from typing import Any

from django.core.management.base import BaseCommand

from spanmq.django.management.project import project_tasks


class Command(BaseCommand):  # type: ignore[misc]
    """The command."""

    help = "Run the tasks of the project, of tasks.py in each installed app, until SIGTERM or Ctrl-C."

    def add_arguments(self, parser: Any) -> None:
        """Name the options."""
        parser.add_argument("tasks", nargs="?", help="such as shop.tasks.tasks; SPANMQ_TASKS by default")
        parser.add_argument("--queue", "-q", action="append", help="only this queue; may be given again")
        parser.add_argument("--create-queues", action="store_true", help="create the queues that are missing")
        parser.add_argument("--concurrency", type=int, default=10, help="how many tasks run at once")
        parser.add_argument("--grace", type=float, default=25.0, help="seconds to end after a signal")

    def handle(self, *_: Any, **options: Any) -> None:
        """Run."""
        tasks = project_tasks(options["tasks"])
        tasks.creates_queues |= options["create_queues"]
        queues = options["queue"] or tasks.queues
        self.stdout.write(f"Receiving from {', '.join(queues)}. Quit with CONTROL-C.")
        tasks.run(queues=queues, concurrency=options["concurrency"], grace=options["grace"])
