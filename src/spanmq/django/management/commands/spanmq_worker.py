"""`manage.py spanmq_worker`: run the tasks of the project."""

import logging
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError

from spanmq.django.management.project import project_tasks
from spanmq.errors import SpanmqError
from spanmq.worker import log
from spanmq.worker.condition import monitored

LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"


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
        parser.add_argument(
            "--metrics-port", type=int, help="serve /metrics, /healthz and /readyz at this port"
        )
        parser.add_argument(
            "--metrics-host", default="127.0.0.1", help="the address that they listen on; 0.0.0.0: all"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        """Run."""
        tasks = project_tasks(options["tasks"])
        tasks.creates_queues |= options["create_queues"]
        queues = options["queue"] or tasks.queues
        log_to_stderr()
        self.stdout.write(f"Receiving from {', '.join(queues)}. Quit with CONTROL-C.")
        try:
            with monitored(options["metrics_port"], options["metrics_host"]) as observers:
                tasks.run(
                    queues=queues,
                    concurrency=options["concurrency"],
                    grace=options["grace"],
                    observers=[log.write, *observers],
                )
        except SpanmqError as error:
            raise CommandError(str(error)) from error


def log_to_stderr() -> None:
    """Log with time and level where the project's LOGGING has no handler, which Python would write without them."""
    logger = logging.getLogger("spanmq")
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(LOG_FORMAT))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
