# Generated from src/spanmq/client/_async/categories.py by tools/generate_sync.py: change that file.

"""Categories of failures: `client.dead_letters.categories`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from spanmq.client import argument, functions
from spanmq.client.call import Shape, SqlCall, optional_queue_call
from spanmq.client.rows import category_settings, flag, listed, nothing, string
from spanmq.model import CategoryPolicy, CategoryRule

if TYPE_CHECKING:
    from spanmq.client._sync.connection import Link


class Categories:
    """Rules for the category of a failure (TRANSIENT, DEPENDENCY, PERMANENT, BUSINESS or UNKNOWN).

    Without a `queue` a rule or a policy is one for all queues.
    """

    def __init__(self, link: "Link") -> None:
        self._link = link

    def classify(
        self, error: str | None = None, *, error_class: str | None = None, queue: str | None = None
    ) -> str:
        """Return the category that an `error`, a text, gets by the rules of a `queue`, or (None) for all queues.

        `error_class` is the name of its class. Raises QueueNotFoundError.
        """
        arguments = (
            argument.text("error", error),
            argument.text("error_class", error_class),
        )
        return self._link.run(optional_queue_call(queue, "classify", string, *arguments))

    def set_rule(
        self,
        name: str,
        category: str,
        *,
        error: str | None = None,
        error_class: str | None = None,
        place: int = 100,
        queue: str | None = None,
    ) -> None:
        """Create or replace a rule: errors that match have this `category`.

        It is the rule of this `name`. `error` and `error_class` are regular expressions, without regard to case, that
        the error's text and its class must match; None: any. The rule with the lowest `place` that matches decides;
        those of a `queue` come before those of all. Raises InvalidArgumentError for an unknown category and for a
        pattern that is not valid, or that could take too long, and QueueNotFoundError.
        """
        arguments = (
            argument.text("name", name),
            argument.text("category", category),
            argument.text("error", error),
            argument.text("error_class", error_class),
            argument.integer("place", place),
        )
        self._link.run(optional_queue_call(queue, "set_category_rule", nothing, *arguments))

    def drop_rule(self, name: str, *, queue: str | None = None) -> bool:
        """Drop the rule of this `name`: of a `queue`, or (None) one for all queues; return whether it existed.

        Raises QueueNotFoundError, and for a rule of all MissingPrivilegeError without the right "manage" on all.
        """
        return self._link.run(
            optional_queue_call(queue, "drop_category_rule", flag, argument.text("name", name))
        )

    def list_rules(self, queue: str | None = None) -> list[CategoryRule]:
        """List the rules in the order in which they are applied: those of all queues, and of a `queue` its own too.

        Raises QueueNotFoundError, and without a queue MissingPrivilegeError without the right "look" on all.
        """
        read = listed(CategoryRule, queue="queue_name")
        return self._link.run(optional_queue_call(queue, "list_category_rules", read))

    def set_policy(
        self, category: str, settings: Mapping[str, Any] | None, *, queue: str | None = None
    ) -> dict[str, Any]:
        """Change what a `category` means in a `queue`, or (None) in all that have no policy of their own.

        The `settings` are `retries`, `max_attempts`, `backoff_base`, `backoff_factor` and `backoff_max`, None: as the
        queue's policy says. `settings` None: the queue follows the general ones again. Returns the whole policy.
        Raises InvalidArgumentError for a category or a setting that is unknown or out of range, and
        QueueNotFoundError.
        """
        text = None if settings is None else functions.settings_text("category", dict(settings), queue)
        arguments = (
            argument.text("queue", queue),
            argument.text("category", category),
            argument.json("settings", text),
        )
        return self._link.run(
            SqlCall("set_category_policy", arguments, category_settings, queue, Shape.JSON, native=True)
        )

    def list_policies(self, queue: str | None = None) -> list[CategoryPolicy]:
        """List what each category means, in a `queue` or (None) in general: whether to retry, and when.

        Raises QueueNotFoundError, and without a queue MissingPrivilegeError without the right "look" on all.
        """
        read = listed(CategoryPolicy, queue="queue_name")
        return self._link.run(optional_queue_call(queue, "list_category_policies", read))
