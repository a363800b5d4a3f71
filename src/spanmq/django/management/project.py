"""The tasks of a Django project, as its settings or a command name them."""

from django.conf import settings
from django.core.management.base import CommandError
from django.utils.module_loading import autodiscover_modules

from spanmq.errors import InvalidArgumentError
from spanmq.tasks import Tasks
from spanmq.worker.handler import find


def project_tasks(path: str | None) -> Tasks:
    """Return the tasks at a path, by default SPANMQ_TASKS, with those of all apps; raises CommandError."""
    path = path or getattr(settings, "SPANMQ_TASKS", None)
    if path is None:
        raise CommandError("Name the tasks, such as shop.tasks.tasks, in the command or as SPANMQ_TASKS.")
    # Tasks are known once their modules are imported.
    autodiscover_modules("tasks")
    try:
        tasks = find(path)
        if not isinstance(tasks, Tasks):
            raise CommandError(f"{path} is not a registry of tasks, it is a {type(tasks).__name__}.")
        tasks.load()
        if hasattr(settings, "TASKS"):
            from spanmq.django.backend import register_backends

            register_backends()
    except InvalidArgumentError as error:
        raise CommandError(str(error)) from error
    return tasks
