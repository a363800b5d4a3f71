"""Repairing a dead letter: its body is changed, and it is the same message again."""

from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

from spanmq.client.calls import UNCHANGED
from spanmq.errors import InvalidArgumentError, NotPossibleError
from spanmq.model import DeadLetter
from spanmq_service.dashboard import form_values
from spanmq_service.dashboard.formatting import LONG, PAGE_BYTES_MAX, address, bytes_cut, pretty, text
from spanmq_service.dashboard.page import Page, go, show_form
from spanmq_service.dashboard.page_request import PageRequest, RefusedError


async def ask(request: PageRequest) -> Response:
    """Show the form with the body as it is."""
    letter = await _waiting(request)
    return _form(request, letter, {"body": _shown(request, letter)})


async def repair(request: PageRequest) -> Response:
    """Put the letter back with the body that was typed."""
    fields = await request.form()
    letter = await _waiting(request)
    text = fields.get("body", "").replace("\r\n", "\n").strip()
    try:
        # An unchanged body stays as it is stored, also if it is encrypted.
        is_touched = not text or text != _shown(request, letter)
        message_id = await request.backend.client.dead_letters.edit(
            request.queue,
            letter.message_id,
            body=form_values.body(text) if is_touched else UNCHANGED,
            delay=form_values.number(fields.get("delay", ""), "delay"),
        )
    except (InvalidArgumentError, NotPossibleError) as error:
        return _form(request, letter, fields, error.message)
    if not request.may("look", request.queue):
        return go(address("/queue/dead-letters/redrive", queue=request.queue))
    return go(address("/message", queue=request.queue, id=message_id))


async def _waiting(request: PageRequest) -> DeadLetter:
    """Return the dead letter that the URL names; raises 404 if it does not exist."""
    message_id = request.number("id", -1)
    letters = await request.backend.client.dead_letters.show(
        request.queue, max(message_id, 0), body_bytes_max=PAGE_BYTES_MAX
    )
    for letter in letters:
        if letter.message_id == message_id and letter.redriven_at is None:
            return letter
    raise RefusedError(404, "No such dead letter", "It was redriven or discarded, or it never existed.")


def _shown(request: PageRequest, letter: DeadLetter) -> str:
    # A caller with the right to manage but not to look types a new body.
    return pretty(letter.body) if request.may("look", request.queue) else ""


def _form(
    request: PageRequest, letter: DeadLetter, fields: Mapping[str, str], problem: str | None = None
) -> Response:
    if bytes_cut(letter.body) is not None or len(text(letter.body)) > LONG:
        raise RefusedError(413, "Too long for a form", "Repair it with spanmq dead-letter edit.")
    return show_form(request, "repair.html", problem, queue=request.queue, letter=letter, fields=fields)


PAGES: Final = (
    Page("/queue/dead-letters/repair", ask, "manage", of_queue=True),
    Page("/queue/dead-letters/repair", repair, "manage", of_queue=True, method="POST"),
)
