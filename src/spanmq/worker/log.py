"""Events as log lines: `message_settled queue=orders message_id=17 outcome=acked attempt=1`."""

import json
import logging
from dataclasses import fields
from typing import Final

from spanmq.worker import event as events
from spanmq.worker.event import Event, name_of

__all__ = ["line_of", "write"]

logger = logging.getLogger("spanmq.worker")

# Events of single messages or batches are for debugging.
LEVELS: Final = {
    events.MessagesReceived: logging.DEBUG,
    events.MessageHandled: logging.DEBUG,
    events.SettlingStarted: logging.DEBUG,
    events.LeaseExtended: logging.DEBUG,
    events.LeaseLost: logging.WARNING,
    events.HandlerOverran: logging.WARNING,
    events.HandlerSlow: logging.WARNING,
    events.BreakerOpened: logging.WARNING,
    events.ConnectionBroken: logging.WARNING,
    events.CallFailed: logging.WARNING,
}
LENGTH_MAX: Final = 500


def level_of(event: Event) -> int:
    """Return the level at which an event is logged."""
    if type(event) is events.MessageSettled:
        return logging.DEBUG if event.outcome in events.ROUTINE_OUTCOMES else logging.WARNING
    return LEVELS.get(type(event), logging.INFO)


class Writer:
    """Logs each event."""

    __slots__ = ()

    def __call__(self, event: Event) -> None:
        """Log an event."""
        level = level_of(event)
        if logger.isEnabledFor(level):
            traceback = getattr(event, "traceback", None)
            if traceback and (_is_first_or_last(event) or logger.isEnabledFor(logging.DEBUG)):
                logger.log(level, "%s\n%s", line_of(event), traceback.rstrip())
            else:
                logger.log(level, "%s", line_of(event))

    def hears_routine(self) -> bool:
        """Return whether routine events would be logged."""
        return logger.isEnabledFor(logging.DEBUG)


def _is_first_or_last(event: Event) -> bool:
    """Return whether it is the first or the last failure of a message."""
    return isinstance(event, events.MessageSettled) and (event.attempt <= 1 or event.outcome == "dead")


# The default observer of every worker.
write: Final = Writer()


def line_of(event: Event) -> str:
    """Return an event as its name and its fields that are not None; strings with spaces are quoted.

    Without a traceback, which has more than one line.
    """
    values = ((field.name, getattr(event, field.name)) for field in fields(event))
    parts = [f"{name}={_shown(value)}" for name, value in values if value is not None and name != "traceback"]
    return " ".join([name_of(event), *parts])


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    text = ",".join(value) if isinstance(value, tuple) else str(value)
    # Quotes and line breaks could split a line or a field.
    if isinstance(value, str) and (not text or not all(c.isprintable() and c not in ' "=' for c in text)):
        return json.dumps(text[:LENGTH_MAX], ensure_ascii=False)
    return text
