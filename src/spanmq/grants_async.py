"""What a client does with grants; a part of AsyncClient."""

from __future__ import annotations

from spanmq import grant_calls
from spanmq.link_async import AsyncLink
from spanmq.message import QueueGrant


class AsyncGrants:
    """Who may do what with a queue."""

    _link: AsyncLink

    async def grant_queue(self, role: str, queue: str, verb: str) -> None:
        """Let a role of the database (or "public") send to a queue, receive from it, look into it, or manage it.

        `verb` is "send", "receive" (take, settle and look), "look" or "manage" (all of it, and grant it to
        others). Raises MissingPrivilegeError unless you manage the queue, InvalidArgumentError for an unknown
        role or verb.
        """
        await self._link.run(grant_calls.grant_queue(role, queue, verb))

    async def revoke_queue(self, role: str, queue: str, verb: str) -> bool:
        """Take back what grant_queue gave. False: the role may do some of it still, by another way.

        Such ways are a role of which it is a member, "public", or a right on all queues.
        """
        return await self._link.run(grant_calls.revoke_queue(role, queue, verb))

    async def grant_all(self, role: str, verb: str) -> None:
        """Let a role (or "public") do something with all queues, also those to come.

        `verb` is one of grant_queue's, or "create" (make queues), "maintain" (run maintenance), "serve" (what the
        HTTP service needs besides) or "admin" (tokens and keys of the service). Raises MissingPrivilegeError
        unless you own the schema, InvalidArgumentError for an unknown role or verb.
        """
        await self._link.run(grant_calls.grant_all(role, verb))

    async def revoke_all(self, role: str, verb: str) -> None:
        """Take back what grant_all gave; rights on single queues stay."""
        await self._link.run(grant_calls.revoke_all(role, verb))

    async def list_grants(self, queue: str | None = None) -> list[QueueGrant]:
        """Tell who may do what with a queue, or (None) with each and with all, which needs "manage" on all.

        `queue` of a grant is None for one on all queues. Owner and superusers may do all.
        """
        return await self._link.run(grant_calls.list_grants(queue))
