"""Pages of dead letters: list them with their causes, redrive or delete them after a preview."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from starlette.responses import Response

from spanmq.errors import InvalidArgumentError, NotPossibleError
from spanmq.model import Cause, DeadLetter, causes_of
from spanmq_service.dashboard import form_values
from spanmq_service.dashboard.formatting import ROW_BYTES_MAX, address
from spanmq_service.dashboard.page import Page, go, show, show_form
from spanmq_service.dashboard.page_request import PageRequest, RefusedError
from spanmq_service.dashboard.queue_state import head_of

SHOWN: Final = 12
CAUSES: Final = 4
# The page over all queues: causes of the queues with the most dead letters.
ALL_CAUSES: Final = 12
WORST: Final = 10
# Causes are determined from this number of dead letters: there may be millions.
SAMPLE: Final = 500
# So many a step: the form comes again for the rest.
LIMIT_MAX: Final = 10_000
CATEGORIES: Final = ("TRANSIENT", "DEPENDENCY", "PERMANENT", "BUSINESS", "UNKNOWN")
WHICH: Final = {"waiting": False, "redriven": True, "all": None}
NOTICES: Final = {
    "redriven": "Redriven: {n} dead letters are in the queue again, hidden for the delay.",
    "partly": "Redriven: {n} dead letters are in the queue again, hidden for the delay. Others stay: another message"
    " in the queue has the same dedup id.",
    "discarded": "Discarded: {n} dead letters were deleted.",
}
FILTERS: Final = ("category", "error", "error_class", "since", "until", "payload", "where", "letters")


async def overview(request: PageRequest) -> Response:
    """Show how many there are in each queue."""
    counts: dict[str, dict[str, int]] = {}
    for count in request.seen(await request.backend.client.dead_letters.count()):
        counts.setdefault(count.queue, {})[count.category] = count.count
    rows = sorted(counts.items(), key=lambda row: (-sum(row[1].values()), row[0]))
    worst, causes = [queue for queue, _ in rows[:WORST]], list[tuple[str, Cause]]()
    for queue in worst:
        # Of each its newest: causes are told from errors, and no body is loaded.
        letters = await request.backend.client.dead_letters.list(
            queue, limit=SAMPLE // len(worst), body_bytes_max=0, newest_first=True
        )
        causes += [(queue, cause) for cause in causes_of(letters)]
    causes.sort(key=lambda pair: -pair[1].count)
    return show(
        request,
        "dead_letter_queues.html",
        rows=rows,
        categories=CATEGORIES,
        causes=causes[:ALL_CAUSES],
        sample=SAMPLE // max(len(worst), 1),
        worst=len(worst),
    )


async def answer(request: PageRequest) -> Response:
    """Show the dead letters of a queue."""
    head = await head_of(request)
    queue = head.queue
    filters, which = _filters(request), request.text("which") or "waiting"
    after, is_oldest_first = request.number("after", 0), request.text("order") == "oldest"
    problem: str | None = None
    letters: list[DeadLetter] = []
    sample: list[DeadLetter] = []
    counts = await request.backend.client.dead_letters.count(queue)
    try:
        choice = _choice(filters)
        redriven = _which(which)
        async with request.backend.costly_searches.searching(request.caller, choice) as client:
            letters = sample = await client.dead_letters.list(
                queue,
                **choice,
                redriven=redriven,
                after=after,
                limit=SHOWN + 1,
                body_bytes_max=ROW_BYTES_MAX,
                newest_first=not is_oldest_first,
            )
            if after or len(letters) > SHOWN:
                # Causes are told from errors: no body is loaded.
                sample = await client.dead_letters.list(
                    queue, **choice, redriven=redriven, limit=SAMPLE, body_bytes_max=0, newest_first=True
                )
    except InvalidArgumentError as error:
        problem = error.message
    return show_form(
        request,
        "dead_letters.html",
        problem,
        head=head,
        numbers={count.category: count.count for count in counts},
        filters=filters,
        which=which,
        whiches=tuple(WHICH),
        categories=CATEGORIES,
        letters=letters[:SHOWN],
        has_more=len(letters) > SHOWN,
        after=after,
        order="oldest" if is_oldest_first else "",
        causes=causes_of(sample),
        causes_shown=100 if request.text("causes") == "all" else CAUSES,
        is_sample=len(sample) == SAMPLE,
        sample_size=len(sample),
        notice=request.notice(NOTICES),
    )


async def ask_redrive(request: PageRequest) -> Response:
    """Show the dead letters that would be redriven."""
    _check_selection(request)
    return await _preview_redrive(request, dict(request.http.query_params))


async def redrive(request: PageRequest) -> Response:
    """Redrive the dead letters of the preview."""
    fields = await request.form()
    try:
        terms, choice = _terms(fields), _choice(_filters(request))
        request.check_choice(choice)
        redriven = await request.backend.costly_searches.redrive(
            request.caller, request.queue, **choice, **terms
        )
    except (InvalidArgumentError, NotPossibleError) as error:
        return await _preview_redrive(request, fields, error.message)
    n = sum(letter.beside is None for letter in redriven)
    done = "redriven" if n == len(redriven) else "partly"
    return go(address("/queue/dead-letters", queue=request.queue, done=done, n=n))


async def ask_discard(request: PageRequest) -> Response:
    """Show how many would be deleted."""
    _check_selection(request)
    return await _preview_discard(request, None)


async def discard(request: PageRequest) -> Response:
    """Delete the dead letters of the preview, if the name of the queue was typed."""
    fields = await request.form()
    if fields.get("confirmation", "").strip() != request.queue:
        return await _preview_discard(request, "That is not the name of the queue; nothing was deleted.")
    try:
        choice = _choice(_filters(request))
        redriven = _which(request.text("which") or "waiting")
        request.check_choice(choice)
        removed = await request.backend.costly_searches.discard(
            request.caller, request.queue, **choice, redriven=redriven, limit=LIMIT_MAX
        )
    except InvalidArgumentError as error:
        return await _preview_discard(request, error.message)
    return go(address("/queue/dead-letters", queue=request.queue, done="discarded", n=removed))


async def _preview_redrive(
    request: PageRequest, fields: Mapping[str, str], problem: str | None = None
) -> Response:
    matches = []
    filters = _bounded(_filters(request))
    pace = {name: fields.get(name, "") for name in ("limit", "rate", "delay", "patch")}
    if problem is None:
        try:
            terms, choice = _terms(pace), _choice(filters)
            request.check_choice(choice, is_shown=terms["patch"] is not None)
            async with request.backend.costly_searches.searching(request.caller, choice) as client:
                matches = await client.dead_letters.redrive(request.queue, **choice, **terms, dry_run=True)
        except (InvalidArgumentError, NotPossibleError) as error:
            problem = error.message
    letters: dict[int, DeadLetter] = {}
    if request.may("look", request.queue):
        for match in matches[:SHOWN]:
            for letter in await request.backend.client.dead_letters.show(
                request.queue, match.message_id, body_bytes_max=ROW_BYTES_MAX
            ):
                if letter.redriven_at is None:
                    letters[match.message_id] = letter
    n = sum(match.beside is None for match in matches)
    shown = {
        "filters": filters,
        "pace": pace,
        "matches": matches,
        "n": n,
        "shown": matches[:SHOWN],
        "letters": letters,
    }
    return show_form(request, "redrive.html", problem, queue=request.queue, **shown)


async def _preview_discard(request: PageRequest, problem: str | None) -> Response:
    filters, which, count = _bounded(_filters(request)), request.text("which") or "waiting", 0
    try:
        choice = _choice(filters)
        request.check_choice(choice)
        async with request.backend.costly_searches.searching(request.caller, choice) as client:
            count = await client.dead_letters.discard(
                request.queue, **choice, redriven=_which(which), limit=LIMIT_MAX, dry_run=True
            )
    except InvalidArgumentError as error:
        problem = error.message
    shown = {"filters": filters, "which": which, "count": count, "most": LIMIT_MAX}
    return show_form(request, "discard.html", problem, queue=request.queue, **shown)


def _check_selection(request: PageRequest) -> None:
    """Refuse a form of selected rows without any: no selection stands for all that match."""
    if request.text("selected") and not any(request.http.query_params.getlist("letters")):
        raise RefusedError(400, "Which dead letters?", "Select one dead letter or more.")


def _filters(request: PageRequest) -> dict[str, str]:
    """Return the filters as they were typed."""
    filters = {name: request.text(name).strip() for name in FILTERS}
    # Each row that is selected has the parameter once more.
    return filters | {"letters": ",".join(request.http.query_params.getlist("letters"))}


def _bounded(filters: dict[str, str]) -> dict[str, str]:
    """Limit the filters to dead letters that existed when the preview was shown."""
    return filters if filters["until"] else {**filters, "until": datetime.now(UTC).isoformat()}


def _choice(filters: Mapping[str, str]) -> dict[str, Any]:
    """Return the filters as the client takes them."""
    choice: dict[str, Any] = {name: filters[name] or None for name in FILTERS}
    read = {
        "since": form_values.moment(filters["since"], "since"),
        "until": form_values.moment(filters["until"], "until"),
    }
    ids = {"dead_letter_ids": _ids(choice.pop("letters"))}
    return choice | read | ids | {"payload": form_values.json_object(filters["payload"], "payload")}


def _ids(texts: str | None) -> list[int] | None:
    """Return the ids of the selected dead letters; None for all."""
    if texts is None:
        return None
    if not re.fullmatch(r"\d{1,18}(,\d{1,18}){0,999}", texts, re.ASCII):
        raise InvalidArgumentError("the selected dead letters are not ids")
    return [int(text) for text in texts.split(",")]


def _which(name: str) -> bool | None:
    if name not in WHICH:
        raise InvalidArgumentError(f"there is no such choice: {name}")
    return WHICH[name]


def _terms(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return how many are redriven, how fast, and with which patch."""
    limit = fields.get("limit", "").strip() or "1000"
    if not re.fullmatch(r"[0-9]{1,5}", limit) or not 1 <= int(limit) <= LIMIT_MAX:
        raise InvalidArgumentError(f"the number must be from 1 to {LIMIT_MAX:,}")
    patch = fields.get("patch", "").strip()
    return {
        "limit": int(limit),
        "rate": form_values.number(fields.get("rate", ""), "rate"),
        "delay": form_values.number(fields.get("delay", ""), "delay"),
        "patch": form_values.body(patch, "patch") if patch else None,
    }


PAGES: Final = (
    Page("/dead-letters", overview),
    Page("/queue/dead-letters", answer, of_queue=True),
    Page("/queue/dead-letters/redrive", ask_redrive, "manage", of_queue=True),
    Page("/queue/dead-letters/redrive", redrive, "manage", of_queue=True, method="POST"),
    Page("/queue/dead-letters/discard", ask_discard, "manage", of_queue=True),
    Page("/queue/dead-letters/discard", discard, "manage", of_queue=True, method="POST"),
)
