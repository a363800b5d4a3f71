# Generated from src/spanmq/client/_async/admin.py by tools/generate_sync.py: change that file.

"""Calls of operators, the service, workers and jobs: `client.admin`, with a namespace for each noun.

Without the driver: commands read the methods to show their help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from spanmq.client import argument, functions
from spanmq.client._sync.grants import Grants
from spanmq.client._sync.schedules import plan_schedules
from spanmq.client.argument import Delay, Seconds, optional
from spanmq.client.call import Result, Shape, SqlCall, optional_queue_call, queue_call
from spanmq.client.namespace import Namespace
from spanmq.client.rows import (
    flag,
    held_notices,
    listed,
    nothing,
    number,
    pipeline_runs,
    receivers,
    running_handlers,
    string,
)
from spanmq.client.secret import ALL_VERBS, hash_of, new_access_key, new_secret, rights
from spanmq.codec.body import Codec, to_json
from spanmq.errors import NotFoundError, NotPossibleError
from spanmq.model import (
    AccessKey,
    Flavour,
    HeldNotices,
    MaintenanceStep,
    NotifyThrottle,
    PipelineRun,
    Receiver,
    RunningHandler,
    Token,
)

if TYPE_CHECKING:
    from spanmq.client._sync.connection import Link
    from spanmq.client._sync.listener import Announcement, Bell, Listener


class Tokens:
    """Tokens for callers of the HTTP service. The database has only hashes: a secret is shown once."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def create(
        self, name: str, *, queues: Iterable[str], verbs: Iterable[str], expires: Delay | None = None
    ) -> str:
        """Create a token and return its secret, which is not stored, and cannot be shown again.

        It has this `name`. `queues` are patterns of names, in which * stands for any characters; `verbs` are of send,
        receive, look and manage. `expires` is seconds, a timedelta or the moment itself; None: never. Raises
        InvalidArgumentError for a name that is taken, an invalid pattern, an unknown verb or a time in the past.
        """
        secret = new_secret()
        arguments = (
            argument.text("name", name),
            argument.text("secret_hash", hash_of(secret)),
            *rights("token", queues, verbs, expires),
        )
        self._link.run(optional_queue_call(None, "create_token", nothing, *arguments))
        return secret

    def rotate(self, name: str, *, overlap: Seconds = 0.0) -> str:
        """Replace the secret of a token, and return the new one.

        It is the token of this `name`; the secret before is valid for `overlap` seconds more. Raises NotFoundError if
        there is no token of this name.
        """
        secret = new_secret()
        arguments = (
            argument.text("name", name),
            argument.text("secret_hash", hash_of(secret)),
            argument.seconds("overlap", overlap),
        )
        if not self._link.run(optional_queue_call(None, "rotate_token", flag, *arguments)):
            raise NotFoundError(f"no token has the name {name!r}", code="token_not_found")
        return secret

    def revoke(self, name: str) -> bool:
        """Revoke a token; services stop accepting it at once.

        Return whether one of this `name` existed. Raises MissingPrivilegeError without the right "admin".
        """
        return self._link.run(optional_queue_call(None, "revoke_token", flag, argument.text("name", name)))

    def list(self) -> list[Token]:
        """List the tokens by name, without their secrets, those that have expired too.

        Raises MissingPrivilegeError without "admin".
        """
        return self._link.run(optional_queue_call(None, "list_tokens", listed(Token)))


class Keys:
    """Keys that sign requests of the SQS protocol."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def create(
        self,
        *,
        queues: Iterable[str] = ("*",),
        verbs: Iterable[str] = ALL_VERBS,
        expires: Delay | None = None,
    ) -> AccessKey:
        """Create a key, and return it with its secret, which no list shows.

        `queues` are patterns of names, in which * stands for any characters; `verbs` are of send, receive, look and
        manage. `expires` is seconds, a timedelta or the moment itself; None: never. Raises InvalidArgumentError for
        an invalid pattern, an unknown verb or a time in the past.
        """
        access_key_id, secret = new_access_key()
        arguments = (
            argument.text("access_key_id", access_key_id),
            argument.text("secret", secret),
            *rights("key", queues, verbs, expires),
        )
        self._link.run(optional_queue_call(None, "create_access_key", nothing, *arguments))
        return AccessKey(access_key_id, [*queues], [*verbs], secret=secret)

    def revoke(self, access_key_id: str) -> bool:
        """Revoke a key; services stop accepting it at once.

        Return whether one with this `access_key_id` existed. Raises MissingPrivilegeError without the right "admin".
        """
        arguments = (argument.text("access_key_id", access_key_id),)
        return self._link.run(optional_queue_call(None, "revoke_access_key", flag, *arguments))

    def list(self) -> list[AccessKey]:
        """List the keys by their ids, without their secrets, those that have expired too.

        Raises MissingPrivilegeError without the right "admin".
        """
        return self._link.run(optional_queue_call(None, "list_access_keys", listed(AccessKey)))


class Receivers:
    """Streams that consume queues."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def adopt(self, queue: str, receiver: str) -> None:
        """Allow the next new checkpoint with the label of a `receiver` of a `queue` to continue in its place.

        It gets the messages that the receiver holds. A stream that still runs under it stops with an error. The next
        stream writes again what that one wrote and did not settle. Raises InvalidArgumentError for an unknown
        receiver, and QueueNotFoundError.
        """
        self._link.run(queue_call(queue, "adopt_receiver", nothing, argument.text("receiver", receiver)))

    def release(
        self,
        queue: str,
        receiver: str,
        settled: int | None = None,
        *,
        settled_token: str | None = None,
    ) -> int:
        """Release what a `receiver` (its label or id) holds of a `queue`; return how many messages.

        First settles the batches up to `settled`, which its checkpoint proves to be done. With the `settled_token`
        that the checkpoint has of that batch, PositionUnknownError is raised if this database does not know it. A
        stream that still runs under it stops with an error. Raises InvalidArgumentError for an unknown receiver, and
        QueueNotFoundError.
        """
        arguments = (
            argument.text("receiver", receiver),
            *optional(argument.bigint, "settled", settled),
            *optional(argument.uuid, "settled_token", settled_token),
        )
        return self._link.run(queue_call(queue, "release_receiver", number, *arguments))

    def reject(
        self,
        queue: str,
        receiver: str,
        message_ids: int | Iterable[int],
        error: str | None = None,
        *,
        category: str | None = None,
    ) -> int:
        """Make dead letters of messages that a stream holds and fails on; then start it again.

        The `receiver` of a `queue` holds these `message_ids`, one or several; `error` is the reason and `category` its
        category. Return how many became dead letters. A stream that still runs under the receiver stops with an error;
        started again it continues without them. Raises InvalidArgumentError for an unknown receiver or category, and
        QueueNotFoundError.
        """
        arguments = (
            argument.text("receiver", receiver),
            argument.bigints("message_ids", message_ids).to("msg_ids"),
            *optional(argument.text, "error", error),
            *optional(argument.text, "category", category),
        )
        return self._link.run(queue_call(queue, "reject_from_receiver", number, *arguments))

    def forget_export(self, queue: str, lake: str) -> bool:
        """Make the retention of a `queue`'s archive independent of a `lake` that `spanmq pipeline export` wrote into.

        Return whether an export into it is noted: its name is its folder's whole path, as the export resolved it.
        Raises QueueNotFoundError.
        """
        return self._link.run(queue_call(queue, "forget_export", flag, argument.text("lake", lake)))

    def list(self, queue: str | None = None) -> list[Receiver]:
        """List the streams that consume a `queue`, or (None) any queue, and how many messages each holds.

        Raises QueueNotFoundError, and for all queues MissingPrivilegeError without the right "look" on all.
        """
        return self._link.run(optional_queue_call(queue, "list_receivers", receivers))


class PipelineRuns:
    """Runs of jobs, such as exports and backfills, which record themselves."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def begin(self, job: str, queue: str | None = None, *, target: str | None = None) -> int:
        """Record the start of a `job`, on a `queue` or (None) on several; return the run's id.

        `target` is the destination or the source of its data. For a queue the newest thousand are kept. Raises
        InvalidArgumentError for a name or a target that is empty or too long, and QueueNotFoundError.
        """
        arguments = (
            argument.text("job", job),
            *optional(argument.text, "target", target),
        )
        return self._link.run(optional_queue_call(queue, "begin_pipeline_run", number, *arguments))

    def note(self, run_id: int, *, done: int | None = None) -> bool:
        """Record that the run `run_id` is alive, and the number of messages it has `done`.

        Call this every two minutes, or the run is "lost". False: this role has no such run, or it has ended. Raises
        MissingPrivilegeError without the right "look" on the run's queue.
        """
        arguments = (argument.bigint("run_id", run_id), *optional(argument.bigint, "done", done))
        return self._link.run(optional_queue_call(None, "note_pipeline_run", flag, *arguments))

    def end(self, run_id: int, *, report: Mapping[str, Any] | None = None, error: str | None = None) -> bool:
        """Record the end of the run `run_id`, with its `report`, a mapping, or with the text of its `error`.

        False: this role has no such run, or it has ended. Raises InvalidArgumentError for a report of over 64 KB.
        """
        arguments = (
            argument.bigint("run_id", run_id),
            argument.json("report", None if report is None else Codec().encode(dict(report))),
            argument.text("error", error),
        )
        return self._link.run(optional_queue_call(None, "end_pipeline_run", flag, *arguments))

    def list(
        self, queue: str | None = None, *, before: int | None = None, limit: int = 100
    ) -> list[PipelineRun]:
        """List the runs of the jobs of a `queue`, or (None) of all, the newest first.

        A run that has not reported for two minutes is lost: it was killed, or its machine stopped. At most `limit`,
        with ids below `before`, a run's id. Raises InvalidArgumentError for a limit below 1, QueueNotFoundError, and
        for all queues MissingPrivilegeError without the right "look" on all.
        """
        arguments = (
            argument.integer("limit", limit).to("qty"),
            *optional(argument.bigint, "before", before),
        )
        return self._link.run(optional_queue_call(queue, "list_pipeline_runs", pipeline_runs, *arguments))


class Notifications:
    """Notifications of new messages, which end a `wait` early; at most one every `throttle` seconds."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._bell: Bell | None = None

    def hear(self, channel: str, on_ring: Callable[[int | None], None]) -> None:
        """Listen to the `channel` of a listener (`functions.await_messages`), on a connection of its own.

        `on_ring` is called with None as soon as it listens, then with the id of each queue that has got a message, or
        with 0 where the notification names none. It never returns: cancel it. Raises ConnectionFailedError,
        ConnectionLostError, and NotPossibleError for a client over one connection.
        """
        from spanmq.client._sync.connection import PoolLink
        from spanmq.client._sync.listener import hear

        if not isinstance(self._link, PoolLink):
            raise NotPossibleError("a client over one connection can't listen beside its calls")
        hear(self._link.dedicated, channel, on_ring)

    def wait(self, queues: Iterable[str], seconds: float) -> bool:
        """Wait until a message of one of these `queues` is announced, or `seconds` are over, on the client's own
        connection.

        Returns False at once where a message may have come before senders knew of the wait: look for one first.
        Senders believe that it waits until `wait_no_more`. Raises NotPossibleError for a client over a pool.
        """
        return self._own_bell().wait([*queues], seconds)

    def wait_no_more(self) -> None:
        """Announce that the caller of `wait` is busy: what has woken it, and is left, wakes others.

        Raises NotPossibleError for a client over a pool, and ConnectionLostError.
        """
        self._own_bell().attend([])

    def _own_bell(self) -> Bell:
        if self._bell is None:
            from spanmq.client._sync.connection import ConnectionLink
            from spanmq.client._sync.listener import Bell

            if not isinstance(self._link, ConnectionLink):
                raise NotPossibleError("only a client over one connection of psycopg can wait on it")
            self._bell = Bell(self._link.connection)
        return self._bell

    def enable(self, queue: str, *, throttle: Seconds = 0.25) -> None:
        """Notify listeners of the new messages of a `queue`, so that waiting receivers wake at once.

        They are notified at most once every `throttle` seconds. Raises QueueNotFoundError.
        """
        self._throttle("enable_notify_insert", queue, throttle)

    def update(self, queue: str, *, throttle: Seconds) -> None:
        """Change how often listeners of a `queue` are notified: at most once every `throttle` seconds.

        Raises InvalidArgumentError if they are not, and QueueNotFoundError.
        """
        self._throttle("update_notify_insert", queue, throttle)

    def disable(self, queue: str) -> None:
        """Stop notifying listeners of the new messages of a `queue`. Raises QueueNotFoundError."""
        self._link.run(queue_call(queue, "disable_notify_insert", nothing, native=False))

    def _throttle(self, function: str, queue: str, throttle: Seconds) -> None:
        arguments = (argument.milliseconds("throttle", throttle).to("throttle_interval_ms"),)
        self._link.run(queue_call(queue, function, nothing, *arguments, native=False))

    def list(self) -> list[NotifyThrottle]:
        """List the queues that notify listeners, and how often at most.

        Raises SchemaMissingError without a schema.
        """
        read = listed(NotifyThrottle, queue="queue_name", throttle_ms="throttle_interval_ms")
        return self._link.run(optional_queue_call(None, "list_notify_insert_throttles", read, native=False))


class Admin:
    """Maintenance, grants, tokens, keys, receivers of streams, runs of jobs, and calls that have no method."""

    # A namespace for each noun.
    tokens = Namespace(Tokens)
    grants = Namespace(Grants)
    keys = Namespace(Keys)
    receivers = Namespace(Receivers)
    pipeline_runs = Namespace(PipelineRuns)
    notifications = Namespace(Notifications)

    def __init__(self, link: Link, listener: Listener | None) -> None:
        self._link = link
        self._listener = listener
        self.tokens = Tokens(self._link)
        self.grants = Grants(self._link)
        self.keys = Keys(self._link)
        self.receivers = Receivers(self._link)
        self.pipeline_runs = PipelineRuns(self._link)
        self.notifications = Notifications(self._link)

    def run(self, call: SqlCall[Result]) -> Result:
        """Run a `call` that has no method (`spanmq.client.call.Call`); return its result.

        Raises what its function raises.
        """
        return self._link.run(call)

    def flavour(self) -> Flavour:
        """Return what the database holds: "spanmq", "upstream" (PGMQ) or "none".

        Raises ConnectionFailedError or ConnectionLostError if the server does not answer, and
        InvalidTransactionError in a transaction that has failed.
        """
        return self._link.flavour()

    def version(self) -> str:
        """Return the version of the schema. Raises SchemaMissingError without one."""
        return self._link.run(optional_queue_call(None, "version", string))

    def check_writable(self) -> None:
        """Check that the server takes writes: that it is not a standby, and transactions are not read-only.

        Raises ServerReadOnlyError, ConnectionFailedError or ConnectionLostError.
        """
        self._link.check_writable()

    def maintain(self, budget: int = 10) -> list[MaintenanceStep]:
        """Run one bounded step of maintenance, of up to `budget` pieces of work each.

        Raises MissingPrivilegeError without the right "maintain". Call it until it returns [].
        """
        steps = self._link.run(functions.maintain(budget))
        if not steps:
            plan_schedules(self._link)
        return steps

    def stop_worker(self, worker: str) -> int:
        """Ask a worker to stop as SIGTERM does: it finishes what it handles, releases the rest, and ends.

        It learns so at once where notifications reach it, otherwise within 20 seconds. Its supervisor may start it
        again. Return for how many queues a worker of the name `worker` is listed. Raises NotFoundError if none is, and
        MissingPrivilegeError without the right "manage" on all queues.
        """
        call = optional_queue_call(None, "stop_worker", number, argument.text("worker", worker))
        if not (queues := self._link.run(call)):
            raise NotFoundError(f"no worker {worker!r} is running", code="worker_not_found")
        return queues

    def ask_stacks(self, queue: str, worker: str) -> None:
        """Ask the `worker` of this name for the stacks of the handlers that run for a `queue`; `get_stacks` has them.

        It reports them at once where notifications reach it, otherwise within 20 seconds; ask again after some seconds,
        because one that reports just now is not asked. Raises NotFoundError if no
        such worker is listed for the queue, MissingPrivilegeError without the right "manage", and QueueNotFoundError.
        """
        call = queue_call(queue, "ask_stacks", flag, argument.text("worker", worker))
        if not self._link.run(call):
            raise NotFoundError(f"no worker {worker!r} is running for {queue}", code="worker_not_found")

    def get_stacks(self, queue: str, worker: str) -> list[RunningHandler] | None:
        """Return the running handlers of a `worker` for a `queue`, those first that run longest, with their stacks.

        None as long as it has not reported since `ask_stacks`. Raises MissingPrivilegeError without the right "manage",
        and QueueNotFoundError.
        """
        call = queue_call(
            queue, "get_stacks", running_handlers, argument.text("worker", worker), shape=Shape.JSON
        )
        return self._link.run(call)

    def begin_notices(self, target: str, seconds: Seconds = 60.0) -> HeldNotices | None:
        """Take the notices of a `target` for `seconds`: what was announced to it; None if another process has them.

        For programs such as `spanmq notify`, which announce what `health.attention` returns. Call `end_notices` then.
        Raises InvalidArgumentError for a target of over 200 bytes, for seconds out of range and for too many targets,
        and MissingPrivilegeError without the right "maintain".
        """
        arguments = (argument.text("target", target), argument.seconds("seconds", seconds))
        return self._link.run(optional_queue_call(None, "begin_notices", held_notices, *arguments))

    def end_notices(self, target: str, held: HeldNotices, announced: Any) -> bool:
        """Record what was `announced` to a `target`, any JSON, and return its notices.

        `held` is what `begin_notices` returned. False, and nothing is recorded, if its time is over and another process
        has taken them. Raises InvalidArgumentError for more than a megabyte, and MissingPrivilegeError without the
        right "maintain".
        """
        arguments = (
            argument.text("target", target),
            argument.instant("held_until", held.held_until),
            argument.json("announced", to_json(announced)),
        )
        return self._link.run(optional_queue_call(None, "end_notices", flag, *arguments))

    def announcements(self, queue: str) -> AbstractContextManager[Announcement]:
        """Return, for a block, an event that is set when a message of a `queue` is announced.

        For a caller that waits by itself. The event of a client that doesn't listen is never set.
        """
        from spanmq.client._sync.listener import announcements_of

        return announcements_of(self._listener, queue)
