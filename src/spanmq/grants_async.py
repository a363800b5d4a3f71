"""What a client does with grants; a part of AsyncClient."""

from __future__ import annotations

from spanmq import grant_calls
from spanmq.link_async import AsyncLink
from spanmq.message import QueueGrant


class AsyncGrants:
    """Who may do what with a queue."""

    _link: AsyncLink

    async def grant_queue(self, role: str, queue: str, verb: str) -> None:
        """Let a role of the database (or "public") send to a queue, receive from it, or manage it.

        `verb` is "send", "receive" (take, settle and look) or "manage" (all of it, and grant it to others).
        Raises MissingPrivilegeError unless you manage the queue, InvalidArgumentError for an unknown role.
        """
        await self._link.run(grant_calls.grant_queue(role, queue, verb))

    async def revoke_queue(self, role: str, queue: str, verb: str) -> bool:
        """Take back what grant_queue gave. False: the role may do some of it still, by another way.

        Such ways are a role of which it is a member, "public", or a grant that somebody else made in SQL.
        """
        return await self._link.run(grant_calls.revoke_queue(role, queue, verb))

    async def list_grants(self, queue: str | None = None) -> list[QueueGrant]:
        """Tell who may do what with a queue, or with all that you manage. Owner and superusers may do all."""
        return await self._link.run(grant_calls.list_grants(queue))
