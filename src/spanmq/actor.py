"""The user of a change beside the role, for the record of changes."""

from contextvars import ContextVar
from typing import Final

# The token of a request, or the command.
ACTOR: Final[ContextVar[str | None]] = ContextVar("spanmq_actor", default=None)
