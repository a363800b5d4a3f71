"""Routes for categories of failures: which errors belong to a category, and how it is handled."""

from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import asdict
from starlette.responses import Response

from spanmq_service.backend import Backend
from spanmq_service.http.json_text import reply
from spanmq_service.routes.doors import add_doors
from spanmq_service.routes.parts import (
    MayManage,
    MayManageAll,
    Named,
    QueueName,
    RequestModel,
    answer,
)
from spanmq_service.routes.table import Table

routes = Table("categories")

RuleName = Annotated[str, Meta(min_length=1, max_length=100)]
Category = Annotated[str, Meta(min_length=1, max_length=20)]
Settings = Annotated[dict[str, Any] | None, Meta(description="null: as the queue's policy says")]


class Rule(RequestModel, kw_only=True):
    """Errors that match belong to this category."""

    category: Annotated[str, Meta(max_length=20)]
    error: Annotated[str, Meta(max_length=500)] | None = None
    error_class: Annotated[str, Meta(max_length=500)] | None = None
    place: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] = 100


class Meaning(RequestModel, kw_only=True):
    """The settings of a category."""

    settings: Settings


class CategorySettings(Struct):
    """The settings of a category; null stands for the queue's policy."""

    category: str
    retries: bool
    max_attempts: int | None
    backoff_base: float | None
    backoff_factor: float | None
    backoff_max: float | None


Meant = answer("CategoryPolicyAnswer", policy=CategorySettings)


@routes.put("/category-rules/{name}", answer=Named)
async def set_category_rule(name: RuleName, rule: Rule, backend: Backend, caller: MayManageAll) -> Response:
    """Create or change a rule for all queues."""
    async with backend.costly_searches.acting(caller, rule.error, rule.error_class) as client:
        await client.dead_letters.categories.set_rule(name, **asdict(rule))
    return reply(name=name)


@routes.put("/queues/{queue}/category-rules/{name}", answer=Named)
async def set_category_rule_of_queue(
    queue: QueueName, name: RuleName, rule: Rule, backend: Backend, caller: MayManage
) -> Response:
    """Create or change a rule of a queue."""
    async with backend.costly_searches.acting(caller, rule.error, rule.error_class) as client:
        await client.dead_letters.categories.set_rule(name, queue=queue, **asdict(rule))
    return reply(name=name)


@routes.put("/category-policies/{category}", answer=Meant)
async def set_category_policy(
    category: Category, meaning: Meaning, backend: Backend, _: MayManageAll
) -> Response:
    """Change what a category means in general."""
    return reply(policy=await backend.client.dead_letters.categories.set_policy(category, meaning.settings))


@routes.put("/queues/{queue}/category-policies/{category}", answer=Meant)
async def set_category_policy_of_queue(
    queue: QueueName, category: Category, meaning: Meaning, backend: Backend, _: MayManage
) -> Response:
    """Change what a category means in a queue."""
    policy = await backend.client.dead_letters.categories.set_policy(category, meaning.settings, queue=queue)
    return reply(policy=policy)


add_doors(routes, "category")
