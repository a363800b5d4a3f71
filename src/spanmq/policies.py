# Generated from src/spanmq/policies_async.py by tools/generate_sync.py: change that file.

"""What a client does with policies and with categories of failures; parts of Client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spanmq import policy_calls
from spanmq.link import Link
from spanmq.message import CategoryPolicy, CategoryRule


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


class Categories:
    """Which kind of failure an error is: TRANSIENT, DEPENDENCY, PERMANENT, BUSINESS or UNKNOWN."""

    _link: Link

    def classify(
        self, error: str | None = None, *, error_class: str | None = None, queue: str | None = None
    ) -> str:
        """Give the category that the rules of a queue, and those of all, find for an error."""
        return self._link.run(policy_calls.classify(error, error_class, queue))

    def set_category_rule(
        self,
        name: str,
        category: str,
        *,
        error: str | None = None,
        error_class: str | None = None,
        place: int = 100,
        queue: str | None = None,
    ) -> None:
        """Make the rule of this name, or change all of it; without `queue` it is one for all queues.

        `error` and `error_class` are regular expressions, without regard to case, that the error's text and
        its class must match; None: any. The rule with the lowest `place` that matches decides; a queue's own
        come before those of all. Raises InvalidPatternError for a pattern that is none, or that could take
        for ever.
        """
        self._link.run(policy_calls.set_category_rule(name, category, error, error_class, place, queue))

    def drop_category_rule(self, name: str, *, queue: str | None = None) -> bool:
        """Drop a rule; False if there is none of this name."""
        return self._link.run(policy_calls.drop_category_rule(name, queue))

    def list_category_rules(self, queue: str | None = None) -> list[CategoryRule]:
        """List the rules of a queue and those of all queues, in the order in which they are asked."""
        return self._link.run(policy_calls.list_category_rules(queue))

    def set_category_policy(
        self, category: str, settings: Mapping[str, Any] | None, *, queue: str | None = None
    ) -> dict[str, Any]:
        """Change what a category means in a queue, or in all that have nothing of their own; give the result.

        The settings are `retries`, `max_attempts`, `backoff_base`, `backoff_factor` and `backoff_max`, None:
        as the queue's policy says. `settings` None: the queue follows the general ones again.
        """
        return self._link.run(policy_calls.set_category_policy(category, settings, queue))

    def list_category_policies(self, queue: str | None = None) -> list[CategoryPolicy]:
        """List what each category means, in a queue or in general."""
        return self._link.run(policy_calls.list_category_policies(queue))
