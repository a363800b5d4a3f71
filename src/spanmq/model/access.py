"""Privileges of roles and of callers of the service."""

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class QueueGrant:
    """A privilege of a role on a queue, or on all (None): `verb` is one that grant_all() takes."""

    queue: str | None
    role: str
    verb: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """The rights of a token over HTTP: `verbs` on queues that one of `queues` matches; * is any characters."""

    name: str
    queues: list[str]
    verbs: list[str]
    created_at: datetime
    expires_at: datetime | None
    rotated_at: datetime | None


@dataclass(frozen=True, slots=True)
class AccessKey:
    """A key of the SQS protocol; `secret` only where it was made or is checked."""

    access_key_id: str
    queues: list[str]
    verbs: list[str]
    created_at: datetime | None = None
    expires_at: datetime | None = None
    secret: str | None = field(default=None, repr=False)
