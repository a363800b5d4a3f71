"""Pages of dead letters: list them with their causes, redrive or delete them after a preview."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from starlette.responses import Response

from spanmq.errors import InvalidArgumentError, NotPossibleError
from spanmq.model import Cause, DeadLetter, causes_of
from spanmq_service.dashboard import typed
from spanmq_service.dashboard.page import Page, go, show, show_form
from spanmq_service.dashboard.queue_head import head_of
from spanmq_service.dashboard.visit import RefusedError, Visit
from spanmq_service.dashboard.wording import ROW_BYTES_MAX, address

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


async def overview(visit: Visit) -> Response:
    """Show how many there are in each queue."""
    counts: dict[str, dict[str, int]] = {}
    for each in visit.seen(await visit.backend.client.dead_letters.count()):
        counts.setdefault(each.queue, {})[each.category] = each.count
    rows = sorted(counts.items(), key=lambda each: (-sum(each[1].values()), each[0]))
    worst, causes = [queue for queue, _ in rows[:WORST]], list[tuple[str, Cause]]()
    for queue in worst:
        # Of each its newest: causes are told from errors, and no body is loaded.
        letters = await visit.backend.client.dead_letters.list(
            queue, limit=SAMPLE // len(worst), body_bytes_max=0, newest_first=True
        )
        causes += [(queue, each) for each in causes_of(letters)]
    causes.sort(key=lambda each: -each[1].count)
    return show(
        visit,
        "dead_letter_queues.html",
        rows=rows,
        categories=CATEGORIES,
        causes=causes[:ALL_CAUSES],
        sample=SAMPLE // max(len(worst), 1),
        worst=len(worst),
    )


async def answer(visit: Visit) -> Response:
    """Show the dead letters of a queue."""
    head = await head_of(visit)
    queue = head.queue
    given, which = _given(visit), visit.text("which") or "waiting"
    after, is_oldest_first = visit.number("after", 0), visit.text("order") == "oldest"
    problem: str | None = None
    letters: list[DeadLetter] = []
    sample: list[DeadLetter] = []
    counts = await visit.backend.client.dead_letters.count(queue)
    try:
        choice = _choice(given)
        redriven = _which(which)
        async with visit.backend.patterns.searching(visit.caller, choice) as client:
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
        visit,
        "dead_letters.html",
        problem,
        head=head,
        numbers={each.category: each.count for each in counts},
        given=given,
        which=which,
        whiches=tuple(WHICH),
        categories=CATEGORIES,
        letters=letters[:SHOWN],
        has_more=len(letters) > SHOWN,
        after=after,
        order="oldest" if is_oldest_first else "",
        causes=causes_of(sample),
        causes_shown=100 if visit.text("causes") == "all" else CAUSES,
        is_sample=len(sample) == SAMPLE,
        sample_size=len(sample),
        notice=visit.notice(NOTICES),
    )


async def ask_redrive(visit: Visit) -> Response:
    """Show the dead letters that would be redriven."""
    _check_selection(visit)
    return await _preview_redrive(visit, dict(visit.request.query_params))


async def redrive(visit: Visit) -> Response:
    """Redrive the dead letters of the preview."""
    fields = await visit.form()
    try:
        terms, choice = _terms(fields), _choice(_given(visit))
        visit.check_choice(choice)
        found = await visit.backend.patterns.redrive(visit.caller, visit.queue, **choice, **terms)
    except (InvalidArgumentError, NotPossibleError) as error:
        return await _preview_redrive(visit, fields, error.message)
    n = sum(each.beside is None for each in found)
    done = "redriven" if n == len(found) else "partly"
    return go(address("/queue/dead-letters", queue=visit.queue, done=done, n=n))


async def ask_discard(visit: Visit) -> Response:
    """Show how many would be deleted."""
    _check_selection(visit)
    return await _preview_discard(visit, None)


async def discard(visit: Visit) -> Response:
    """Delete the dead letters of the preview, if the name of the queue was typed."""
    fields = await visit.form()
    if fields.get("confirmation", "").strip() != visit.queue:
        return await _preview_discard(visit, "That is not the name of the queue; nothing was deleted.")
    try:
        choice = _choice(_given(visit))
        redriven = _which(visit.text("which") or "waiting")
        visit.check_choice(choice)
        removed = await visit.backend.patterns.discard(
            visit.caller, visit.queue, **choice, redriven=redriven, limit=LIMIT_MAX
        )
    except InvalidArgumentError as error:
        return await _preview_discard(visit, error.message)
    return go(address("/queue/dead-letters", queue=visit.queue, done="discarded", n=removed))


async def _preview_redrive(visit: Visit, fields: Mapping[str, str], problem: str | None = None) -> Response:
    found = []
    given = _bounded(_given(visit))
    pace = {name: fields.get(name, "") for name in ("limit", "rate", "delay", "patch")}
    if problem is None:
        try:
            terms, choice = _terms(pace), _choice(given)
            visit.check_choice(choice, is_shown=terms["patch"] is not None)
            async with visit.backend.patterns.searching(visit.caller, choice) as client:
                found = await client.dead_letters.redrive(visit.queue, **choice, **terms, dry_run=True)
        except (InvalidArgumentError, NotPossibleError) as error:
            problem = error.message
    letters: dict[int, DeadLetter] = {}
    if visit.may("look", visit.queue):
        for each in found[:SHOWN]:
            for letter in await visit.backend.client.dead_letters.show(
                visit.queue, each.message_id, body_bytes_max=ROW_BYTES_MAX
            ):
                if letter.redriven_at is None:
                    letters[each.message_id] = letter
    n = sum(each.beside is None for each in found)
    shown = {"given": given, "pace": pace, "found": found, "n": n, "shown": found[:SHOWN], "letters": letters}
    return show_form(visit, "redrive.html", problem, queue=visit.queue, **shown)


async def _preview_discard(visit: Visit, problem: str | None) -> Response:
    given, which, count = _bounded(_given(visit)), visit.text("which") or "waiting", 0
    try:
        choice = _choice(given)
        visit.check_choice(choice)
        async with visit.backend.patterns.searching(visit.caller, choice) as client:
            count = await client.dead_letters.discard(
                visit.queue, **choice, redriven=_which(which), limit=LIMIT_MAX, dry_run=True
            )
    except InvalidArgumentError as error:
        problem = error.message
    shown = {"given": given, "which": which, "count": count, "most": LIMIT_MAX}
    return show_form(visit, "discard.html", problem, queue=visit.queue, **shown)


def _check_selection(visit: Visit) -> None:
    """Refuse a form of selected rows without any: no selection stands for all that match."""
    if visit.text("selected") and not any(visit.request.query_params.getlist("letters")):
        raise RefusedError(400, "Which dead letters?", "Select one dead letter or more.")


def _given(visit: Visit) -> dict[str, str]:
    """Return the filters as they were typed."""
    given = {name: visit.text(name).strip() for name in FILTERS}
    # Each row that is selected has the parameter once more.
    return given | {"letters": ",".join(visit.request.query_params.getlist("letters"))}


def _bounded(given: dict[str, str]) -> dict[str, str]:
    """Limit the filters to dead letters that existed when the preview was shown."""
    return given if given["until"] else {**given, "until": datetime.now(UTC).isoformat()}


def _choice(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the filters as the client takes them."""
    choice: dict[str, Any] = {name: given[name] or None for name in FILTERS}
    read = {"since": _moment("since", given["since"]), "until": _moment("until", given["until"])}
    ids = {"dead_letter_ids": _ids(choice.pop("letters"))}
    return choice | read | ids | {"payload": typed.json_object(given["payload"], "payload")}


def _ids(given: str | None) -> list[int] | None:
    """Return the ids of the selected dead letters; None for all."""
    if given is None:
        return None
    if not re.fullmatch(r"\d{1,18}(,\d{1,18}){0,999}", given, re.ASCII):
        raise InvalidArgumentError("the selected dead letters are not ids")
    return [int(each) for each in given.split(",")]


def _which(name: str) -> bool | None:
    if name not in WHICH:
        raise InvalidArgumentError(f"there is no such choice: {name}")
    return WHICH[name]


def _moment(name: str, given: str) -> datetime | None:
    """Read a time; without a time zone it is UTC, as times on the pages are."""
    if not given:
        return None
    try:
        found = datetime.fromisoformat(given)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"{name} is not a time: {given}") from error


def _terms(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return how many are redriven, how fast, and with which patch."""
    limit = fields.get("limit", "").strip() or "1000"
    if not re.fullmatch(r"[0-9]{1,5}", limit) or not 1 <= int(limit) <= LIMIT_MAX:
        raise InvalidArgumentError(f"the number must be from 1 to {LIMIT_MAX:,}")
    patch = fields.get("patch", "").strip()
    return {
        "limit": int(limit),
        "rate": typed.number(fields.get("rate", ""), "rate"),
        "delay": typed.number(fields.get("delay", ""), "delay"),
        "patch": typed.body(patch, "patch") if patch else None,
    }


PAGES: Final = (
    Page("/dead-letters", overview),
    Page("/queue/dead-letters", answer, of_queue=True),
    Page("/queue/dead-letters/redrive", ask_redrive, "manage", of_queue=True),
    Page("/queue/dead-letters/redrive", redrive, "manage", of_queue=True, method="POST"),
    Page("/queue/dead-letters/discard", ask_discard, "manage", of_queue=True),
    Page("/queue/dead-letters/discard", discard, "manage", of_queue=True, method="POST"),
)
