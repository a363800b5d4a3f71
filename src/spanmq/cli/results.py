"""The nouns `batch`, `task` and `result`: what tasks did, and what came of them."""

from typing import TYPE_CHECKING, Any

from spanmq.cli.option import MessageIds, QueueName
from spanmq.cli.output import fields
from spanmq.cli.verbs import Commands

if TYPE_CHECKING:
    from spanmq.client import Client
    from spanmq.model.message import Result

result = Commands()


@result.verb("get", columns=("queue", "message_id", "state", "message_state", "value", "error"))
def get_results(client: "Client", queue: QueueName, message_ids: MessageIds) -> Any:
    """Show what became of messages: the stored result, the error of a dead letter, or that no result is kept.

    For a message without a result, `message_state` is the state of the message, such as processing.

    $ spanmq result get orders 17 18
    """
    results = client.results.list(queue, message_ids)
    return [{**fields(result), "message_state": _message_state(client, result)} for result in results]


def _message_state(client: "Client", result: "Result") -> str | None:
    return client.inspect.state(result.queue, result.message_id) if result.state == "missing" else None
