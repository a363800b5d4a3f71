"""The doors, each in the words of `door.py`."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, cast

import httpx
import psycopg
from anyio.from_thread import BlockingPortal
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb
from tests.cli.program import spanmq
from tests.contract.door import Delivery, Record, RefusedError

from spanmq.client import AsyncClient, Client
from spanmq.model import GROUP_HEADER


def verb(
    how: str, names: str = "queue", read: Callable[[Any], Any] = lambda told: told, **defaults: Any
) -> Any:
    """Return a method that asks its door for `how`, with its arguments under these names, and reads the answer."""

    def method(self: Any, *arguments: Any, **options: Any) -> Any:
        placed = dict(zip(names.split(), arguments, strict=False))
        return read(self.ask(how, **(defaults | placed | options)))

    return method


def only(rows: Sequence[Record]) -> Record:
    [row] = rows
    return row


def only_value(rows: Sequence[Record]) -> Any:
    [value] = only(rows).values()
    return value


def values(rows: Sequence[Record]) -> list[Any]:
    return [value for row in rows for value in row.values()]


def ids(rows: Sequence[Record]) -> list[int]:
    return [row["message_id"] for row in rows]


def member(name: str) -> Callable[[Any], Any]:
    return lambda told: (told if isinstance(told, dict) else only(told))[name]


def pairs(key: str, value: str, of: str = "") -> Callable[[Any], dict[Any, Any]]:
    """Read a member of each row by another; the rows are the member `of` of an answer."""
    return lambda told: {row[key]: row[value] for row in (told[of] if of else told)}


OUTCOMES = pairs("message_id", "outcome")


def delivery(told: Record, receipt: Any) -> Delivery:
    """Return a message as it was received; of a record a member that is None may be missing."""
    names = ("message_id", "body", "headers", "group", "attempt", "last_error")
    members: dict[str, Any] = {name: told.get(name) for name in names}
    return Delivery(**members, receipt=receipt)


def by_lease(deliveries: Iterable[Delivery]) -> dict[tuple[str, int], list[int]]:
    """Return the ids of each lease of a queue."""
    leases: dict[tuple[str, int], list[int]] = {}
    for each in deliveries:
        leases.setdefault(each.receipt, []).append(each.message_id)
    return leases


class SqlDoor:
    """The functions of the schema `spanmq`, called by name over a session in autocommit."""

    NAMES: ClassVar = {
        "msg_id": "message_id",
        "message": "body",
        "read_ct": "attempt",
        "queue_name": "queue",
        "vt": "leased_until",
        "id": "dead_letter_id",
        "queue_length": "length",
        "queue_visible_length": "visible_length",
    }
    ARGUMENTS: ClassVar = {
        "message_ids": "msg_ids",
        "message_id": "msg_id",
        "quantity": "qty",
        "limit": "qty",
        "where": "match",
        "dedup_id": "dedup_ids",
    }
    JSON: ClassVar = {"settings", "patch", "body", "msg", "message"}

    def __init__(self, session: psycopg.Connection[Any]) -> None:
        self.session = session

    def ask(self, function: str, **options: Any) -> list[Record]:
        asked = {
            self.ARGUMENTS.get(name, name): Jsonb(value) if name in self.JSON else value
            for name, value in options.items()
            if value is not None
        }
        placed = ", ".join(f"{name} => %({name})s" for name in asked)
        path = function if "." in function else f"spanmq.{function}"
        with self.session.cursor(row_factory=dict_row) as cursor:
            rows = cursor.execute(f"select * from {path}({placed})".encode(), asked).fetchall()
        return [{self.NAMES.get(name, name): value for name, value in row.items()} for row in rows]

    create = verb("pgmq.create", "queue_name")
    drop = verb("pgmq.drop_queue", "queue_name")
    purge = verb("pgmq.purge_queue", "queue_name", only_value)
    pause = verb("pause")
    resume = verb("resume")
    metrics = verb("pgmq.metrics", "queue_name", only)
    policy = verb("get_policy", read=only_value)
    peek = verb("peek", "queue quantity", quantity=10)
    state = verb("state", "queue message_id", only_value)
    failures = verb("failures", "queue message_id")
    cancel = verb("cancel", "queue message_ids", OUTCOMES)
    delete = verb("pgmq.delete", "queue_name message_ids", values)
    archive = verb("pgmq.archive", "queue_name message_ids", values)
    archived = verb("peek_archive")
    dead_letters = verb("dead_letters")
    count_dead_letters = verb("count_dead_letters", read=pairs("category", "n"))
    redrive = verb("redrive")
    discard = verb("purge_dead_letters", read=only_value)
    classify = verb("classify", "queue error", only_value)
    set_rule = verb("set_category_rule", "queue name category error")
    drop_rule = verb("drop_category_rule", "queue name", only_value)
    rules = verb("list_category_rules")
    pause_schedule = verb("pause_schedule", "name")
    resume_schedule = verb("resume_schedule", "name")
    delete_schedule = verb("unschedule", "name", only_value)
    bind = verb("pgmq.bind_topic", "pattern queue_name")
    unbind = verb("pgmq.unbind_topic", "pattern queue_name", only_value)
    send_topic = verb("pgmq.send_topic", "routing_key msg", only_value)
    subscribe = verb("create_subscription", "name queue")

    def set_policy(self, queue: str, **settings: Any) -> Record:
        return cast(Record, only_value(self.ask("set_policy", queue=queue, settings=settings)))

    def send(self, queue: str, body: Any, **options: Any) -> int:
        headers, group, dedup_id = (options.pop(name, None) for name in ("headers", "group", "dedup_id"))
        more = (
            None
            if headers is group is None
            else {**(headers or {}), **({GROUP_HEADER: group} if group else {})}
        )
        rows = self.ask(
            "send_messages",
            queue=queue,
            messages=[Jsonb(body)],
            headers=None if more is None else [Jsonb(more)],
            dedup_ids=None if dedup_id is None else [dedup_id],
            **options,
        )
        return int(only_value(rows))

    def send_batch(self, queue: str, bodies: Sequence[Any]) -> list[int]:
        return values(self.ask("send_messages", queue=queue, messages=[Jsonb(body) for body in bodies]))

    def receive(self, queue: str, quantity: int = 1, lease: float | None = None) -> list[Delivery]:
        rows = self.ask("receive", queue=queue, quantity=quantity, lease=lease)
        return [
            delivery({**row, "group": (row["headers"] or {}).get(GROUP_HEADER)}, (queue, row["lease_id"]))
            for row in rows
        ]

    def settle(self, how: str, deliveries: Sequence[Delivery], **options: Any) -> list[str]:
        done = {
            (lease, message_id): outcome
            for lease, ids in by_lease(deliveries).items()
            for message_id, outcome in OUTCOMES(
                self.ask(how, queue=lease[0], lease_id=lease[1], message_ids=ids, **options)
            ).items()
        }
        return [done[each.receipt, each.message_id] for each in deliveries]

    def edit(self, queue: str, message_id: int, body: Any = None, delay: float | None = None) -> int:
        rows = self.ask("redrive_message", queue=queue, message_id=message_id, message=body, delay=delay)
        return int(only_value(rows))

    def schedule(self, name: str, queue: str, cron: str, body: Any, **options: Any) -> None:
        headers = options.pop("headers", None)
        more = None if headers is None else Jsonb(headers)
        self.ask("schedule", name=name, queue=queue, cron=cron, body=body, headers=more, **options)

    def schedules(self, queue: str) -> list[Record]:
        return self.ask("list_schedules", queues=[queue])


class Waited:
    """An asynchronous object whose methods are waited for in the thread of a portal."""

    def __init__(self, portal: BlockingPortal, of: Any) -> None:
        self._portal, self._of = portal, of

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._of, name)
        if inspect.iscoroutinefunction(value):
            return lambda *args, **named: self._portal.call(partial(value, *args, **named))
        return Waited(self._portal, value)


def as_record(value: Any) -> Any:
    if isinstance(value, list):
        return [as_record(each) for each in value]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


class ClientDoor:
    """A client of either kind."""

    def __init__(self, client: Client) -> None:
        self.client = client

    @classmethod
    def over(cls, portal: BlockingPortal, client: AsyncClient) -> ClientDoor:
        return cls(cast(Client, Waited(portal, client)))

    def ask(self, method: str, **options: Any) -> Any:
        return as_record(attrgetter(method)(self.client)(**options))

    create = verb("queues.create", "name")
    drop = verb("queues.drop")
    purge = verb("queues.purge")
    pause = verb("queues.pause")
    resume = verb("queues.resume")
    metrics = verb("queues.metrics")
    policy = verb("queues.policy")
    send = verb("send", "queue body")
    send_batch = verb("send_batch", "queue bodies")
    peek = verb("peek", "queue quantity")
    state = verb("inspect.state", "queue message_id")
    failures = verb("inspect.failures", "queue message_id")
    cancel = verb("cancel", "queue message_ids", OUTCOMES)
    delete = verb("delete", "queue message_ids")
    archive = verb("archive", "queue message_ids")
    archived = verb("inspect.archive")
    dead_letters = verb("dead_letters.list")
    count_dead_letters = verb("dead_letters.count", read=pairs("category", "count"))
    redrive = verb("dead_letters.redrive")
    edit = verb("dead_letters.edit", "queue message_id")
    discard = verb("dead_letters.discard")
    classify = verb("dead_letters.categories.classify", "queue error")
    set_rule = verb("dead_letters.categories.set_rule", "queue name category error")
    drop_rule = verb("dead_letters.categories.drop_rule", "queue name")
    rules = verb("dead_letters.categories.list_rules")
    schedule = verb("schedules.create", "name queue cron body")
    pause_schedule = verb("schedules.pause", "name")
    resume_schedule = verb("schedules.resume", "name")
    delete_schedule = verb("schedules.delete", "name")
    bind = verb("topics.bind", "pattern queue")
    unbind = verb("topics.unbind", "pattern queue")
    send_topic = verb("topics.send", "routing_key body")
    subscribe = verb("subscriptions.create", "name queue")

    def set_policy(self, queue: str, **settings: Any) -> Record:
        return asdict(self.client.queues.set_policy(queue, **settings))

    def receive(self, queue: str, quantity: int = 1, lease: float | None = None) -> list[Delivery]:
        return [delivery(asdict(each), each) for each in self.client.receive(queue, quantity, lease=lease)]

    def settle(self, how: str, deliveries: Sequence[Delivery], **options: Any) -> list[str]:
        act = getattr(self.client, how)
        return [each.outcome for each in act([each.receipt for each in deliveries], **options)]

    def schedules(self, queue: str) -> list[Record]:
        return cast(list[Record], self.ask("schedules.list", queues=[queue]))


def known(told: Record) -> list[int]:
    """Read the ids of the messages that existed."""
    return ids([each for each in told["results"] if each["outcome"] != "unknown"])


class HttpDoor:
    """The routes of the service; the client compares each answer with the service's description."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    def ask(self, route: str, **options: Any) -> Any:
        """Ask a route: an argument that its path names stands there, the others in the query or the body."""
        method, path = route.split()
        placed = {name: options.pop(name) for name in re.findall(r"{(\w+)}", path)}
        text = json.dumps(options, default=datetime.isoformat) if options and method != "GET" else None
        answer = self.http.request(
            method,
            f"/v1/{path.format(**placed)}",
            content=text,
            params=options if method == "GET" else {},
            headers={"Content-Type": "application/json"},
        )
        told = answer.json()
        if not answer.is_success:
            raise RefusedError(told["error"]["code"])
        return told

    create = verb("PUT queues/{queue}")
    drop = verb("DELETE queues/{queue}")
    purge = verb("POST queues/{queue}/purge", read=member("removed"))
    metrics = verb("GET queues/{queue}/metrics", read=member("metrics"))
    policy = verb("GET queues/{queue}/policy", read=member("policy"))
    set_policy = verb("PATCH queues/{queue}/policy", read=member("policy"))
    send = verb("POST queues/{queue}/messages", "queue body", member("message_id"))
    peek = verb("GET queues/{queue}/messages", "queue quantity", member("messages"), quantity=10)
    state = verb("GET queues/{queue}/messages/{message_id}/state", "queue message_id", member("state"))
    failures = verb(
        "GET queues/{queue}/messages/{message_id}/failures", "queue message_id", member("failures")
    )
    cancel = verb(
        "POST queues/{queue}/cancel", "queue message_ids", pairs("message_id", "outcome", "results")
    )
    delete = verb("POST queues/{queue}/delete", "queue message_ids", known)
    archive = verb("POST queues/{queue}/archive", "queue message_ids", known)
    archived = verb("GET queues/{queue}/archive", read=member("messages"))
    dead_letters = verb("POST queues/{queue}/dead-letters/search", read=member("dead_letters"))
    count_dead_letters = verb("GET queues/{queue}/dead-letters", read=pairs("category", "count", "counts"))
    redrive = verb("POST queues/{queue}/dead-letters/redrive", read=member("results"))
    edit = verb(
        "POST queues/{queue}/dead-letters/{message_id}/redrive", "queue message_id", member("message_id")
    )
    discard = verb("POST queues/{queue}/dead-letters/purge", read=member("removed"))
    classify = verb("POST queues/{queue}/classify", "queue error", member("category"))
    set_rule = verb("PUT queues/{queue}/category-rules/{name}", "queue name category error")
    drop_rule = verb("DELETE queues/{queue}/category-rules/{name}", "queue name", member("existed"))
    rules = verb("GET queues/{queue}/category-rules", read=member("rules"))
    schedule = verb("PUT schedules/{name}", "name queue cron body")
    pause_schedule = verb("POST schedules/{name}/pause", "name")
    resume_schedule = verb("POST schedules/{name}/resume", "name")
    delete_schedule = verb("DELETE schedules/{name}", "name", member("existed"))
    bind = verb("PUT queues/{queue}/bindings/{pattern}", "pattern queue")
    unbind = verb("DELETE queues/{queue}/bindings/{pattern}", "pattern queue", member("existed"))
    send_topic = verb("POST topics/{topic}/messages", "topic body", member("queues"))
    subscribe = verb("PUT queues/{queue}/subscriptions/{name}", "name queue")

    def pause(self, queue: str) -> None:
        assert self.ask("POST queues/{queue}/pause", queue=queue) == {"queue": queue, "is_paused": True}

    def resume(self, queue: str) -> None:
        assert self.ask("POST queues/{queue}/resume", queue=queue) == {"queue": queue, "is_paused": False}

    def send_batch(self, queue: str, bodies: Sequence[Any]) -> list[int]:
        messages = [{"body": body} for body in bodies]
        done = self.ask("POST queues/{queue}/messages/batch", queue=queue, messages=messages)
        return ids(done["results"])

    def receive(self, queue: str, quantity: int = 1, lease: float | None = None) -> list[Delivery]:
        told = self.ask("POST queues/{queue}/receive", queue=queue, quantity=quantity, lease=lease)
        return [delivery(each, each["receipt"]) for each in told["messages"]]

    def settle(self, how: str, deliveries: Sequence[Delivery], **options: Any) -> list[str]:
        receipts = [each.receipt for each in deliveries]
        results = self.ask(f"POST {how.replace('_', '-')}", receipts=receipts, **options)["results"]
        assert [each["receipt"] for each in results] == receipts
        return [each["outcome"] for each in results]

    def schedules(self, queue: str) -> list[Record]:
        return [each for each in self.ask("GET schedules")["schedules"] if each["queue"] == queue]


class CommandDoor:
    """The commands with --json, run in this process."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    def ask(self, command: str, *, stdin: str = "", **options: Any) -> list[Record]:
        """Run a command: an argument that it names stands there, the others are options."""
        words: list[str] = []
        for word in command.split():
            value = options.pop(word[1:-1]) if word.startswith("{") else word
            words += map(str, value if isinstance(value, list) else [value])
        done = spanmq(*words, *flags(options), "--json", dsn=self.dsn, stdin=stdin)
        if done.code:
            raise RefusedError(json.loads(done.err.splitlines()[-1])["error"]["code"])
        assert done.err == ""
        return done.records

    create = verb("queue create {queue}")
    drop = verb("queue drop {queue} --yes")
    purge = verb("queue purge {queue} --yes", read=member("purged"))
    metrics = verb("queue metrics {queue}", read=only)
    policy = verb("policy get {queue}", read=only)
    peek = verb("message peek {queue}", "queue limit", limit=10)
    state = verb("message state {queue} {message_id}", "queue message_id", member("state"))
    failures = verb("message failures {queue} {message_id}", "queue message_id")
    cancel = verb("message cancel {queue} {message_ids}", "queue message_ids", OUTCOMES)
    delete = verb("message delete {queue} {message_ids}", "queue message_ids", ids)
    archive = verb("message archive {queue} {message_ids}", "queue message_ids", ids)
    archived = verb("message peek-archive {queue}")
    dead_letters = verb("dead-letter list {queue}")
    redrive = verb("dead-letter redrive {queue}")
    edit = verb("dead-letter edit {queue} {message_id}", "queue message_id", member("message_id"))
    discard = verb("dead-letter discard {queue}", read=member("purged"), yes=True)
    classify = verb("category classify {error}", "queue error", member("category"))
    set_rule = verb("category set-rule {name} {category}", "queue name category error")
    drop_rule = verb("category drop-rule {name}", "queue name", member("dropped"))
    rules = verb("category list-rules {queue}")
    schedules = verb("schedule list {queue}")
    pause_schedule = verb("schedule pause {name}", "name")
    resume_schedule = verb("schedule resume {name}", "name")
    delete_schedule = verb("schedule delete {name}", "name", member("existed"))
    bind = verb("topic bind {pattern} {queue}", "pattern queue")
    unbind = verb("topic unbind {pattern} {queue}", "pattern queue", member("unbound"))
    subscribe = verb("subscription create {name} {queue}", "name queue")

    def pause(self, queue: str) -> None:
        assert self.ask("queue pause {queue}", queue=queue) == [{"queue": queue, "is_paused": True}]

    def resume(self, queue: str) -> None:
        assert self.ask("queue resume {queue}", queue=queue) == [{"queue": queue, "is_paused": False}]

    def set_policy(self, queue: str, **settings: Any) -> Record:
        words = [f"{name}={json.dumps(value)}" for name, value in settings.items()]
        return only(self.ask("policy set {queue} {words}", queue=queue, words=words))

    def send(self, queue: str, body: Any, **options: Any) -> int:
        rows = self.ask("send {queue} {text}", queue=queue, text=json.dumps(body), **options)
        return int(only(rows)["message_id"])

    def send_batch(self, queue: str, bodies: Sequence[Any]) -> list[int]:
        return ids(
            self.ask("send {queue}", queue=queue, stdin="".join(f"{json.dumps(body)}\n" for body in bodies))
        )

    def receive(self, queue: str, quantity: int = 1, lease: float | None = None) -> list[Delivery]:
        told = self.ask("receive {queue}", queue=queue, limit=quantity, lease=lease)
        return [delivery(each, json.dumps(each)) for each in told]

    def settle(self, how: str, deliveries: Sequence[Delivery], **options: Any) -> list[str]:
        lines = "\n".join(each.receipt for each in deliveries)
        rows = self.ask(how if how in ("ack", "nack") else f"message {how}", stdin=lines, **options)
        return [each["outcome"] for each in rows]

    def count_dead_letters(self, queue: str) -> dict[str, int]:
        told = self.ask("dead-letter count")
        return {each["category"]: each["count"] for each in told if each["queue"] == queue}

    def schedule(self, name: str, queue: str, cron: str, body: Any, **options: Any) -> None:
        place = {"name": name, "queue": queue, "cron": cron, "text": json.dumps(body)}
        self.ask("schedule create {name} {queue} {cron} {text}", **place, **options)

    def send_topic(self, topic: str, body: Any) -> int:
        return int(only(self.ask("topic send {topic} {text}", topic=topic, text=json.dumps(body)))["queues"])


def flags(options: Mapping[str, Any]) -> list[str]:
    """Return the words of options: a list is one repeated, True a flag; JSON is written as such."""
    words = []
    for name, value in options.items():
        flag = {"dead_letter_ids": "--id"}.get(name, f"--{name.replace('_', '-')}")
        if value is True:
            words += [flag]
        elif value is not None and value is not False:
            values = value if name == "dead_letter_ids" else [value]
            is_json = name in ("headers", "patch", "payload", "body")
            words += [
                word for each in values for word in (flag, json.dumps(each) if is_json else written(each))
            ]
    return words


def written(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
