"""Routes for categories of failures: which errors belong to a category, and how it is handled."""

from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field
from starlette.responses import Response

from spanmq.model import CategoryPolicy, CategoryRule
from spanmq.service.guard.access import Guarded
from spanmq.service.http.json_text import reply
from spanmq.service.routes.parts import (
    BackendDependency,
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

routes = APIRouter(prefix="/v1", tags=["categories"], route_class=Guarded)

RuleName = Annotated[str, Path(min_length=1, max_length=100)]
Category = Annotated[str, Path(min_length=1, max_length=20)]
Settings = Annotated[dict[str, Any] | None, Field(description="null: as the queue's policy says")]


class Error(Given):
    """An error's text and class."""

    error: Text | None = None
    error_class: Text | None = None


class Rule(Given):
    """Errors that match belong to this category."""

    category: Annotated[str, Field(max_length=20)]
    error: Annotated[str, Field(max_length=500)] | None = None
    error_class: Annotated[str, Field(max_length=500)] | None = None
    place: Annotated[int, Field(ge=-(2**31), lt=2**31)] = 100


class Meaning(Given):
    """How a category is handled: its settings."""

    settings: Settings


class CategorySettings(BaseModel):
    """How a category is handled; null: as the queue's policy says."""

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


@routes.post("/classify", response_model=Classified)
async def classify(backend: BackendDependency, _: MayLookAtAll, error: Error | None = None) -> Response:
    """Return the category that the rules of all queues assign to an error."""
    error = error or Error()
    return reply(
        category=await backend.client.dead_letters.categories.classify(
            error.error, error_class=error.error_class
        )
    )


@routes.post("/queues/{queue}/classify", response_model=Classified)
async def classify_in_queue(
    queue: QueueName, backend: BackendDependency, _: MayLook, error: Error | None = None
) -> Response:
    """Return the category that the rules of a queue assign to an error."""
    error = error or Error()
    found = await backend.client.dead_letters.categories.classify(
        error.error, error_class=error.error_class, queue=queue
    )
    return reply(category=found)


@routes.get("/category-rules", response_model=Rules)
async def list_category_rules(backend: BackendDependency, _: MayLookAtAll) -> Response:
    """List the rules, in the order in which they are asked."""
    return reply(rules=await backend.client.dead_letters.categories.list_rules())


@routes.put("/category-rules/{name}", response_model=Named)
async def set_category_rule(
    name: RuleName, rule: Rule, backend: BackendDependency, caller: MayManageAll
) -> Response:
    """Create or change a rule for all queues."""
    async with backend.patterns.acting(caller, rule.error, rule.error_class) as client:
        await client.dead_letters.categories.set_rule(name, **rule.model_dump())
    return reply(name=name)


@routes.delete("/category-rules/{name}", response_model=Existed)
async def drop_category_rule(name: RuleName, backend: BackendDependency, _: MayManageAll) -> Response:
    """Drop a rule for all queues."""
    return reply(existed=await backend.client.dead_letters.categories.drop_rule(name))


@routes.get("/queues/{queue}/category-rules", response_model=Rules)
async def list_category_rules_of_queue(queue: QueueName, backend: BackendDependency, _: MayLook) -> Response:
    """List the rules of a queue and those of all queues."""
    return reply(rules=await backend.client.dead_letters.categories.list_rules(queue))


@routes.put("/queues/{queue}/category-rules/{name}", response_model=Named)
async def set_category_rule_of_queue(
    queue: QueueName, name: RuleName, rule: Rule, backend: BackendDependency, caller: MayManage
) -> Response:
    """Create or change a rule of a queue."""
    async with backend.patterns.acting(caller, rule.error, rule.error_class) as client:
        await client.dead_letters.categories.set_rule(name, queue=queue, **rule.model_dump())
    return reply(name=name)


@routes.delete("/queues/{queue}/category-rules/{name}", response_model=Existed)
async def drop_category_rule_of_queue(
    queue: QueueName, name: RuleName, backend: BackendDependency, _: MayManage
) -> Response:
    """Drop a rule of a queue."""
    return reply(existed=await backend.client.dead_letters.categories.drop_rule(name, queue=queue))


@routes.get("/category-policies", response_model=Policies)
async def list_category_policies(backend: BackendDependency, _: MayLookAtAll) -> Response:
    """List what each category means in general."""
    return reply(policies=await backend.client.dead_letters.categories.list_policies())


@routes.put("/category-policies/{category}", response_model=Meant)
async def set_category_policy(
    category: Category, meaning: Meaning, backend: BackendDependency, _: MayManageAll
) -> Response:
    """Change what a category means in general."""
    return reply(policy=await backend.client.dead_letters.categories.set_policy(category, meaning.settings))


@routes.get("/queues/{queue}/category-policies", response_model=Policies)
async def list_category_policies_of_queue(
    queue: QueueName, backend: BackendDependency, _: MayLook
) -> Response:
    """List what each category means in a queue."""
    return reply(policies=await backend.client.dead_letters.categories.list_policies(queue))


@routes.put("/queues/{queue}/category-policies/{category}", response_model=Meant)
async def set_category_policy_of_queue(
    queue: QueueName, category: Category, meaning: Meaning, backend: BackendDependency, _: MayManage
) -> Response:
    """Change what a category means in a queue."""
    found = await backend.client.dead_letters.categories.set_policy(category, meaning.settings, queue=queue)
    return reply(policy=found)
