# Generated from src/spanmq/policies_async.py by tools/generate_sync.py: change that file.

"""What a client does with policies; a part of Client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spanmq import policy_calls
from spanmq.link import Link


class Policies:
    """How queues deliver."""

    _link: Link

    def get_policy(self, queue: str) -> dict[str, Any]:
        """Give the settings of a queue's policy, those with their default too."""
        return self._link.run(policy_calls.get_policy(queue))

    def set_policy(self, queue: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Change the settings that are named; None gives one its default back. Gives the whole policy.

        Raises InvalidSettingError for a setting that is unknown or out of range: then nothing has changed.
        """
        return self._link.run(policy_calls.set_policy(queue, settings))
