"""Repairing a dead letter: its body is changed, and it is the same message again."""

from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

from spanmq.client.calls import UNCHANGED
from spanmq.errors import InvalidArgumentError, NotPossibleError
from spanmq.model import DeadLetter
from spanmq_service.dashboard import typed
from spanmq_service.dashboard.page import Page, go, show_form
from spanmq_service.dashboard.visit import RefusedError, Visit
from spanmq_service.dashboard.wording import LONG, PAGE_BYTES_MAX, address, bytes_cut, pretty, text


async def ask(visit: Visit) -> Response:
    """Show the form with the body as it is."""
    letter = await _waiting(visit)
    return _form(visit, letter, {"body": _shown(visit, letter)})


async def repair(visit: Visit) -> Response:
    """Put the letter back with the body that was typed."""
    fields = await visit.form()
    letter = await _waiting(visit)
    given = fields.get("body", "").replace("\r\n", "\n").strip()
    try:
        # An unchanged body stays as it is stored, also if it is encrypted.
        is_touched = not given or given != _shown(visit, letter)
        message_id = await visit.backend.client.dead_letters.edit(
            visit.queue,
            letter.message_id,
            body=typed.body(given) if is_touched else UNCHANGED,
            delay=typed.number(fields.get("delay", ""), "delay"),
        )
    except (InvalidArgumentError, NotPossibleError) as error:
        return _form(visit, letter, fields, error.message)
    if not visit.may("look", visit.queue):
        return go(address("/queue/dead-letters/redrive", queue=visit.queue))
    return go(address("/message", queue=visit.queue, id=message_id))


async def _waiting(visit: Visit) -> DeadLetter:
    """Return the dead letter that the URL names; raises 404 if it does not exist."""
    message_id = visit.number("id", -1)
    found = await visit.backend.client.dead_letters.show(
        visit.queue, max(message_id, 0), body_bytes_max=PAGE_BYTES_MAX
    )
    for each in found:
        if each.message_id == message_id and each.redriven_at is None:
            return each
    raise RefusedError(404, "No such dead letter", "It was redriven or discarded, or it never existed.")


def _shown(visit: Visit, letter: DeadLetter) -> str:
    # A caller with the right to manage but not to look types a new body.
    return pretty(letter.body) if visit.may("look", visit.queue) else ""


def _form(
    visit: Visit, letter: DeadLetter, fields: Mapping[str, str], problem: str | None = None
) -> Response:
    if bytes_cut(letter.body) is not None or len(text(letter.body)) > LONG:
        raise RefusedError(413, "Too long for a form", "Repair it with spanmq dead-letter edit.")
    return show_form(visit, "repair.html", problem, queue=visit.queue, letter=letter, fields=fields)


PAGES: Final = (
    Page("/queue/dead-letters/repair", ask, "manage", of_queue=True),
    Page("/queue/dead-letters/repair", repair, "manage", of_queue=True, method="POST"),
)
