"""The nouns `policy` and `category`: how queues deliver, and what follows from which kind of failure."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from spanmq.cli.option import QueueName, Settings, SomeQueue, SomeSettings
from spanmq.cli.output import Done
from spanmq.cli.verbs import Commands

if TYPE_CHECKING:
    from spanmq.client import Client

policy = Commands()
category = Commands()

RuleName = Annotated[str, typer.Argument(metavar="NAME", help="The rule.")]
ForQueue = Annotated[
    str | None, typer.Option("--queue", metavar="QUEUE", help="Name of the queue; default: all queues.")
]
CategoryName = Annotated[
    str, typer.Argument(metavar="CATEGORY", help="TRANSIENT, DEPENDENCY, PERMANENT, BUSINESS or UNKNOWN.")
]


@policy.verb()
def get(client: "Client", queue: QueueName) -> Any:
    """Show a queue's policy.

    $ spanmq policy get orders
    """
    return client.queues.policy(queue)


@policy.verb("set")
def set_policy(client: "Client", queue: QueueName, settings: Settings) -> Any:
    """Change settings of a queue's policy and show it; null restores a default.

    $ spanmq policy set orders max_attempts=5 ordered=true
    """
    return client.queues.set_policy(queue, **dict(settings))


@category.verb()
def classify(
    client: "Client",
    error: Annotated[str | None, typer.Argument(metavar="ERROR", help="The text of the error.")] = None,
    error_class: Annotated[str | None, typer.Option(help="Its class, such as TimeoutError.")] = None,
    queue: ForQueue = None,
) -> Done:
    """Show the category that an error would get.

    $ spanmq category classify "connection refused" --error-class OSError
    """
    found = client.dead_letters.categories.classify(error, error_class=error_class, queue=queue)
    return Done(found, {"category": found})


@category.verb(
    "list-rules", columns=("place", "name", "category", "error_class", "error", "queue"), empty="no rules"
)
def list_rules(client: "Client", queue: SomeQueue = None) -> Any:
    """List the rules in the order in which they are applied; with a queue, its own too.

    $ spanmq category list-rules orders
    """
    return client.dead_letters.categories.list_rules(queue)


@category.verb()
def set_rule(
    client: "Client",
    name: RuleName,
    category: CategoryName,
    error: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="A regular expression that matches the text.")
    ] = None,
    error_class: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="A regular expression that matches the class.")
    ] = None,
    place: Annotated[int, typer.Option(help="Rules with a lower place are applied first.")] = 100,
    queue: ForQueue = None,
) -> Done:
    """Create or replace a rule: errors that match have this category.

    $ spanmq category set-rule "out of stock" BUSINESS --error "out of stock" --queue orders
    """
    client.dead_letters.categories.set_rule(
        name, category, error=error, error_class=error_class, place=place, queue=queue
    )
    return Done(f"{name}: {category}", {"name": name, "category": category})


@category.verb()
def drop_rule(client: "Client", name: RuleName, queue: ForQueue = None) -> Done:
    """Drop a rule.

    $ spanmq category drop-rule "out of stock" --queue orders
    """
    dropped = client.dead_letters.categories.drop_rule(name, queue=queue)
    sentence = f"dropped {name}" if dropped else f"rule {name} did not exist"
    return Done(sentence, {"name": name, "dropped": dropped})


@category.verb()
def list_policies(client: "Client", queue: SomeQueue = None) -> Any:
    """List the policies of categories: whether to retry, and when.

    $ spanmq category list-policies orders
    """
    return client.dead_letters.categories.list_policies(queue)


@category.verb("set-policy")
def set_category_policy(
    client: "Client", category: CategoryName, settings: SomeSettings = None, queue: ForQueue = None
) -> Any:
    """Change the policy of a category and show it.

    With --queue and without settings, remove the queue's own.

    $ spanmq category set-policy DEPENDENCY backoff_base=5 max_attempts=50
    $ spanmq category set-policy BUSINESS --queue orders
    """
    if not settings and queue is None:
        raise typer.BadParameter("pass settings, or a queue to remove its own settings")
    return client.dead_letters.categories.set_policy(
        category, dict(settings) if settings else None, queue=queue
    )
