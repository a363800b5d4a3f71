"""Changes of the reasons for attention since their announcement, and the forms of a webhook's requests."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from spanmq.model import Attention
from spanmq.model.attention import REASONS, duration

# A number that has grown by this factor, and by this much, since it was announced is announced again.
GROWTH: Final = 2
GROWTH_MIN: Final = 10
# Lines of one notification; the rest is counted.
LINES_MAX: Final = 30
LINE_MAX: Final = 500
# Reasons that are remembered; those of more queues are not announced.
ANNOUNCED_MAX: Final = 2_000

Change = Literal["began", "changed", "ended"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A reason for attention that `began`, `changed` or `ended`; `words` are a sentence about it."""

    change: Change
    queue: str
    reason: str
    level: str
    n: int
    words: str

    @property
    def line(self) -> str:
        """Return one line for people."""
        title = REASONS.get(self.reason, self.reason.replace("_", " "))
        line = (
            f"{self.queue}: {title}: {self.words}"
            if self.change != "ended"
            else f"{self.queue}: {self.words}"
        )
        return line if len(line) <= LINE_MAX else f"{line[: LINE_MAX - 1]}…"


def compare(
    announced: Any, current: Iterable[Attention], *, warnings: bool = False, now: datetime | None = None
) -> tuple[list[Notice], list[dict[str, Any]]]:
    """Return what is to be announced now, and what will have been announced then.

    `announced` is what the call before returned, [] at first. A problem begins a notice, a warning only with
    `warnings`. A reason has ended when it is missing twice in a row: a breaker is closed for a moment at each trial.
    """
    now = now or datetime.now(UTC)
    before = {(entry["queue"], entry["reason"]): entry for entry in announced}
    notices, after = list[Notice](), list[dict[str, Any]]()
    for attention in sorted(
        current, key=lambda attention: (attention.level != "problem", attention.rank, attention.queue)
    ):
        entry = before.pop((attention.queue, attention.reason), None)
        change = _change(entry, attention, warnings=warnings)
        if entry is None and (change is None or len(after) >= ANNOUNCED_MAX):
            continue
        if change is not None:
            notices.append(_notice(change, attention))
        told = entry if entry is not None and change is None else None
        after.append(
            {
                "queue": attention.queue,
                "reason": attention.reason,
                "level": attention.level,
                "n": told["n"] if told else attention.n,
                "since": entry["since"] if entry else now.isoformat(),
            }
        )
    for (queue, reason), entry in before.items():
        if "missed" not in entry:
            after.append({**entry, "missed": True})
            continue
        lasted = duration((now - datetime.fromisoformat(entry["since"])).total_seconds())
        words = f"no longer: {REASONS.get(reason, reason)}. It lasted {lasted}."
        notices.append(Notice(change="ended", queue=queue, reason=reason, level="ok", n=0, words=words))
    return notices, after


def _change(entry: Mapping[str, Any] | None, attention: Attention, *, warnings: bool) -> Change | None:
    if attention.level != "problem" and not warnings:
        return None
    if entry is None:
        return "began"
    has_grown = attention.n >= GROWTH * entry["n"] and attention.n - entry["n"] >= GROWTH_MIN
    is_worse = attention.level == "problem" and entry["level"] != "problem"
    return "changed" if has_grown or is_worse else None


def _notice(change: Change, attention: Attention) -> Notice:
    return Notice(
        change=change,
        queue=attention.queue,
        reason=attention.reason,
        level=attention.level,
        n=attention.n,
        words=attention.words,
    )


def as_json(notices: Sequence[Notice], now: datetime) -> dict[str, Any]:
    """Return the plain form: an object with a text for people, and an object for each notice."""
    shown = [
        {name: getattr(notice, name) for name in ("change", "queue", "reason", "level", "n", "words")}
        for notice in notices[:LINES_MAX]
    ]
    return {
        "source": "spanmq",
        "sent_at": now.isoformat(),
        "text": _text([notice.line for notice in notices], len(notices)),
        "notices": shown,
        "left_out": len(notices) - len(shown),
    }


def as_slack(notices: Sequence[Notice], _: datetime) -> dict[str, Any]:
    """Return the form of Slack's incoming webhooks, which Mattermost, Rocket.Chat and Discord (…/slack) take too."""
    signs = {"problem": ":red_circle:", "warning": ":large_yellow_circle:", "ok": ":white_check_mark:"}
    lines = [f"{signs.get(notice.level, '')} {_escaped(notice.line)}" for notice in notices]
    return {"text": _text(lines, len(notices))}


FORMATS: Final = {"json": as_json, "slack": as_slack}


def _escaped(text: str) -> str:
    # Slack's three characters: without it, an error could mention everyone in a channel.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _text(lines: Sequence[str], n: int) -> str:
    more = [f"and {n - LINES_MAX:,} more"] if n > LINES_MAX else []
    return "\n".join([*lines[:LINES_MAX], *more])
