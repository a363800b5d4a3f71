"""The stacks of running handlers: of a thread, or of a coroutine."""

import sys
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

from spanmq.worker.job import Job, Slot

# The end of a stack is the most useful part.
LENGTH_MAX: Final = 8_000
# Frames of these folders precede those of the handler.
OURS: Final = ("/spanmq/worker/", "/spanmq/tasks/")


def stack_of(slot: Slot, job: Job) -> str:
    """Return the stack of a running handler, without the worker's own frames; "" if it has just ended.

    That of a task with `process=True` is that of the worker, which waits for the process.
    """
    thread = job.thread or slot.thread
    if thread is not None:
        # Documented by CPython for this purpose, in spite of its name.
        frame = sys._current_frames().get(thread)
        frames = [] if frame is None else [*traceback.walk_stack(frame)][::-1]
    else:
        frames = (
            []
            if slot.task is None
            else [(frame, frame.f_lineno) for frame in frames_of(slot.task.get_coro())]
        )
    lines = traceback.StackSummary.extract(iter(_without_ours(frames))).format()
    return "".join(lines)[-LENGTH_MAX:].replace("\0", "\\0").encode(errors="backslashreplace").decode()


def frames_of(coroutine: Any) -> Iterator[FrameType]:
    """Yield the frames of a coroutine that waits, and of what it waits for."""
    while coroutine is not None:
        for kind, awaited in (("cr", "cr_await"), ("gi", "gi_yieldfrom"), ("ag", "ag_await")):
            if (frame := getattr(coroutine, f"{kind}_frame", None)) is not None:
                yield frame
                coroutine = getattr(coroutine, awaited, None)
                break
        else:
            return


def _without_ours(frames: list[tuple[FrameType, int]]) -> list[tuple[FrameType, int]]:
    is_begun = False
    for place, (frame, _) in enumerate(frames):
        is_ours = any(folder in frame.f_code.co_filename.replace("\\", "/") for folder in OURS)
        if is_begun and not is_ours:
            return frames[place:]
        is_begun = is_begun or is_ours
    return frames
