"""Its tasks: those of the shop, and of Django's own framework."""

from importlib import import_module

from shop.jobs import FRAMEWORK  # type: ignore[import-not-found]
from shop.tasks import tasks  # type: ignore[import-not-found]

posted: list[str] = []


@tasks.task  # type: ignore[untyped-decorator]
def post(to: str) -> None:
    posted.append(to)


@import_module(FRAMEWORK).task(queue_name="orders")  # type: ignore[untyped-decorator]
def post_all(to: list[str]) -> None:
    posted.extend(to)
