"""The nouns `grant`, `token` and `key`: what roles and callers over HTTP and SQS may do."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from spanmq.cli.option import Expires, QueueName, SomeQueue
from spanmq.cli.output import Done
from spanmq.cli.verbs import Commands

if TYPE_CHECKING:
    from spanmq.client import Client

grant = Commands()
token = Commands()
key = Commands()

RoleName = Annotated[str, typer.Argument(metavar="ROLE", help="A role of the database, or public.")]
Verb = Annotated[str, typer.Argument(metavar="send|bulk|receive|look|manage", help="Privilege on the queue.")]
ON_ALL: Any = typer.Argument(
    metavar="send|receive|look|manage|create|maintain|serve|admin",
    help="Privilege; the last four: create queues, run maintenance, serve HTTP, handle tokens and keys.",
)
VerbOnAll = Annotated[str, ON_ALL]
VerbsOnAll = Annotated[list[str], ON_ALL]
TokenName = Annotated[str, typer.Argument(metavar="NAME", help="The token's name.")]
QUEUES_HELP = "A queue, or a pattern such as orders-*; may be repeated."
VERBS_HELP = "send, receive, look or manage; may be repeated."


@grant.verb()
def create(client: "Client", role: RoleName, queue: QueueName, verb: Verb) -> Done:
    """Allow a role to send to a queue, receive from it, look into it, or manage it.

    $ spanmq grant create shop orders send
    """
    client.admin.grants.create(role, queue, verb)
    return Done(f"{role} may {verb}: {queue}", {"role": role, "queue": queue, "verb": verb})


@grant.verb()
def revoke(client: "Client", role: RoleName, queue: QueueName, verb: Verb) -> Done:
    """Revoke a grant.

    $ spanmq grant revoke shop orders send
    """
    is_gone = client.admin.grants.revoke(role, queue, verb)
    no_longer = f"{role} may no longer {verb}: {queue}"
    sentence = no_longer if is_gone else f"{role} still has part of this right through another grant"
    return Done(sentence, {"role": role, "queue": queue, "verb": verb, "is_gone": is_gone})


@grant.verb("all")
def grant_all(client: "Client", role: RoleName, verb: VerbsOnAll) -> Done:
    """Grant a role verbs on all queues.

    $ spanmq grant all worker receive send maintain
    """
    for each in verb:
        client.admin.grants.all(role, each)
    return Done(f"{role} may {', '.join(verb)}: all queues", {"role": role, "queue": None, "verbs": verb})


@grant.verb("revoke-all")
def revoke_all(client: "Client", role: RoleName, verb: VerbOnAll) -> Done:
    """Revoke a grant on all queues. Grants on single queues stay.

    $ spanmq grant revoke-all worker receive
    """
    client.admin.grants.revoke_all(role, verb)
    return Done(f"{role} may no longer {verb}: all queues", {"role": role, "queue": None, "verb": verb})


@grant.verb("follow-tables", columns=("queue", "role", "verb"), empty="no role has a verb by table grants")
def follow_tables(
    client: "Client",
    follow: Annotated[
        bool, typer.Option("--follow/--stop", help="Count table grants as verbs; --stop revokes these verbs.")
    ] = True,
) -> Any:
    """Count table grants on pgmq.q_<name> as verbs from now on, and list these verbs.

    $ spanmq grant follow-tables
    """
    return client.admin.grants.follow_tables(follow=follow)


@grant.verb("list", columns=("queue", "role", "verb"), empty="no grants")
def list_grants(client: "Client", queue: SomeQueue = None) -> Any:
    """List grants: those of one queue, or of all that you may manage.

    $ spanmq grant list orders
    """
    return client.admin.grants.list(queue)


@token.verb("create")
def create_token(
    client: "Client",
    name: TokenName,
    queue: Annotated[list[str], typer.Option("--queue", "-q", help=QUEUES_HELP)],
    verb: Annotated[list[str], typer.Option("--verb", "-v", help=VERBS_HELP)],
    expires: Expires = None,
) -> Done:
    """Create a token and print its secret, which cannot be shown again.

    $ spanmq token create shop --queue 'orders-*' --verb send --expires 2592000
    """
    secret = client.admin.tokens.create(name, queues=queue, verbs=verb, expires=expires)
    return Done(secret, {"name": name, "token": secret})


@token.verb("list", empty="no tokens")
def list_tokens(client: "Client") -> Any:
    """List the tokens, without their secrets.

    $ spanmq token list
    """
    return client.admin.tokens.list()


@token.verb("rotate")
def rotate_token(
    client: "Client",
    name: TokenName,
    overlap: Annotated[float, typer.Option(help="Seconds for which the old secret stays valid.")] = 0.0,
) -> Done:
    """Replace the secret of a token and print the new one.

    $ spanmq token rotate shop --overlap 3600
    """
    secret = client.admin.tokens.rotate(name, overlap=overlap)
    return Done(secret, {"name": name, "token": secret})


@token.verb("revoke")
def revoke_token(client: "Client", name: TokenName) -> Done:
    """Revoke a token; services stop accepting it at once.

    $ spanmq token revoke shop
    """
    existed = client.admin.tokens.revoke(name)
    sentence = f"revoked token {name}" if existed else f"token {name} did not exist"
    return Done(sentence, {"name": name, "existed": existed})


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


@key.verb("list", columns=("access_key_id", "queues", "verbs", "created_at", "expires_at"), empty="no keys")
def list_keys(client: "Client") -> Any:
    """List the keys, without their secrets.

    $ spanmq key list
    """
    return client.admin.keys.list()


@key.verb("revoke")
def revoke_key(
    client: "Client", access_key_id: Annotated[str, typer.Argument(metavar="ID", help="The key's id.")]
) -> Done:
    """Revoke a key; services stop accepting it at once.

    $ spanmq key revoke AKIAEXAMPLE
    """
    existed = client.admin.keys.revoke(access_key_id)
    sentence = f"revoked key {access_key_id}" if existed else f"key {access_key_id} did not exist"
    return Done(sentence, {"access_key_id": access_key_id, "existed": existed})
