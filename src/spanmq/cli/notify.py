"""The command `notify`, which sends what needs attention to a webhook."""

import hashlib
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from spanmq.cli.connect import client
from spanmq.cli.failure import INTERRUPTED, describe, say
from spanmq.cli.interrupt import Stop
from spanmq.cli.notices import FORMATS, Notice, compare
from spanmq.cli.option import AsJson, Dsn
from spanmq.cli.output import Output
from spanmq.cli.verbs import Commands
from spanmq.errors import TEMPORARY, InvalidArgumentError, WebhookFailedError

if TYPE_CHECKING:
    from spanmq.client import Client

commands = Commands()

TIMEOUT_SECONDS: Final = 10.0
# Longer than a request that uses up its time, so that no other process sends the same meanwhile.
HELD_SECONDS: Final = 120.0
BACKOFF_MAX_SECONDS: Final = 300.0
ANSWER_BYTES_MAX: Final = 200
SLACK_HOST: Final = "hooks.slack.com"


@commands.command()
def notify(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            envvar="SPANMQ_NOTIFY_URL",
            show_envvar=True,
            help="The webhook. In the environment, other users of the machine do not see it.",
        ),
    ],
    queue: Annotated[
        list[str] | None, typer.Option("--queue", "-q", help="Only this queue; may be given again.")
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="slack|json", help="Form of the requests.", show_default="by the host"
        ),
    ] = None,
    warnings: Annotated[
        bool, typer.Option("--warnings", help="Also warnings: failing, paused and late messages.")
    ] = False,
    every: Annotated[float, typer.Option(min=0.01, max=86_400, help="Seconds between two looks.")] = 60.0,
    once: Annotated[bool, typer.Option("--once", help="Look once, and end: for cron.")] = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Send dead letters, stopped queues and open circuit breakers to a webhook: when they begin, grow and end.

    It announces what `queue attention` shows as problems. The database remembers what was announced, so a restart
    announces nothing again, and several processes with the same URL announce it once. Its role needs `look` and
    `maintain`.

    $ spanmq notify https://hooks.slack.com/services/T00/B00/XXX
    $ spanmq notify http://127.0.0.1:9000/hook --queue orders --once
    """
    output, webhook = Output(as_json=as_json), NoticeWebhook(url, form)
    target = _target(webhook, queue, warnings=warnings)
    failures = 0
    with Stop() as stop, client(dsn) as opened:
        is_first = True
        while not stop.is_set():
            try:
                sent = _look(opened, webhook, target, queue, warnings=warnings)
                failures = 0
                for notice in sent:
                    output.done(
                        f"sent to {webhook.host}: {notice.line}", host=webhook.host, **_record(notice)
                    )
            except (*TEMPORARY, WebhookFailedError) as error:
                # What is wrong at the start, such as a wrong DSN, ends the program; a webhook may be away.
                if once or (is_first and not isinstance(error, WebhookFailedError)):
                    raise
                failures += 1
                say(describe(error))
            is_first = False
            if once or stop.wait(min(2.0**failures, BACKOFF_MAX_SECONDS) if failures else every):
                break
    if stop.was_interrupted:
        say("spanmq: interrupted")
        raise typer.Exit(INTERRUPTED)


class NoticeWebhook:
    """The address of notifications. Only its host is ever printed: the rest of a webhook's URL is a secret."""

    def __init__(self, url: str, form: str | None) -> None:
        from spanmq.push.endpoint import host_of

        self.host, secret = host_of(url)
        form = form or ("slack" if self.host == SLACK_HOST else "json")
        if form not in FORMATS:
            raise InvalidArgumentError(f"--format must be slack or json, got {form!r}")
        self.form, self._url, self._secret = form, url, secret
        self._open = urllib.request.build_opener(_NoRedirect).open

    @property
    def key(self) -> str:
        """Return a text that stands for the URL, and does not show it."""
        return hashlib.sha256(f"{self.form} {self._url}".encode()).hexdigest()

    def send(self, notices: Sequence[Notice]) -> None:
        """Send notices in one request; raises WebhookFailedError unless the answer is a success."""
        body = json.dumps(FORMATS[self.form](notices, datetime.now(UTC)), ensure_ascii=False).encode()
        headers = {"Content-Type": "application/json", "User-Agent": "spanmq"}
        request = urllib.request.Request(self._url, body, headers, method="POST")
        try:
            with self._open(request, timeout=TIMEOUT_SECONDS):
                return
        except urllib.error.HTTPError as error:
            with error:
                answer = error.read1(ANSWER_BYTES_MAX).decode("utf-8", "replace")
            raise self._failed(f"{self.host} answered {error.code} {answer}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            # A URLError's reason, not the error: that may quote the URL.
            reason = getattr(error, "reason", None) or type(error).__name__
            raise self._failed(f"{self.host} can't be reached: {reason}") from None

    def _failed(self, words: str) -> WebhookFailedError:
        shown = words.replace(self._secret, "…") if len(self._secret) > 1 else words
        return WebhookFailedError(" ".join(shown.split()))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A notification is not sent on to another host: urllib would make a GET of it."""

    def redirect_request(self, *_: Any) -> None:
        """Refuse the redirect, which is then an error."""


def _look(
    opened: "Client", webhook: NoticeWebhook, target: str, queues: Sequence[str] | None, *, warnings: bool
) -> list[Notice]:
    """Send what is to be announced, and return it; [] where another process does so."""
    held = opened.admin.begin_notices(target, HELD_SECONDS)
    if held is None:
        return []
    announced = held.announced
    try:
        notices, after = compare(announced, opened.health.attention(queues or None), warnings=warnings)
        if notices:
            webhook.send(notices)
        announced = after
    finally:
        # After a failure as it was: the next look sends it.
        opened.admin.end_notices(target, held, announced)
    return notices


def _target(webhook: NoticeWebhook, queues: Sequence[str] | None, *, warnings: bool) -> str:
    """Return the name under which the database remembers what was announced."""
    which = json.dumps([sorted(queue.lower() for queue in queues or ()), warnings])
    return hashlib.sha256(f"{webhook.key} {which}".encode()).hexdigest()


def _record(notice: Notice) -> dict[str, Any]:
    return {name: getattr(notice, name) for name in ("change", "queue", "reason", "level", "n", "words")}
