"""A DSN that can't be read: libpq's words for it, without what they quote: a password may stand in it."""

from __future__ import annotations

import re
from typing import Final

from spanmq.errors import InvalidArgumentError

# From the first mark to the last: what is quoted may hold marks of its own. Other languages have others.
_QUOTED: Final = re.compile("[\"'`„“”«»].*[\"'`„“”«»]", re.DOTALL)
# It names a driver, which libpq takes for a part of a key=value pair.
_SQLALCHEMY: Final = re.compile(r"\bpostgres(?:ql)?\+\w+://")


def unreadable(error: Exception) -> InvalidArgumentError:
    """Give the error to raise `from None`: a traceback would show the other one's words."""
    said = _QUOTED.sub("…", str(error)).strip()
    scheme = _SQLALCHEMY.search(str(error))
    hint = scheme and f"Write postgresql:// in place of {scheme[0]}, which is SQLAlchemy's."
    return InvalidArgumentError(f"the DSN can't be read: {said}", hint=hint)
