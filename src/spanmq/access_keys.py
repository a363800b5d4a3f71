# Generated from src/spanmq/access_keys_async.py by tools/generate_sync.py: change that file.

"""What a client does with the keys and queues of the SQS protocol; a part of Client."""

from __future__ import annotations

import secrets
import string
from collections.abc import Iterable, Mapping

from spanmq import access_key_calls
from spanmq.call import Delay
from spanmq.link import Link
from spanmq.message import AccessKey, SqsQueue


class AccessKeys:
    """Who may sign requests of the SQS protocol, and what that protocol knows of queues."""

    _link: Link

    def create_access_key(
        self,
        *,
        queues: Iterable[str] = ("*",),
        verbs: Iterable[str] = ("send", "receive", "look", "manage"),
        expires: Delay | None = None,
    ) -> AccessKey:
        """Make a key, and give it with its secret, which is listed nowhere.

        `queues` are patterns of names, in which * stands for any characters. `expires` is seconds, a
        timedelta or the moment itself; None: never.
        """
        letters = string.ascii_uppercase + string.digits
        access_key_id = "SPANMQ" + "".join(secrets.choice(letters) for _ in range(14))
        secret = secrets.token_urlsafe(30)
        self._link.run(access_key_calls.create_access_key(access_key_id, secret, queues, verbs, expires))
        return AccessKey(access_key_id, list(queues), list(verbs), secret=secret)

    def list_access_keys(self) -> list[AccessKey]:
        """List the keys by their ids, without their secrets, those that have expired too."""
        return self._link.run(access_key_calls.list_access_keys())

    def revoke_access_key(self, access_key_id: str) -> bool:
        """End a key; tell whether it was there. Services hear of it at once."""
        return self._link.run(access_key_calls.revoke_access_key(access_key_id))

    def find_access_key(self, access_key_id: str) -> AccessKey | None:
        """Give a key with its secret if it is good now."""
        return self._link.run(access_key_calls.find_access_key(access_key_id))

    def list_sqs_queues(self, queue: str | None = None) -> list[SqsQueue]:
        """Give what the SQS protocol knows of a queue, or of all."""
        return self._link.run(access_key_calls.list_sqs_queues(queue))

    def set_sqs_queue(
        self,
        queue: str,
        *,
        attributes: Mapping[str, str | None] | None = None,
        tags: Mapping[str, str | None] | None = None,
    ) -> None:
        """Add attributes and tags to that, and forget those that are None."""
        self._link.run(access_key_calls.set_sqs_queue(queue, attributes or {}, tags or {}))
