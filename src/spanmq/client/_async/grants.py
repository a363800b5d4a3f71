"""Rights of roles on queues: `client.admin.grants`."""

from typing import TYPE_CHECKING

from spanmq.client import argument
from spanmq.client.argument import Argument
from spanmq.client.call import optional_queue_call, queue_call
from spanmq.client.rows import flag, listed, nothing
from spanmq.model import QueueGrant

if TYPE_CHECKING:
    from spanmq.client._async.connection import AsyncLink


class AsyncGrants:
    """Grant and revoke what roles of the database may do with queues."""

    def __init__(self, link: "AsyncLink") -> None:
        self._link = link

    async def create(self, role: str, queue: str, verb: str) -> None:
        """Allow a `role` of the database (or "public") to send to a `queue`, receive from it, look into it, or manage
        it.

        `verb` is "send", "bulk" (send, also by COPY and from Spark), "receive" (take, settle and look), "look" or
        "manage" (all but bulk, and grant it to others). Raises MissingPrivilegeError unless you manage the queue,
        InvalidArgumentError for an unknown role or verb, and QueueNotFoundError.
        """
        await self._link.run(queue_call(queue, "grant_queue", nothing, *_right(role, verb)))

    async def revoke(self, role: str, queue: str, verb: str) -> bool:
        """Revoke a grant: the right `verb` of a `role` on a `queue`.

        Return whether the role has lost it: part of it may be left by a grant to a role of which it is a member, to
        "public", or on all queues. Raises what `create` raises, and NotPossibleError for the owner.
        """
        return await self._link.run(queue_call(queue, "revoke_queue", flag, *_right(role, verb)))

    async def all(self, role: str, verb: str) -> None:
        """Allow a `role` (or "public") to do something with all queues, also those to come.

        `verb` is one of `create`'s, or "create" (make queues), "maintain" (run maintenance), "serve" (what the HTTP
        service needs besides) or "admin" (tokens and keys of the service). Raises MissingPrivilegeError unless you
        own the schema, InvalidArgumentError for an unknown role or verb.
        """
        await self._link.run(optional_queue_call(None, "grant_all", nothing, *_right(role, verb)))

    async def revoke_all(self, role: str, verb: str) -> None:
        """Revoke a grant on all queues: the right `verb` of a `role`. Grants on single queues stay.

        Raises what `all` raises, and NotPossibleError for the owner.
        """
        await self._link.run(optional_queue_call(None, "revoke_all", nothing, *_right(role, verb)))

    async def follow_tables(self, *, follow: bool = True) -> list[QueueGrant]:
        """Count table grants on `pgmq.q_<name>` as verbs from now on, and list these verbs.

        With `follow` False they count no longer. For programs written for PGMQ whose roles have table privileges.
        Later grants and revocations count when this is called again or maintenance runs. Raises MissingPrivilegeError
        unless you own the schema.
        """
        read = listed(QueueGrant, queue="queue_name")
        return await self._link.run(
            optional_queue_call(None, "follow_table_grants", read, argument.boolean("follow", follow))
        )

    async def list(self, queue: str | None = None) -> list[QueueGrant]:
        """List the grants on a `queue`, or (None) on each queue and on all.

        `queue` of a grant is None for a grant on all queues. Owner and superusers have all rights. Raises
        QueueNotFoundError, and MissingPrivilegeError without the right "manage" on the queue, or on all.
        """
        read = listed(QueueGrant, queue="queue_name")
        return await self._link.run(optional_queue_call(queue, "list_grants", read))


def _right(role: str, verb: str) -> tuple[Argument, ...]:
    return argument.text("role", role), argument.text("verb", verb)
