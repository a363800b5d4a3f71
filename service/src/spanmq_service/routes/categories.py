"""Routes for categories of failures: which errors belong to a category, and how it is handled."""

from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import asdict
from starlette.responses import Response

from spanmq.model import CategoryPolicy, CategoryRule
from spanmq_service.backend import Backend
from spanmq_service.http.json_text import reply
from spanmq_service.routes.parts import (
    Existed,
    Given,
    MayLook,
    MayLookAtAll,
    MayManage,
    MayManageAll,
    Named,
    QueueName,
    Text,
    answer,
)
from spanmq_service.routes.table import Table

routes = Table("categories")

RuleName = Annotated[str, Meta(min_length=1, max_length=100)]
Category = Annotated[str, Meta(min_length=1, max_length=20)]
Settings = Annotated[dict[str, Any] | None, Meta(description="null: as the queue's policy says")]


class Error(Given, kw_only=True):
    """An error's text and class."""

    error: Text | None = None
    error_class: Text | None = None


class Rule(Given, kw_only=True):
    """Errors that match belong to this category."""

    category: Annotated[str, Meta(max_length=20)]
    error: Annotated[str, Meta(max_length=500)] | None = None
    error_class: Annotated[str, Meta(max_length=500)] | None = None
    place: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] = 100


class Meaning(Given, kw_only=True):
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


Classified = answer("Classified", category=str)
Rules = answer("CategoryRules", rules=list[CategoryRule])
Policies = answer("CategoryPolicies", policies=list[CategoryPolicy])
Meant = answer("CategoryPolicyAnswer", policy=CategorySettings)


@routes.post("/classify", answer=Classified)
async def classify(backend: Backend, _: MayLookAtAll, error: Error | None = None) -> Response:
    """Return the category that the rules of all queues assign to an error."""
    error = error or Error()
    return reply(
        category=await backend.client.dead_letters.categories.classify(
            error.error, error_class=error.error_class
        )
    )


@routes.post("/queues/{queue}/classify", answer=Classified)
async def classify_in_queue(
    queue: QueueName, backend: Backend, _: MayLook, error: Error | None = None
) -> Response:
    """Return the category that the rules of a queue assign to an error."""
    error = error or Error()
    found = await backend.client.dead_letters.categories.classify(
        error.error, error_class=error.error_class, queue=queue
    )
    return reply(category=found)


@routes.get("/category-rules", answer=Rules)
async def list_category_rules(backend: Backend, _: MayLookAtAll) -> Response:
    """List the rules, in the order in which they are asked."""
    return reply(rules=await backend.client.dead_letters.categories.list_rules())


@routes.put("/category-rules/{name}", answer=Named)
async def set_category_rule(name: RuleName, rule: Rule, backend: Backend, caller: MayManageAll) -> Response:
    """Create or change a rule for all queues."""
    async with backend.patterns.acting(caller, rule.error, rule.error_class) as client:
        await client.dead_letters.categories.set_rule(name, **asdict(rule))
    return reply(name=name)


@routes.delete("/category-rules/{name}", answer=Existed)
async def drop_category_rule(name: RuleName, backend: Backend, _: MayManageAll) -> Response:
    """Drop a rule for all queues."""
    return reply(existed=await backend.client.dead_letters.categories.drop_rule(name))


@routes.get("/queues/{queue}/category-rules", answer=Rules)
async def list_category_rules_of_queue(queue: QueueName, backend: Backend, _: MayLook) -> Response:
    """List the rules of a queue and those of all queues."""
    return reply(rules=await backend.client.dead_letters.categories.list_rules(queue))


@routes.put("/queues/{queue}/category-rules/{name}", answer=Named)
async def set_category_rule_of_queue(
    queue: QueueName, name: RuleName, rule: Rule, backend: Backend, caller: MayManage
) -> Response:
    """Create or change a rule of a queue."""
    async with backend.patterns.acting(caller, rule.error, rule.error_class) as client:
        await client.dead_letters.categories.set_rule(name, queue=queue, **asdict(rule))
    return reply(name=name)


@routes.delete("/queues/{queue}/category-rules/{name}", answer=Existed)
async def drop_category_rule_of_queue(
    queue: QueueName, name: RuleName, backend: Backend, _: MayManage
) -> Response:
    """Drop a rule of a queue."""
    return reply(existed=await backend.client.dead_letters.categories.drop_rule(name, queue=queue))


@routes.get("/category-policies", answer=Policies)
async def list_category_policies(backend: Backend, _: MayLookAtAll) -> Response:
    """List what each category means in general."""
    return reply(policies=await backend.client.dead_letters.categories.list_policies())


@routes.put("/category-policies/{category}", answer=Meant)
async def set_category_policy(
    category: Category, meaning: Meaning, backend: Backend, _: MayManageAll
) -> Response:
    """Change what a category means in general."""
    return reply(policy=await backend.client.dead_letters.categories.set_policy(category, meaning.settings))


@routes.get("/queues/{queue}/category-policies", answer=Policies)
async def list_category_policies_of_queue(queue: QueueName, backend: Backend, _: MayLook) -> Response:
    """List what each category means in a queue."""
    return reply(policies=await backend.client.dead_letters.categories.list_policies(queue))


@routes.put("/queues/{queue}/category-policies/{category}", answer=Meant)
async def set_category_policy_of_queue(
    queue: QueueName, category: Category, meaning: Meaning, backend: Backend, _: MayManage
) -> Response:
    """Change what a category means in a queue."""
    found = await backend.client.dead_letters.categories.set_policy(category, meaning.settings, queue=queue)
    return reply(policy=found)
