"""What a client does with policies; a part of AsyncClient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spanmq import policy_calls
from spanmq.link_async import AsyncLink


class AsyncPolicies:
    """How queues deliver."""

    _link: AsyncLink

    async def get_policy(self, queue: str) -> dict[str, Any]:
        """Give the settings of a queue's policy, those with their default too."""
        return await self._link.run(policy_calls.get_policy(queue))

    async def set_policy(self, queue: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Change the settings that are named; None gives one its default back. Gives the whole policy.

        Raises InvalidSettingError for a setting that is unknown or out of range: then nothing has changed.
        """
        return await self._link.run(policy_calls.set_policy(queue, settings))
