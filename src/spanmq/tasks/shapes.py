"""The shapes of what this process sends for tasks: noted in the database, each about every ten minutes."""

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from time import monotonic
from types import NoneType
from typing import Any, Final

from spanmq.client import functions
from spanmq.client.call import SqlCall
from spanmq.tasks.call import Call

# The names of the types of JSON, as PostgreSQL's jsonb_typeof has them.
JSON_TYPES: Final[dict[type, str]] = {
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    NoneType: "null",
    list: "array",
    dict: "object",
}
# How long nothing is noted after a note that failed, as in a schema one release older.
FAILED_SECONDS: Final = 60.0
# What one call notes, and what a process remembers.
NOTES_MAX: Final = 100
KNOWN_MAX: Final = 10_000

# The queue, the task, and the names and the Python types of the arguments.
Key = tuple[str, str, tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Note:
    """A call that notes the shapes of these keys."""

    keys: Collection[Key]
    call: SqlCall[float]


class ShapeNotes:
    """The shapes that this process has noted, and the time until which a note holds."""

    def __init__(self) -> None:
        self._until: dict[Key, float] = {}

    def due(self, bodies: Iterable[tuple[Key, str]]) -> Iterator[Note]:
        """Yield the calls that note what is due, one a queue; `bodies` has a body for each key."""
        now = monotonic()
        queues: dict[str, dict[Key, str]] = {}
        for key, body in bodies:
            if self._until.get(key, now) <= now:
                queues.setdefault(key[0], {})[key] = body
        for queue, body_of in queues.items():
            keys = list(body_of)[:NOTES_MAX]
            self.hold(keys, FAILED_SECONDS)
            shapes = [json.dumps(shape_of(arguments_of(body_of[key]))) for key in keys]
            yield Note(keys, functions.note_task_shapes(queue, [key[1] for key in keys], shapes))

    def hold(self, keys: Iterable[Key], seconds: float) -> None:
        """Note none of these keys again for some seconds."""
        if len(self._until) > KNOWN_MAX:
            self._until.clear()
        self._until |= dict.fromkeys(keys, monotonic() + seconds)


def key_of(call: Call) -> Key:
    """Return under what the shape of a call is known: types of Python, which cost less to find than those of JSON."""
    # One that another process has made has no types.
    return call.queue, call.task, call.types or tuple(shape_of(arguments_of(call.body)).items())


def arguments_of(body: str) -> Any:
    """Return the arguments in the body of a call."""
    return json.loads(body)["args"]


def shape_of(arguments: Any) -> dict[str, str]:
    """Return the JSON type of each argument by its name."""
    return {name: JSON_TYPES[type(value)] for name, value in arguments.items()}
