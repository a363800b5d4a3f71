"""A DSN that can't be read: libpq's words for it, without what they quote: a password may stand in it."""

from __future__ import annotations

import re
from typing import Final

from spanmq.errors import InvalidArgumentError

# From the first mark to the last: what is quoted may hold marks of its own. Other languages have others.
_QUOTED: Final = re.compile("[\"'`„“”«»].*[\"'`„“”«»]", re.DOTALL)


def unreadable(error: Exception) -> InvalidArgumentError:
    """Give the error to raise `from None`: a traceback would show the other one's words."""
    said = _QUOTED.sub("…", str(error)).strip()
    return InvalidArgumentError(f"the DSN can't be read: {said}")
