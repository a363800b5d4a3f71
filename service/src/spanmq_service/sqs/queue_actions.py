"""The actions on queues: create, list, attributes, tags, purge, delete."""

import json
from typing import Any

from spanmq.errors import QueueNotFoundError
from spanmq_service.sqs import store
from spanmq_service.sqs.call import Call
from spanmq_service.sqs.queue import (
    ACCOUNT,
    COUNTED,
    LONG_NAME,
    TOLD,
    QueueView,
    allows_redrive,
    check_attributes,
    check_name,
    check_together,
    name_of_arn,
    queue_of_name,
)
from spanmq_service.sqs.refusal import SqsError, bad_attribute, bad_parameter, bad_value, no_queue

TAGS_MAX = 50
PAGE_MAX = 1_000
# Up to this number of messages, a queue is counted during the request, in some milliseconds.
RUNS_MAX = 10_000


async def create_queue(call: Call) -> dict[str, Any]:
    """Create a queue; an existing one must have the given attributes."""
    name, attributes = call.values["QueueName"], call.values.get("Attributes", {})
    check_name(name)
    queue = queue_of_name(name)
    call.check("manage", queue)
    kept = check_attributes(name, attributes, is_new=True)
    check_together(kept)
    tags = call.values.get("tags", {})
    _check_tags(tags)
    try:
        there = await call.queue("manage", name)
    except SqsError as fault:
        if fault.code != "QueueDoesNotExist":
            raise
        await _check_case(call, name)
        await _check_redrive(call, name, kept)
        async with call.backend.client.transaction() as client:
            await client.queues.create(queue)
            await client.queues.set_policy(queue, **_policy(name, kept, is_new=True))
            named = {} if queue == name else {LONG_NAME: name}
            await store.set_queue(client, queue, attributes=kept | named, tags=tags)
        call.queues.forget()
    else:
        settable = there.settable()
        if differing := [key for key, value in kept.items() if settable.get(key) != value]:
            raise SqsError(
                "QueueNameExists",
                f"A queue already exists with the same name and a different value for attribute {differing[0]}",
            ) from None
    return {"QueueUrl": call.url_of(name)}


async def _check_case(call: Call, name: str) -> None:
    """Refuse the name of an existing queue with other capital letters: both would be one queue here."""
    try:
        [known] = await store.list_queues(call.backend.client, queue_of_name(name))
    except QueueNotFoundError:
        return
    raise SqsError(
        "QueueNameExists",
        f"The queue {QueueView(known).sqs_name} exists, and names that differ only in case are one queue here",
    )


async def get_queue_url(call: Call) -> dict[str, Any]:
    """Return the URL of a queue."""
    if call.values.get("QueueOwnerAWSAccountId", ACCOUNT) != ACCOUNT:
        raise no_queue()
    queue = await call.queue("look", call.values["QueueName"])
    return {"QueueUrl": call.url_of(queue.sqs_name)}


async def list_queues(call: Call) -> dict[str, Any]:
    """List the queues that the caller may look at."""
    prefix = call.values.get("QueueNamePrefix", "")
    queues = [QueueView(known) for known in await store.list_queues(call.backend.client)]
    names = sorted(
        queue.sqs_name
        for queue in queues
        if queue.sqs_name.startswith(prefix) and call.caller.may("look", queue.name)
    )
    page = _page(call, "QueueUrls", names)
    return page if page["QueueUrls"] else {}


async def delete_queue(call: Call) -> dict[str, Any]:
    """Drop a queue, with its messages."""
    queue = await call.queue("manage")
    await call.backend.client.queues.drop(queue.name)
    call.queues.forget()
    return {}


async def purge_queue(call: Call) -> dict[str, Any]:
    """Remove all messages."""
    queue = await call.queue("manage")
    await call.backend.client.queues.purge(queue.name)
    return {}


async def get_queue_attributes(call: Call) -> dict[str, Any]:
    """Return the requested attributes."""
    names = call.values.get("AttributeNames", [])
    queue = await call.queue("look")
    shown = {**queue.settable(), "QueueArn": call.arn_of(queue.sqs_name)}
    shown["CreatedTimestamp"] = str(int(queue.known.created_at.timestamp()))
    shown["LastModifiedTimestamp"] = str(int(queue.known.changed_at.timestamp()))
    known = {*shown, *COUNTED, *TOLD, "All", "Policy", "RedrivePolicy", "RedriveAllowPolicy"}
    known |= {"KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "FifoQueue", "ContentBasedDeduplication"}
    known |= {"DeduplicationScope", "FifoThroughputLimit"}
    if unknown := [name for name in names if name not in known]:
        raise SqsError("InvalidAttributeName", f"Unknown Attribute {unknown[0][:80]}.")
    if "All" in names or set(names) & COUNTED.keys():
        shown |= await _counts(call, queue)
    shown = {k: v for k, v in shown.items() if "All" in names or k in names}
    return {"Attributes": shown} if shown else {}


async def set_queue_attributes(call: Call) -> dict[str, Any]:
    """Change the named attributes."""
    queue = await call.queue("manage")
    kept = check_attributes(queue.sqs_name, call.values["Attributes"], is_new=False)
    check_together({**queue.known.attributes, **kept})
    await _check_redrive(call, queue.sqs_name, kept)
    async with call.backend.client.transaction() as client:
        if policy := _policy(queue.name, kept, is_new=False):
            await client.queues.set_policy(queue.name, **policy)
        await store.set_queue(client, queue.name, attributes=kept)
    call.queues.forget()
    return {}


async def tag_queue(call: Call) -> dict[str, Any]:
    """Add tags."""
    queue = await call.queue("manage")
    tags = call.values["Tags"]
    _check_tags({**queue.known.tags, **tags})
    await store.set_queue(call.backend.client, queue.name, tags=tags)
    call.queues.forget()
    return {}


async def untag_queue(call: Call) -> dict[str, Any]:
    """Remove tags."""
    queue = await call.queue("manage")
    await store.set_queue(call.backend.client, queue.name, tags=dict.fromkeys(call.values["TagKeys"]))
    call.queues.forget()
    return {}


async def list_queue_tags(call: Call) -> dict[str, Any]:
    """Return the tags."""
    tags = (await call.queue("look")).known.tags
    return {"Tags": tags} if tags else {}


async def list_dead_letter_source_queues(call: Call) -> dict[str, Any]:
    """List the queues of which this is the dead-letter queue."""
    target = await call.queue("look")
    views = [QueueView(known) for known in await store.list_queues(call.backend.client)]
    names = [
        view.sqs_name
        for view in views
        if (redrive := view.redrive) is not None
        and redrive.queue == target.name
        and call.caller.may("look", view.name)
    ]
    return _page(call, "queueUrls", names)


def _policy(name: str, kept: dict[str, str | None], *, is_new: bool) -> dict[str, Any]:
    """Return the settings of the queue's policy, which apply to all receivers."""
    policy: dict[str, Any] = {}
    if is_new:
        # As in SQS: expired messages are deleted, not dead letters; only a RedrivePolicy limits the attempts; a
        # receive from a FIFO queue takes what one group has first.
        policy = {"drop_expired": True, "max_attempts": 0}
        if name.endswith(".fifo"):
            policy |= {"ordered": True, "fill_groups": True}
    if lease := int(kept.get("VisibilityTimeout") or 0):
        policy["lease"] = lease
    return policy


def _check_tags(tags: dict[str, str]) -> None:
    if len(tags) > TAGS_MAX:
        raise bad_value(f"A queue may have {TAGS_MAX} tags at most.")


async def _check_redrive(call: Call, name: str, kept: dict[str, str | None]) -> None:
    """Raise an SqsError unless the dead-letter queue exists, is of the same kind, and allows this source."""
    if not (text := kept.get("RedrivePolicy")):
        return
    try:
        target = await call.queue("send", name_of_arn(json.loads(text)["deadLetterTargetArn"]))
    except SqsError as fault:
        if fault.code != "QueueDoesNotExist":
            raise
        raise bad_attribute("RedrivePolicy", "the queue of deadLetterTargetArn does not exist") from fault
    if target.sqs_name == name:
        raise bad_attribute("RedrivePolicy", "a queue cannot be its own dead-letter queue")
    if target.is_fifo != name.endswith(".fifo"):
        raise bad_attribute(
            "RedrivePolicy", "the dead-letter queue must be of the same kind, FIFO or standard"
        )
    if not allows_redrive(target.known.attributes.get("RedriveAllowPolicy"), name):
        raise bad_attribute("RedrivePolicy", "the RedriveAllowPolicy of its target forbids it")


async def _counts(call: Call, queue: QueueView) -> dict[str, str]:
    """Return the counts of a queue, from its last sample where counting would take long: programs ask often."""
    client = call.backend.client
    for count in await client.inspect.count([queue.name], most=RUNS_MAX):
        if count.is_exact:
            return {name: str(getattr(count, field)) for name, field in COUNTED.items()}
    for latest in await client.health.latest([queue.name]):
        if latest.sampled_at is not None:
            hidden = max(latest.backlog - latest.visible - latest.in_flight, 0)
            counts = {"visible": latest.visible, "in_flight": latest.in_flight, "delayed": hidden}
            return {name: str(counts[field]) for name, field in COUNTED.items()}
    for health in await client.health.now([queue.name]):  # it has no sample: maintenance has not run
        return {name: str(getattr(health, field)) for name, field in COUNTED.items()}
    return {}


def _page(call: Call, name: str, names: list[str]) -> dict[str, Any]:
    """Return a page of queues; its token is the name of the last one."""
    after, most = call.values.get("NextToken"), call.values.get("MaxResults")
    if most is not None and not 1 <= most <= PAGE_MAX:
        raise bad_parameter("MaxResults", most, f"Must be >= 1 and <= {PAGE_MAX}, if provided.")
    rest = [queue for queue in names if after is None or queue > after]
    shown = rest[: most or PAGE_MAX]
    more = {"NextToken": shown[-1]} if most is not None and len(rest) > len(shown) else {}
    return {name: [call.url_of(queue) for queue in shown], **more}
