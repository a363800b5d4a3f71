"""A backend for `django.tasks` of Django 6, or the package django-tasks before: its tasks are spanmq's."""

from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from threading import Lock
from traceback import format_exception
from typing import Any, Final

from django.utils.module_loading import import_string

from spanmq.errors import InvalidArgumentError, UnknownTaskError
from spanmq.model import Message
from spanmq.tasks import GIVEN, Task, Tasks


def _framework() -> str:
    for name in ("django.tasks", "django_tasks"):
        try:
            import_module(name)
        except ImportError:
            continue
        return name
    raise InvalidArgumentError(
        "Django has no framework for tasks here",
        hint="Use Django 6, or pip install django-tasks.",
        code="invalid_setting",
    )


FRAMEWORK: Final = _framework()
base: Any = import_module(f"{FRAMEWORK}.base")
signals: Any = import_module(f"{FRAMEWORK}.signals")
BaseTaskBackend: Any = import_module(f"{FRAMEWORK}.backends.base").BaseTaskBackend

# Of Django's priorities, -100 to 100, those above 0 are ours from 1 to 9.
PRIORITY_STEP: Final = 100 / 9
# Django makes a backend for each thread and each request: their tasks are registered once.
REGISTERING: Final = Lock()
# Django's tasks by their backends and paths, since a module with them was imported: a message names one of these.
REGISTERED: Final[dict[tuple[str, str], Any]] = {}


class SpanmqBackend(BaseTaskBackend):  # type: ignore[misc]
    """Sends through the `Tasks` that OPTIONS names: {"tasks": "shop.tasks.tasks"}; in Django's transaction.

    Its queues must exist, and a worker must know them: empty QUEUES are "default" only, not any queue. A worker
    runs a task from the queue that its decorator names only, and finds it in tasks.py of an installed app or in a
    module of OPTIONS["modules"]. What becomes of a task is for the worker and the
    dashboard: there are no results.
    """

    supports_defer = True
    supports_async_task = True
    supports_priority = True
    supports_get_result = False

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.queues = {*(params.get("QUEUES") or ["default"])}

    def validate_task(self, task: Any) -> None:
        """Check a task as Django does when it is decorated, and register it."""
        super().validate_task(task)
        key = self.alias, task.module_path
        # What `using` returns is another task of the same function.
        if key not in REGISTERED or REGISTERED[key].func is not task.func:
            REGISTERED[key] = task

    def register(self) -> dict[str, Task[..., Any]]:
        """Return a task for each queue, which runs Django's; registered by the first call, also in a worker."""
        tasks: Tasks = import_string(self.options["tasks"])
        names = {queue: f"django.{self.alias}.{queue}" for queue in sorted(self.queues)}
        with REGISTERING:
            for queue, name in names.items():
                if name not in tasks.catalog.tasks:
                    tasks.task(name=name, queue=queue)(runner_of(self.alias))
        return {queue: tasks.catalog.tasks[name] for queue, name in names.items()}

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Send a task."""
        self.validate_task(task)
        if (queue := REGISTERED[self.alias, task.module_path].queue_name) != task.queue_name:
            raise InvalidArgumentError(
                f"task {task.module_path!r} is registered for queue {queue!r}, not for {task.queue_name!r}",
                hint="Write @task(queue_name=…): a worker runs it from no other queue.",
                queue=task.queue_name,
            )
        run = self.register()[task.queue_name]
        result = _result(task, "", list(args), kwargs, "READY", datetime.now(UTC))
        options: dict[str, Any] = {"priority": min(9, max(0, round(task.priority / PRIORITY_STEP)))}
        if task.run_after is not None:
            options["at"] = task.run_after
        sent = run.using(**options).send(task.module_path, result.args, result.kwargs)
        object.__setattr__(result, "id", f"{sent.queue}/{sent.message_id}")
        signals.task_enqueued.send(type(self), task_result=result)
        return result


def register_backends() -> None:
    """Register the tasks of all backends of this kind, if the settings have any."""
    handler = import_module(FRAMEWORK).task_backends
    for alias in handler.settings:
        if isinstance(backend := handler[alias], SpanmqBackend):
            for module in backend.options.get("modules", ()):
                import_module(module)
            backend.register()


def runner_of(alias: str) -> Callable[..., None]:
    """Return the function that runs the tasks of a backend."""

    def run(path: str, args: list[Any], kwargs: dict[str, Any], message: Message = GIVEN) -> None:
        run_django_task(find_task(alias, path, message.queue), args, kwargs, message)

    return run


def find_task(alias: str, path: str, queue: str) -> Any:
    """Return the task of a backend that has this path, and that is for this queue; raises UnknownTaskError.

    Nothing is imported: a path in a message may be of any module.
    """
    task = REGISTERED.get((alias, path))
    if task is None or task.queue_name.lower() != queue.lower():
        raise UnknownTaskError(
            f"this worker has no task {path!r} of backend {alias!r} for queue {queue!r}",
            hint="It finds those in tasks.py of the installed apps, and in OPTIONS['modules'] of the backend.",
            queue=queue,
        )
    return task


def run_django_task(task: Any, args: list[Any], kwargs: dict[str, Any], message: Message) -> None:
    """Run one of Django's tasks, with its signals."""
    now = datetime.now(UTC)
    result = _result(
        task, f"{message.queue}/{message.message_id}", args, kwargs, "RUNNING", message.enqueued_at
    )
    object.__setattr__(result, "started_at", now)
    object.__setattr__(result, "last_attempted_at", now)
    # Django counts attempts by the workers that made them, whose names a message does not have.
    result.worker_ids.extend(["spanmq"] * message.attempt)
    sender = type(task.get_backend())
    signals.task_started.send(sender, task_result=result)
    status = "FAILED"
    try:
        context = (base.TaskContext(task_result=result),) if task.takes_context else ()
        task.call(*context, *args, **kwargs)
        status = "SUCCESSFUL"
    except BaseException as error:
        name = f"{type(error).__module__}.{type(error).__qualname__}"
        text = "".join(format_exception(error))
        result.errors.append(base.TaskError(exception_class_path=name, traceback=text))
        raise
    finally:
        object.__setattr__(result, "status", getattr(base.TaskResultStatus, status))
        object.__setattr__(result, "finished_at", datetime.now(UTC))
        signals.task_finished.send(sender, task_result=result)


def _result(
    task: Any, result_id: str, args: list[Any], kwargs: dict[str, Any], status: str, enqueued_at: datetime
) -> Any:
    return base.TaskResult(
        task=task,
        id=result_id,
        status=getattr(base.TaskResultStatus, status),
        enqueued_at=enqueued_at,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=args,
        kwargs=kwargs,
        backend=task.backend,
        errors=[],
        worker_ids=[],
    )
