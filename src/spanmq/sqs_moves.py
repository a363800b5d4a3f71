# Made of sqs_moves_async.py by tools/generate_sync.py: change that one.

"""What a client does with the move tasks of the SQS protocol; a part of Client."""

from __future__ import annotations

from spanmq import sqs_move_calls
from spanmq.link import Link
from spanmq.message import SqsMove


class SqsMoves:
    """Tasks that live in the database: any service does their next step."""

    _link: Link

    def start_sqs_move(
        self,
        source: str,
        destination: str | None = None,
        *,
        source_arn: str,
        destination_arn: str | None = None,
        to_move: int,
        rate: int | None = None,
    ) -> str | None:
        """Begin to move the messages of a queue, and give the task's handle; None if one runs.

        Without a destination each goes back where it came from. `rate` is messages a second.
        """
        return self._link.run(
            sqs_move_calls.start_sqs_move(source, destination, source_arn, destination_arn, to_move, rate)
        )

    def list_sqs_moves(self, source: str, quantity: int = 10) -> list[SqsMove]:
        """List the tasks of a source, the newest first."""
        return self._link.run(sqs_move_calls.list_sqs_moves(source, quantity))

    def find_sqs_move(self, handle: str) -> SqsMove | None:
        """Look a task up."""
        return self._link.run(sqs_move_calls.find_sqs_move(handle))

    def cancel_sqs_move(self, handle: str) -> int | None:
        """Move no more; give how many were moved, None if no such task runs."""
        return self._link.run(sqs_move_calls.cancel_sqs_move(handle))

    def take_sqs_move(self) -> SqsMove | None:
        """Take a task whose next step is due, to the end of the transaction."""
        return self._link.run(sqs_move_calls.take_sqs_move())

    def note_sqs_move(self, handle: str, moved: int | None, failure: str | None = None) -> float | None:
        """Note a step; give after how many seconds the next is due, None if there is none.

        None moved: nothing can be now, so others come first for a second.
        """
        return self._link.run(sqs_move_calls.note_sqs_move(handle, moved, failure))
