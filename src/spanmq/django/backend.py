"""A backend for `django.tasks` of Django 6, or the package django-tasks before: its tasks are spanmq's."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from importlib import import_module
from threading import Lock
from traceback import format_exception
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.utils.crypto import constant_time_compare, salted_hmac
from django.utils.module_loading import import_string

from spanmq.client import Client
from spanmq.codec.encryption import Unopened
from spanmq.errors import InvalidArgumentError, UnknownTaskError
from spanmq.model import Failure, Message
from spanmq.model.queue import folded
from spanmq.tasks import GIVEN, Task, Tasks

__all__ = ["SpanmqBackend"]


def _framework() -> str:
    for name in ("django.tasks", "django_tasks"):
        try:
            import_module(name)
        except ImportError:
            continue
        return name
    raise InvalidArgumentError(
        "this Django has no framework for tasks",
        hint="Use Django 6, or pip install django-tasks.",
        code="invalid_setting",
    )


FRAMEWORK: Final = _framework()
base: Any = import_module(f"{FRAMEWORK}.base")
signals: Any = import_module(f"{FRAMEWORK}.signals")
BaseTaskBackend: Any = import_module(f"{FRAMEWORK}.backends.base").BaseTaskBackend
TaskResultDoesNotExist: Any = import_module(f"{FRAMEWORK}.exceptions").TaskResultDoesNotExist

# Of Django's priorities, -100 to 100, those above 0 are ours from 1 to 9.
PRIORITY_STEP: Final = 100 / 9
# Django's status of a message that is in its queue, by its state.
STATUS_OF: Final = {"pending": "READY", "delayed": "READY", "failed": "READY", "processing": "RUNNING"}
# States of a message that is neither in its queue nor a dead letter.
DONE: Final = frozenset({"completed", "unknown"})
LOOKUPS_MAX: Final = 5
# Django makes a backend for each thread and each request: their tasks are registered once.
REGISTERING: Final = Lock()
# Django's tasks by their backends and paths, since a module with them was imported: a message names one of these.
REGISTERED: Final[dict[tuple[str, str], Any]] = {}


class SpanmqBackend(BaseTaskBackend):  # type: ignore[misc]
    """Sends through the `Tasks` that OPTIONS names: {"tasks": "shop.tasks.tasks"}; in Django's transaction.

    Its queues must exist, and a worker must know them: empty QUEUES are "default" only, not any queue. A worker
    runs a task from the queue that its decorator names only, and finds it in tasks.py of an installed app or in a
    module of OPTIONS["modules"]. A result is stored for an hour, or for OPTIONS["store_result"] seconds (False:
    not), with the arguments: together they have at most 64 KB as JSON. One that can't be stored is reported as missing,
    with the reason; its task is done.
    """

    supports_defer = True
    supports_async_task = True
    supports_priority = True
    supports_get_result = True

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
        keep_for = self.options.get("store_result", True)
        with REGISTERING:
            for queue, name in names.items():
                if name not in tasks.catalog.tasks:
                    tasks.task(name=name, queue=queue, store_result=keep_for)(runner_of(self.alias))
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
        object.__setattr__(result, "id", id_of(self.alias, sent.queue, sent.message_id))
        signals.task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """Return the result of a task by its id; raises TaskResultDoesNotExist.

        It is SUCCESSFUL for as long as the result is stored, and FAILED for as long as the dead letter is. A task
        that waits for another attempt is READY, with the errors of the earlier ones. Reads in Django's transaction.
        """
        reference = message_of(self.alias, self.queues, str(result_id))
        if reference is None:
            raise TaskResultDoesNotExist(result_id)
        queue, message_id = reference
        client = import_string(self.options["tasks"]).clients.of()
        state, message = _look_up(client, queue, message_id)
        if message is None:
            stored = client.results.get(queue, [message_id]) if state in DONE else {}
            return self._stored_result(result_id, queue, stored.get(message_id))
        body = message.body if isinstance(message.body, dict) else {}
        if body.get("task") != f"django.{self.alias}.{queue}":
            raise TaskResultDoesNotExist(result_id)
        call = body["args"]
        task = self._task_of(result_id, queue, call["path"])
        status = STATUS_OF.get(state, "FAILED")
        result = _result(task, result_id, call["args"], call["kwargs"], status, message.enqueued_at)
        result.errors.extend(map(_error, client.inspect.failures(queue, message_id)))
        if state == "dead":
            result.worker_ids.extend(["spanmq"] * message.attempts)
            times = {"finished_at": message.dead_at, "last_attempted_at": message.last_failed_at}
        else:
            result.worker_ids.extend(["spanmq"] * message.attempt)
            times = {"last_attempted_at": message.last_read_at}
            if message.attempt == 1:
                times["started_at"] = message.last_read_at
        for name, value in times.items():
            object.__setattr__(result, name, value)
        return result

    def _stored_result(self, result_id: str, queue: str, stored: Any) -> Any:
        """Return a result out of what `_record` stored."""
        if isinstance(stored, Unopened):
            raise TaskResultDoesNotExist(f"{result_id}: {stored.error.message}")
        if not isinstance(stored, dict) or stored.get("backend") != self.alias:
            raise TaskResultDoesNotExist(result_id)
        task = self._task_of(result_id, queue, stored["path"])
        times = {
            name: datetime.fromisoformat(stored[name])
            for name in ("enqueued_at", "started_at", "finished_at")
        }
        result = _result(
            task, result_id, stored["args"], stored["kwargs"], "SUCCESSFUL", times["enqueued_at"]
        )
        result.worker_ids.extend(["spanmq"] * stored["attempts"])
        times["last_attempted_at"] = times["started_at"]
        for name, value in {**times, "_return_value": stored["return_value"]}.items():
            object.__setattr__(result, name, value)
        return result

    def _task_of(self, result_id: str, queue: str, path: str) -> Any:
        try:
            return find_task(self.alias, path, queue)
        except UnknownTaskError as error:
            raise TaskResultDoesNotExist(result_id) from error


def id_of(alias: str, queue: str, message_id: int, key: str | None = None) -> str:
    """Return the id of a result: a UUID that only a holder of SECRET_KEY can make or read.

    Programs write it into addresses, where the number of a message would let a visitor count to other results.
    Half of it authenticates backend, queue and message; the other half is the message id under a mask of the first.
    """
    mark = _keyed("mark", f"{alias}/{queue.lower()}/{message_id}", key)
    return str(UUID(bytes=mark + _masked(message_id.to_bytes(8), mark, key)))


def message_of(alias: str, queues: Iterable[str], result_id: str) -> tuple[str, int] | None:
    """Return the queue and the message id of a result by its id; None if no backend here made it."""
    try:
        both = UUID(result_id).bytes
    except ValueError:
        return None
    for key in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS):
        message_id = int.from_bytes(_masked(both[8:], both[:8], key))
        for queue in queues:
            if constant_time_compare(both[:8], _keyed("mark", f"{alias}/{queue.lower()}/{message_id}", key)):
                return queue, message_id
    return None


def _keyed(purpose: str, value: str | bytes, key: str | None) -> bytes:
    digest: bytes = salted_hmac(f"spanmq.django.{purpose}", value, key, algorithm="sha256").digest()
    return digest[:8]


def _masked(value: bytes, mark: bytes, key: str | None) -> bytes:
    mask = _keyed("mask", mark, key)
    return bytes(one ^ other for one, other in zip(value, mask, strict=True))


def register_backends() -> None:
    """Register the tasks of all backends of this kind, if the settings have any."""
    handler = import_module(FRAMEWORK).task_backends
    for alias in handler.settings:
        if isinstance(backend := handler[alias], SpanmqBackend):
            for module in backend.options.get("modules", ()):
                import_module(module)
            backend.register()


def runner_of(alias: str) -> Callable[..., Any]:
    """Return the function that runs the tasks of a backend."""

    def run(path: str, args: list[Any], kwargs: dict[str, Any], message: Message = GIVEN) -> Any:
        return run_django_task(find_task(alias, path, message.queue), args, kwargs, message)

    return run


def find_task(alias: str, path: str, queue: str) -> Any:
    """Return the task of a backend that has this path, and that is for this queue; raises UnknownTaskError.

    Nothing is imported: a path in a message may be of any module.
    """
    task = REGISTERED.get((alias, path))
    if task is None or folded(task.queue_name) != folded(queue):
        raise UnknownTaskError(
            f"this worker has no task {path!r} of backend {alias!r} for queue {queue!r}",
            hint="It finds those in tasks.py of the installed apps, and in OPTIONS['modules'] of the backend.",
            queue=queue,
        )
    return task


def run_django_task(task: Any, args: list[Any], kwargs: dict[str, Any], message: Message) -> Any:
    """Run one of Django's tasks, with its signals; return what to store of it."""
    now = datetime.now(UTC)
    result_id = id_of(task.backend, message.queue, message.message_id)
    result = _result(task, result_id, args, kwargs, "RUNNING", message.enqueued_at)
    object.__setattr__(result, "started_at", now)
    object.__setattr__(result, "last_attempted_at", now)
    # Django counts attempts by the workers that made them, whose names a message does not have.
    result.worker_ids.extend(["spanmq"] * message.attempt)
    sender = type(task.get_backend())
    signals.task_started.send(sender, task_result=result)
    status = "FAILED"
    try:
        context = (base.TaskContext(task_result=result),) if task.takes_context else ()
        object.__setattr__(result, "_return_value", task.call(*context, *args, **kwargs))
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
    return _record(result)


def _look_up(client: Client, queue: str, message_id: int) -> tuple[str, Any]:
    """Return the state of a message, and the message or dead letter; None if it is done or unknown."""
    state = "unknown"
    # A message may move on between two of these calls, so that none of them finds it.
    for _ in range(LOOKUPS_MAX):
        state = client.inspect.state(queue, message_id)
        if state in DONE:
            break
        if state == "dead":
            rows: list[Any] = [*client.dead_letters.show(queue, message_id)[-1:]]
        else:
            rows = [*client.peek(queue, 1, after=message_id - 1)]
        if rows and rows[0].message_id == message_id:
            return state, rows[0]
    return state, None


def _record(result: Any) -> dict[str, Any]:
    return {
        "backend": result.backend,
        "path": result.task.module_path,
        "args": result.args,
        "kwargs": result.kwargs,
        "attempts": result.attempts,
        "enqueued_at": result.enqueued_at.isoformat(),
        "started_at": result.started_at.isoformat(),
        "finished_at": result.finished_at.isoformat(),
        "return_value": result.return_value,
    }


def _error(failure: Failure) -> Any:
    # One without a class is a lease that expired, or a rejection by hand.
    name = failure.error_class or "spanmq.errors.TaskFailedError"
    path = name if "." in name else f"builtins.{name}"
    return base.TaskError(exception_class_path=path, traceback=failure.traceback or failure.error or "")


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
