"""The policies of queues, and a form that changes them."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from starlette.responses import Response

from spanmq.errors import InvalidArgumentError
from spanmq.model import SETTING_WORDS, Policy
from spanmq_service.dashboard.formatting import address
from spanmq_service.dashboard.page import Page, go, show, show_form
from spanmq_service.dashboard.page_request import PageRequest
from spanmq_service.dashboard.queue_state import head_of

SHOWN_MAX: Final = 1_000
# The groups of settings in the form, in this order; a setting that is in none comes last.
GROUPS: Final = {
    "Delivery": ("paused", "lease", "redrive_delay", "drop_expired", "priority_aging"),
    "Retries": ("max_attempts", "backoff_base", "backoff_factor", "backoff_max", "jitter"),
    "Order": ("ordered", "fill_groups", "dead_letter_blocks_group"),
    "Limits": ("max_in_flight", "rate_limit", "rate_burst", "max_backlog"),
    "Limits of a group": (
        "max_in_flight_per_group",
        "rate_limit_per_group",
        "rate_burst_per_group",
        "rate_cost",
        "group_shares",
        "group_by",
    ),
    "Retention": ("dead_letter_retention", "archive_on_ack", "archive_retention", "keep"),
}
# Shown only if one of them is set, or on a click.
FOLDED: Final = {"Limits of a group"}


async def answer(request: PageRequest) -> Response:
    """Show the queues whose policies the visitor may look at."""
    sought = request.text("find").strip()
    names = [
        queue.name
        for queue in await request.backend.client.queues.list()
        if sought.lower() in queue.name.lower() and request.may("look", queue.name)
    ]
    return show(
        request,
        "policies.html",
        names=sorted(names, key=str.lower)[:SHOWN_MAX],
        n_found=len(names),
        find=sought,
        shown=SHOWN_MAX,
    )


async def look(request: PageRequest) -> Response:
    """Show the policy of a queue."""
    policy = asdict(await request.backend.client.queues.policy(request.queue))
    return await _form(request, policy, {name: _text(value) for name, value in policy.items()})


async def change(request: PageRequest) -> Response:
    """Change the settings that differ; nothing changes if one of them is wrong."""
    fields = await request.form()
    client = request.backend.client
    policy = asdict(await client.queues.policy(request.queue))
    try:
        changed = _changes(policy, fields)
        if changed:
            await client.queues.set_policy(request.queue, **changed)
    except InvalidArgumentError as error:
        typed = {name: fields.get(f"setting-{name}", _text(value)) for name, value in policy.items()}
        return await _form(request, policy, typed, error)
    return go(address("/queue/policy", queue=request.queue, done="changed", n=len(changed)))


async def _form(
    request: PageRequest,
    policy: Mapping[str, Any],
    typed: Mapping[str, str],
    error: InvalidArgumentError | None = None,
) -> Response:
    head, defaults = await head_of(request), asdict(Policy())
    is_done = request.text("done") == "changed" and error is None
    return show_form(
        request,
        "policy.html",
        error,
        head=head,
        policy=policy,
        groups=_groups(policy),
        folded=FOLDED,
        set_here={name: (value, defaults[name]) for name, value in policy.items() if value != defaults[name]},
        schema=await request.backend.client.queues.schema(head.queue),
        typed=typed,
        words=SETTING_WORDS,
        notice=f"Changed: {request.number('n', 0)} settings." if is_done else None,
        may_change=request.may("manage", request.queue),
    )


def _groups(policy: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the names of the settings by their group."""
    grouped = {name for names in GROUPS.values() for name in names}
    groups = {title: [name for name in names if name in policy] for title, names in GROUPS.items()}
    return groups | {"Other": rest} if (rest := [name for name in policy if name not in grouped]) else groups


def _changes(policy: Mapping[str, Any], fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings that were changed in the form; an empty field resets one to its default."""
    changed: dict[str, Any] = {}
    for name, value in policy.items():
        shown, typed = fields.get(f"shown-{name}"), fields.get(f"setting-{name}")
        if typed is None or typed.strip() == shown:
            continue
        changed[name] = _value(name, typed.strip(), value)
    return changed


def _value(name: str, typed: str, before: object) -> Any:
    if not typed:
        return None
    if isinstance(before, str):
        return typed
    try:
        value = json.loads(typed)
    except (ValueError, RecursionError):
        return typed  # a string such as "7 days": the database validates it
    if isinstance(value, dict | list) and name != "group_shares":
        raise InvalidArgumentError(f"{name} is one value")
    return value


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


PAGES: Final = (
    Page("/policies", answer),
    Page("/queue/policy", look, of_queue=True),
    Page("/queue/policy", change, "manage", of_queue=True, method="POST"),
)
