"""The record of changes: calls that change queues, rights or schedules are recorded with their user. No I/O here."""

import json
from dataclasses import replace
from typing import Final

from spanmq.actor import ACTOR
from spanmq.client import argument
from spanmq.client.argument import optional
from spanmq.client.call import Call, Result

RECORDED: Final = frozenset(
    "create create_unlogged create_partitioned drop_queue purge_queue pause resume set_policy set_schema"  # noqa: SIM905
    " set_category_policy set_category_rule drop_category_rule grant_queue revoke_queue grant_all revoke_all"
    " grant_create create_token rotate_token revoke_token create_access_key revoke_access_key bind_topic unbind_topic"
    " create_subscription schedule unschedule pause_schedule run_schedule resume_schedule redrive redrive_message"
    " purge_dead_letters retry_failing reject_failing set_shards forget_shards enable_notify_insert"
    " update_notify_insert disable_notify_insert release_receiver refuse_export forget_export set_sqs_queue"
    " convert_archive_partitioned replay".split()
)
# Arguments that are secret, or bodies of messages, or recorded by themselves.
UNRECORDED: Final = frozenset(
    "secret_hash secret message body headers payload patch new_messages queue queue_name".split()  # noqa: SIM905
)
VALUE_MAX: Final = 500


def recorded(call: Call[Result]) -> Call[Result]:
    """Return the call with the record of its change, which its statement makes; a dry run changes nothing."""
    values = {each.name: each.value for each in call.arguments}
    if values.get("dry_run") == "true":
        return call
    shown = {name: value for name, value in values.items() if value is not None and name not in UNRECORDED}
    note = (
        argument.text("note_action", call.function),
        *optional(argument.text, "note_queue", call.queue or values.get("queue_name")),
        *optional(argument.text, "note_actor", ACTOR.get()),
        argument.json("note_details", json.dumps({name: value[:VALUE_MAX] for name, value in shown.items()})),
    )
    return replace(call, note=note)
