"""Keys of the SQS protocol."""

from typing import Annotated

import typer

from spanmq.cli.connect import client
from spanmq.cli.option import AsJson, Dsn, Expires, delay_of
from spanmq.cli.output import Output

keys = typer.Typer(help="Who may use the SQS protocol.", no_args_is_help=True)

LISTED = ("access_key_id", "queues", "verbs", "created_at", "expires_at")


@keys.command("create")
def create(
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            "-q",
            help="A queue, or a pattern such as orders-*; may be given again.",
            show_default="all",
        ),
    ] = None,
    verb: Annotated[
        list[str] | None,
        typer.Option(
            "--verb",
            "-v",
            help="send, receive, look or manage; may be given again.",
            show_default="all",
        ),
    ] = None,
    expires: Expires = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Make a key and print its id and its secret, which is listed nowhere."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        made = opened.create_access_key(
            queues=queue or ["*"],
            verbs=verb or ["send", "receive", "look", "manage"],
            expires=None if expires is None else delay_of(expires),
        )
    output.done(
        f"{made.access_key_id} {made.secret}",
        access_key_id=made.access_key_id,
        secret_access_key=made.secret,
    )


@keys.command("list")
def list_(dsn: Dsn = None, as_json: AsJson = False) -> None:
    """List the keys, without their secrets."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        output.records(opened.list_access_keys(), columns=LISTED, empty="no keys")


@keys.command("revoke")
def revoke(
    access_key_id: Annotated[str, typer.Argument(metavar="ID", help="The key's id.", show_default=False)],
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """End a key; services hear of it at once."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        existed = opened.revoke_access_key(access_key_id)
    said = f"revoked key {access_key_id}" if existed else f"there was no key {access_key_id}"
    output.done(said, access_key_id=access_key_id, existed=existed)
