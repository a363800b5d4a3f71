"""Categories: which kind of failure an error is."""

from typing import Annotated

import typer

from spanmq.cli.connect import client
from spanmq.cli.option import AsJson, Dsn
from spanmq.cli.output import Output
from spanmq.cli.policies import setting_of

commands = typer.Typer()

RuleName = Annotated[str, typer.Argument(metavar="NAME", help="The rule.", show_default=False)]
OfQueue = Annotated[
    str | None,
    typer.Option("--queue", metavar="QUEUE", help="Of this queue, not of all.", show_default=False),
]
ErrorPattern = Annotated[
    str | None,
    typer.Option("--error", metavar="PATTERN", help="What the text must match; a regex.", show_default=False),
]
ClassPattern = Annotated[
    str | None,
    typer.Option("--error-class", metavar="PATTERN", help="What the class must match.", show_default=False),
]
CategoryName = Annotated[
    str,
    typer.Argument(
        metavar="CATEGORY",
        help="TRANSIENT, DEPENDENCY, PERMANENT, BUSINESS or UNKNOWN.",
        show_default=False,
    ),
]
RULE_COLUMNS = ("place", "name", "category", "error_class", "error", "queue")


@commands.command()
def classify(
    error: Annotated[
        str | None, typer.Argument(metavar="ERROR", help="The text of the error.", show_default=False)
    ] = None,
    error_class: Annotated[
        str | None, typer.Option("--error-class", help="Its class, such as TimeoutError.", show_default=False)
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option("--queue", metavar="QUEUE", help="With the rules of this queue.", show_default=False),
    ] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Show the category that an error would get."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        category = opened.classify(error, error_class=error_class, queue=queue)
    output.done(category, category=category)


@commands.command()
def set_category_rule(
    name: RuleName,
    category: CategoryName,
    error: ErrorPattern = None,
    error_class: ClassPattern = None,
    place: Annotated[int, typer.Option(help="The rule with the lowest is asked first.")] = 100,
    queue: OfQueue = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Make a rule, or change all of it: errors that match are of a category."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        opened.set_category_rule(
            name, category, error=error, error_class=error_class, place=place, queue=queue
        )
    output.done(f"{name}: {category}", name=name, category=category)


@commands.command()
def drop_category_rule(
    name: RuleName, queue: OfQueue = None, dsn: Dsn = None, as_json: AsJson = False
) -> None:
    """Drop a rule."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        dropped = opened.drop_category_rule(name, queue=queue)
    output.done(f"dropped {name}" if dropped else f"there is no rule {name}", name=name, dropped=dropped)


@commands.command()
def list_category_rules(
    queue: Annotated[
        str | None,
        typer.Argument(metavar="QUEUE", help="With the rules of this queue too.", show_default=False),
    ] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """List the rules in the order in which they are asked."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        output.records(opened.list_category_rules(queue), columns=RULE_COLUMNS, empty="no rules")


@commands.command()
def set_category_policy(
    category: CategoryName,
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SETTING=VALUE…",
            help="Such as retries=false or backoff_base=5; none: --queue has nothing of its own any more.",
            show_default=False,
        ),
    ] = None,
    queue: OfQueue = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Change what a category of failures means and show it: whether to try again, and when."""
    output = Output(as_json=as_json)
    if not settings and queue is None:
        raise typer.BadParameter("give settings, or the queue that is to have none of its own")
    changed = dict(map(setting_of, settings)) if settings else None
    with client(dsn) as opened:
        output.records([opened.set_category_policy(category, changed, queue=queue)])


@commands.command()
def list_category_policies(
    queue: Annotated[
        str | None, typer.Argument(metavar="QUEUE", help="In this queue.", show_default=False)
    ] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """List what each category means, in a queue or in general."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        output.records(opened.list_category_policies(queue))
