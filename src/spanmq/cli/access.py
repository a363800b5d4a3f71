"""The nouns `grant`, `token` and `key`: what roles and callers over HTTP and SQS may do."""

from typing import TYPE_CHECKING, Annotated

import typer

from spanmq.cli.option import QUEUES_HELP, VERB_ON_ALL, VERBS_HELP, Expires, RoleName
from spanmq.cli.output import Done
from spanmq.cli.verbs import Commands

if TYPE_CHECKING:
    from spanmq.client import Client

grant = Commands()
key = Commands()


@grant.verb("all")
def grant_all(client: "Client", role: RoleName, verb: Annotated[list[str], VERB_ON_ALL]) -> Done:
    """Grant a role verbs on all queues.

    $ spanmq grant all worker receive send maintain
    """
    for right in verb:
        client.admin.grants.all(role, right)
    return Done(f"{role} may {', '.join(verb)}: all queues", {"role": role, "queue": None, "verbs": verb})


@key.verb("create")
def create_key(
    client: "Client",
    queue: Annotated[
        list[str] | None, typer.Option("--queue", "-q", help=QUEUES_HELP, show_default="all")
    ] = None,
    verb: Annotated[
        list[str] | None, typer.Option("--verb", "-v", help=VERBS_HELP, show_default="all")
    ] = None,
    expires: Expires = None,
) -> Done:
    """Create a key and print its id and its secret, which no list shows.

    $ spanmq key create --queue 'orders-*' --verb send --json
    """
    made = client.admin.keys.create(
        queues=queue or ["*"], verbs=verb or ["send", "receive", "look", "manage"], expires=expires
    )
    record = {"access_key_id": made.access_key_id, "secret_access_key": made.secret}
    return Done(f"{made.access_key_id} {made.secret}", record)
