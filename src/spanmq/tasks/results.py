"""The results of the calls of a batch: their messages in a header of the task that follows, which a worker reads."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from spanmq.client import AsyncClient
from spanmq.errors import InvalidArgumentError, QueueNotFoundError, TaskArgumentsError
from spanmq.model import Message, Result
from spanmq.tasks.call import Call

# Has the names of the queues, and `ids`, in the order of the calls: (place of the queue, first id, count).
HEADER: Final = "x-spanmq-calls"
# As many as one call of the client reads.
CALLS_MAX: Final = 10_000


def check_batch(calls: Sequence[object], then: Call) -> None:
    """Raise InvalidArgumentError if `then` takes results, and a call stores none or there are too many."""
    if not then.takes_results:
        return
    if len(calls) > CALLS_MAX:
        raise InvalidArgumentError(
            f"task {then.task!r} takes the results of at most {CALLS_MAX} calls, got {len(calls)}",
            hint="Divide them into several batches, or store the results elsewhere.",
        )
    for call in calls:
        if isinstance(call, Call) and not call.stores_result:
            raise InvalidArgumentError(
                f"task {then.task!r} takes the results of its batch, and task {call.task!r} stores none",
                hint="Write @tasks.task(store_result=True).",
            )


def header_of(messages: Iterable[tuple[str, int]]) -> dict[str, Any]:
    """Return the header for messages, each its queue and id, in the order of their calls."""
    places: dict[str, int] = {}
    runs: list[list[int]] = []
    for queue, message_id in messages:
        place = places.setdefault(queue, len(places))
        if runs and runs[-1][0] == place and runs[-1][1] + runs[-1][2] == message_id:
            runs[-1][2] += 1
        else:
            runs.append([place, message_id, 1])
    return {HEADER: {"queues": [*places], "ids": runs}}


async def read_results(client: AsyncClient, message: Message, task: str) -> list[Result]:
    """Return the results of the calls that a message follows, in the order of the calls: one statement for each queue.

    Raises TaskArgumentsError for a message that does not end a batch.
    """
    messages = _messages_of(message, task)
    ids: dict[str, list[int]] = {}
    for queue, message_id in dict.fromkeys(messages):
        ids.setdefault(queue, []).append(message_id)
    results: dict[tuple[str, int], Result] = {}
    for queue, message_ids in ids.items():
        try:
            listed = await client.results.list(queue, message_ids)
        except QueueNotFoundError:  # its messages have left it with it
            listed = [Result(queue, message_id, "missing") for message_id in message_ids]
        results |= {(queue, result.message_id): result for result in listed}
    return [results[key] for key in messages]


def _messages_of(message: Message, task: str) -> list[tuple[str, int]]:
    headers: Mapping[str, Any] = message.headers or {}
    try:
        queues, runs = headers[HEADER]["queues"], headers[HEADER]["ids"]
        # Before they are listed: another sender could write anything.
        counts = [count for _, _, count in runs]
        if (
            min(counts, default=0) < 0
            or sum(counts) > CALLS_MAX
            or not all(type(queue) is str for queue in queues)
        ):
            raise ValueError("they are not the messages of a batch")
        return [
            (queues[place], message_id)
            for place, first, count in runs
            for message_id in range(first, first + count)
        ]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise TaskArgumentsError(
            f"task {task!r} takes the results of a batch, and its message does not end one"
        ) from error
