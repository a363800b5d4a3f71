"""The doors, each in the words of `door.py`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
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


def delivery(told: Record, receipt: Any) -> Delivery:
    """Return a message as it was received; of a record a member that is None may be missing."""
    names = ("message_id", "body", "headers", "group", "attempt", "last_error")
    members: dict[str, Any] = {name: told.get(name) for name in names}
    return Delivery(**members, receipt=receipt)


def by_lease(deliveries: Iterable[Delivery]) -> dict[tuple[str, int], list[int]]:
    """Return the ids of each lease of a queue."""
    leases: dict[tuple[str, int], list[int]] = {}
    for message in deliveries:
        leases.setdefault(message.receipt, []).append(message.message_id)
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
    }
    ARGUMENTS: ClassVar = {
        "message_ids": "msg_ids",
        "message_id": "msg_id",
        "quantity": "qty",
        "limit": "qty",
        "where": "match",
        "dedup_id": "dedup_ids",
    }

    # The functions whose arguments, by place, and values or rows are those of a door.
    VALUES: ClassVar = {
        "create": ("pgmq.create", "queue_name"),
        "drop": ("pgmq.drop_queue", "queue_name"),
        "purge": ("pgmq.purge_queue", "queue_name"),
        "pause": ("pause", "queue"),
        "resume": ("resume", "queue"),
        "policy": ("get_policy", "queue"),
        "state": ("state", "queue", "message_id"),
        "discard": ("purge_dead_letters", "queue"),
        "classify": ("classify", "queue", "error"),
        "set_rule": ("set_category_rule", "queue", "name", "category", "error"),
        "drop_rule": ("drop_category_rule", "queue", "name"),
        "pause_schedule": ("pause_schedule", "name"),
        "resume_schedule": ("resume_schedule", "name"),
        "delete_schedule": ("unschedule", "name"),
        "bind": ("pgmq.bind_topic", "pattern", "queue_name"),
        "unbind": ("pgmq.unbind_topic", "pattern", "queue_name"),
        "subscribe": ("create_subscription", "name", "queue"),
    }
    ROWS: ClassVar = {
        "peek": ("peek", "queue", "quantity"),
        "failures": ("failures", "queue", "message_id"),
        "archived": ("peek_archive", "queue"),
        "dead_letters": ("dead_letters", "queue"),
        "rules": ("list_category_rules", "queue"),
    }

    def __init__(self, session: psycopg.Connection[Any]) -> None:
        self.session = session

    def __getattr__(self, name: str) -> Any:
        call = self.value if name in self.VALUES else self.call
        function, *places = {**self.VALUES, **self.ROWS}[name]
        return lambda *arguments, **options: call(
            function, **dict(zip(places, arguments, strict=False)), **options
        )

    def call(self, function: str, **options: Any) -> list[Record]:
        asked = {
            self.ARGUMENTS.get(name, name): value for name, value in options.items() if value is not None
        }
        placed = ", ".join(f"{name} => %({name})s" for name in asked)
        path = function if "." in function else f"spanmq.{function}"
        with self.session.cursor(row_factory=dict_row) as cursor:
            rows = cursor.execute(f"select * from {path}({placed})".encode(), asked).fetchall()
        return [{self.NAMES.get(name, name): value for name, value in row.items()} for row in rows]

    def value(self, function: str, **options: Any) -> Any:
        [row] = self.call(function, **options)
        [value] = row.values()
        return value

    def outcomes(self, function: str, **options: Any) -> dict[int, str]:
        return {row["message_id"]: row["outcome"] for row in self.call(function, **options)}

    def metrics(self, queue: str) -> Record:
        [row] = self.call("pgmq.metrics", queue_name=queue)
        return {"length": row["queue_length"], "visible_length": row["queue_visible_length"], **row}

    def set_policy(self, queue: str, **settings: Any) -> Record:
        return cast(Record, self.value("set_policy", queue=queue, settings=Jsonb(settings)))

    def send(self, queue: str, body: Any, **options: Any) -> int:
        headers, group, dedup_id = (options.pop(name, None) for name in ("headers", "group", "dedup_id"))
        more = (
            None
            if headers is group is None
            else {**(headers or {}), **({GROUP_HEADER: group} if group else {})}
        )
        return int(
            self.value(
                "send_messages",
                queue=queue,
                messages=[Jsonb(body)],
                headers=None if more is None else [Jsonb(more)],
                dedup_ids=None if dedup_id is None else [dedup_id],
                **options,
            )
        )

    def send_batch(self, queue: str, bodies: Sequence[Any]) -> list[int]:
        rows = self.call("send_messages", queue=queue, messages=[Jsonb(body) for body in bodies])
        return [value for row in rows for value in row.values()]

    def receive(self, queue: str, quantity: int = 1, lease: float | None = None) -> list[Delivery]:
        rows = self.call("receive", queue=queue, quantity=quantity, lease=lease)
        return [
            delivery({**row, "group": (row["headers"] or {}).get(GROUP_HEADER)}, (queue, row["lease_id"]))
            for row in rows
        ]

    def settle(self, how: str, deliveries: Sequence[Delivery], **options: Any) -> list[str]:
        done = {
            (lease, message_id): outcome
            for lease, ids in by_lease(deliveries).items()
            for message_id, outcome in self.outcomes(
                how, queue=lease[0], lease_id=lease[1], message_ids=ids, **options
            ).items()
        }
        return [done[message.receipt, message.message_id] for message in deliveries]

    def extend(self, delivery: Delivery, seconds: float) -> bool:
        queue, lease_id = delivery.receipt
        return bool(self.value("extend", queue=queue, lease_id=lease_id, seconds=seconds))

    def cancel(self, queue: str, message_ids: Sequence[int]) -> dict[int, str]:
        return self.outcomes("cancel", queue=queue, message_ids=list(message_ids))

    def delete(self, queue: str, message_ids: Sequence[int]) -> list[int]:
        rows = self.call("pgmq.delete", queue_name=queue, message_ids=list(message_ids))
        return [value for row in rows for value in row.values()]

    def archive(self, queue: str, message_ids: Sequence[int]) -> list[int]:
        rows = self.call("pgmq.archive", queue_name=queue, message_ids=list(message_ids))
        return [value for row in rows for value in row.values()]

    def count_dead_letters(self, queue: str) -> dict[str, int]:
        return {row["category"]: row["n"] for row in self.call("count_dead_letters", queue=queue)}

    def redrive(self, queue: str, patch: Any = None, **options: Any) -> list[Record]:
        return self.call("redrive", queue=queue, patch=None if patch is None else Jsonb(patch), **options)

    def edit(self, queue: str, message_id: int, body: Any = None, delay: float | None = None) -> int:
        message = None if body is None else Jsonb(body)
        return int(
            self.value("redrive_message", queue=queue, message_id=message_id, message=message, delay=delay)
        )

    def schedule(self, name: str, queue: str, cron: str, body: Any, **options: Any) -> None:
        headers = options.pop("headers", None)
        more = None if headers is None else Jsonb(headers)
        self.value("schedule", name=name, queue=queue, cron=cron, body=Jsonb(body), headers=more, **options)

    def schedules(self, queue: str) -> list[Record]:
        return self.call("list_schedules", queues=[queue])

    def send_topic(self, topic: str, body: Any) -> int:
        return int(self.value("pgmq.send_topic", routing_key=topic, msg=Jsonb(body)))


class Waited:
    """An asynchronous object whose methods are waited for in the thread of a portal."""

    def __init__(self, portal: BlockingPortal, of: Any) -> None:
        self._portal, self._of = portal, of

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._of, name)
        if inspect.iscoroutinefunction(value):
            return lambda *args, **named: self._portal.call(partial(value, *args, **named))
        return Waited(self._portal, value)


# The methods of clients whose arguments and results are those of a door.
SAME = {
    "create": "queues.create",
    "drop": "queues.drop",
    "purge": "queues.purge",
    "pause": "queues.pause",
    "resume": "queues.resume",
    "metrics": "queues.metrics",
    "policy": "queues.policy",
    "set_policy": "queues.set_policy",
    "send": "send",
    "send_batch": "send_batch",
    "peek": "peek",
    "state": "inspect.state",
    "failures": "inspect.failures",
    "delete": "delete",
    "archive": "archive",
    "archived": "inspect.archive",
    "dead_letters": "dead_letters.list",
    "redrive": "dead_letters.redrive",
    "edit": "dead_letters.edit",
    "discard": "dead_letters.discard",
    "rules": "dead_letters.categories.list_rules",
    "schedule": "schedules.create",
    "pause_schedule": "schedules.pause",
    "resume_schedule": "schedules.resume",
    "delete_schedule": "schedules.delete",
    "bind": "topics.bind",
    "unbind": "topics.unbind",
    "send_topic": "topics.send",
    "subscribe": "subscriptions.create",
}


def plain(value: Any) -> Any:
    """Return what a client returns, with dictionaries in place of dataclasses."""
    if isinstance(value, list):
        return [plain(member) for member in value]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


class ClientDoor:
    """A client of either kind."""

    def __init__(self, client: Client) -> None:
        self.client = client

    @classmethod
    def over(cls, portal: BlockingPortal, client: AsyncClient) -> ClientDoor:
        return cls(cast(Client, Waited(portal, client)))

    def __getattr__(self, name: str) -> Any:
        method = attrgetter(SAME[name])(self.client)
        return lambda *arguments, **options: plain(method(*arguments, **options))

    def receive(self, queue: str, quantity: int = 1, lease: float | None = None) -> list[Delivery]:
        messages = self.client.receive(queue, quantity, lease=lease)
        return [delivery(asdict(message), message) for message in messages]

    def settle(self, how: str, deliveries: Sequence[Delivery], **options: Any) -> list[str]:
        act = self.client.admin.hold if how == "hold" else getattr(self.client, how)
        return [settled.outcome for settled in act([message.receipt for message in deliveries], **options)]

    def extend(self, delivery: Delivery, seconds: float) -> bool:
        return bool(self.client.extend(delivery.receipt.queue, delivery.receipt.lease_id, seconds))

    def cancel(self, queue: str, message_ids: Sequence[int]) -> dict[int, str]:
        return {done.message_id: done.outcome for done in self.client.cancel(queue, message_ids)}

    def count_dead_letters(self, queue: str) -> dict[str, int]:
        return {count.category: count.count for count in self.client.dead_letters.count(queue)}

    def classify(self, queue: str, error: str) -> str:
        return self.client.dead_letters.categories.classify(error, queue=queue)

    def set_rule(self, queue: str, name: str, category: str, error: str) -> None:
        self.client.dead_letters.categories.set_rule(name, category, error=error, queue=queue)

    def drop_rule(self, queue: str, name: str) -> bool:
        return self.client.dead_letters.categories.drop_rule(name, queue=queue)

    def schedules(self, queue: str) -> list[Record]:
        return [asdict(schedule) for schedule in self.client.schedules.list(queues=[queue])]


class HttpDoor:
    """The routes of the service; the client compares each answer with the service's description."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    def ask(self, method: str, path: str, body: Any = None, **params: Any) -> Any:
        text = None if body is None else json.dumps(body, default=datetime.isoformat)
        answer = self.http.request(
            method, f"/v1/{path}", content=text, params=params, headers={"Content-Type": "application/json"}
        )
        told = answer.json()
        if not answer.is_success:
            raise RefusedError(told["error"]["code"])
        return told

    def post(self, path: str, **body: Any) -> Any:
        return self.ask("POST", path, body)

    def create(self, queue: str) -> None:
        self.ask("PUT", f"queues/{queue}")

    def drop(self, queue: str) -> None:
        self.ask("DELETE", f"queues/{queue}")

    def purge(self, queue: str) -> int:
        return int(self.ask("POST", f"queues/{queue}/purge")["removed"])

    def pause(self, queue: str) -> None:
        assert self.ask("POST", f"queues/{queue}/pause") == {"queue": queue, "is_paused": True}

    def resume(self, queue: str) -> None:
        assert self.ask("POST", f"queues/{queue}/resume") == {"queue": queue, "is_paused": False}

    def metrics(self, queue: str) -> Record:
        return cast(Record, self.ask("GET", f"queues/{queue}/metrics")["metrics"])

    def policy(self, queue: str) -> Record:
        return cast(Record, self.ask("GET", f"queues/{queue}/policy")["policy"])

    def set_policy(self, queue: str, **settings: Any) -> Record:
        return cast(Record, self.ask("PATCH", f"queues/{queue}/policy", settings)["policy"])

    def send(self, queue: str, body: Any, **options: Any) -> int:
        return int(self.post(f"queues/{queue}/messages", body=body, **options)["message_id"])

    def send_batch(self, queue: str, bodies: Sequence[Any]) -> list[int]:
        done = self.post(f"queues/{queue}/messages/batch", messages=[{"body": body} for body in bodies])
        return [result["message_id"] for result in done["results"]]

    def receive(self, queue: str, quantity: int = 1, lease: float | None = None) -> list[Delivery]:
        told = self.post(f"queues/{queue}/receive", quantity=quantity, lease=lease)["messages"]
        return [delivery(record, record["receipt"]) for record in told]

    def settle(self, how: str, deliveries: Sequence[Delivery], **options: Any) -> list[str]:
        receipts = [message.receipt for message in deliveries]
        results = self.post(how.replace("_", "-"), receipts=receipts, **options)["results"]
        assert [result["receipt"] for result in results] == receipts
        return [result["outcome"] for result in results]

    def extend(self, delivery: Delivery, seconds: float) -> bool:
        [outcome] = self.settle("extend", [delivery], seconds=seconds)
        return outcome == "extended"

    def peek(self, queue: str, quantity: int = 10, **options: Any) -> list[Record]:
        return list(self.ask("GET", f"queues/{queue}/messages", quantity=quantity, **options)["messages"])

    def state(self, queue: str, message_id: int) -> str:
        return str(self.ask("GET", f"queues/{queue}/messages/{message_id}/state")["state"])

    def failures(self, queue: str, message_id: int) -> list[Record]:
        return list(self.ask("GET", f"queues/{queue}/messages/{message_id}/failures")["failures"])

    def cancel(self, queue: str, message_ids: Sequence[int]) -> dict[int, str]:
        results = self.post(f"queues/{queue}/cancel", message_ids=message_ids)["results"]
        return {result["message_id"]: result["outcome"] for result in results}

    def delete(self, queue: str, message_ids: Sequence[int]) -> list[int]:
        return self.gone("delete", queue, message_ids)

    def archive(self, queue: str, message_ids: Sequence[int]) -> list[int]:
        return self.gone("archive", queue, message_ids)

    def gone(self, how: str, queue: str, message_ids: Sequence[int]) -> list[int]:
        results = self.post(f"queues/{queue}/{how}", message_ids=message_ids)["results"]
        return [result["message_id"] for result in results if result["outcome"] != "unknown"]

    def archived(self, queue: str) -> list[Record]:
        return list(self.ask("GET", f"queues/{queue}/archive")["messages"])

    def dead_letters(self, queue: str, **options: Any) -> list[Record]:
        return list(self.post(f"queues/{queue}/dead-letters/search", **options)["dead_letters"])

    def count_dead_letters(self, queue: str) -> dict[str, int]:
        told = self.ask("GET", f"queues/{queue}/dead-letters")["counts"]
        return {record["category"]: record["count"] for record in told}

    def redrive(self, queue: str, **options: Any) -> list[Record]:
        return list(self.post(f"queues/{queue}/dead-letters/redrive", **options)["results"])

    def edit(self, queue: str, message_id: int, **options: Any) -> int:
        done = self.post(f"queues/{queue}/dead-letters/{message_id}/redrive", **options)
        return int(done["message_id"])

    def discard(self, queue: str, **options: Any) -> int:
        return int(self.post(f"queues/{queue}/dead-letters/purge", **options)["removed"])

    def classify(self, queue: str, error: str) -> str:
        return str(self.post(f"queues/{queue}/classify", error=error)["category"])

    def set_rule(self, queue: str, name: str, category: str, error: str) -> None:
        self.ask("PUT", f"queues/{queue}/category-rules/{name}", {"category": category, "error": error})

    def drop_rule(self, queue: str, name: str) -> bool:
        return bool(self.ask("DELETE", f"queues/{queue}/category-rules/{name}")["existed"])

    def rules(self, queue: str) -> list[Record]:
        return list(self.ask("GET", f"queues/{queue}/category-rules")["rules"])

    def schedule(self, name: str, queue: str, cron: str, body: Any, **options: Any) -> None:
        self.ask("PUT", f"schedules/{name}", {"queue": queue, "cron": cron, "body": body, **options})

    def schedules(self, queue: str) -> list[Record]:
        told = self.ask("GET", "schedules")["schedules"]
        return [record for record in told if record["queue"] == queue]

    def pause_schedule(self, name: str) -> None:
        self.ask("POST", f"schedules/{name}/pause")

    def resume_schedule(self, name: str) -> None:
        self.ask("POST", f"schedules/{name}/resume")

    def delete_schedule(self, name: str) -> bool:
        return bool(self.ask("DELETE", f"schedules/{name}")["existed"])

    def bind(self, pattern: str, queue: str) -> None:
        self.ask("PUT", f"queues/{queue}/bindings/{pattern}")

    def unbind(self, pattern: str, queue: str) -> bool:
        return bool(self.ask("DELETE", f"queues/{queue}/bindings/{pattern}")["existed"])

    def send_topic(self, topic: str, body: Any) -> int:
        return int(self.post(f"topics/{topic}/messages", body=body)["queues"])

    def subscribe(self, name: str, queue: str) -> None:
        self.ask("PUT", f"queues/{queue}/subscriptions/{name}")


class CommandDoor:
    """The commands with --json, run in this process."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    def run(self, *words: str | float, stdin: str = "", **options: Any) -> list[Record]:
        done = spanmq(*map(str, words), *flags(options), "--json", dsn=self.dsn, stdin=stdin)
        if done.code:
            raise RefusedError(json.loads(done.err.splitlines()[-1])["error"]["code"])
        assert done.err == ""
        return done.records

    def one(self, *words: str | float, **options: Any) -> Record:
        [record] = self.run(*words, **options)
        return record

    def create(self, queue: str) -> None:
        self.run("queue create", queue)

    def drop(self, queue: str) -> None:
        self.run("queue drop", queue, "--yes")

    def purge(self, queue: str) -> int:
        return int(self.one("queue purge", queue, "--yes")["purged"])

    def pause(self, queue: str) -> None:
        assert self.one("queue pause", queue) == {"queue": queue, "is_paused": True}

    def resume(self, queue: str) -> None:
        assert self.one("queue resume", queue) == {"queue": queue, "is_paused": False}

    def metrics(self, queue: str) -> Record:
        return self.one("queue metrics", queue)

    def policy(self, queue: str) -> Record:
        return self.one("policy get", queue)

    def set_policy(self, queue: str, **settings: Any) -> Record:
        return self.one(
            "policy set", queue, *(f"{name}={json.dumps(value)}" for name, value in settings.items())
        )

    def send(self, queue: str, body: Any, **options: Any) -> int:
        return int(self.one("send", queue, json.dumps(body), **options)["message_id"])

    def send_batch(self, queue: str, bodies: Sequence[Any]) -> list[int]:
        lines = "".join(f"{json.dumps(body)}\n" for body in bodies)
        return [line["message_id"] for line in self.run("send", queue, stdin=lines)]

    def receive(self, queue: str, quantity: int = 1, lease: float | None = None) -> list[Delivery]:
        told = self.run("receive", queue, limit=quantity, lease=lease)
        return [delivery(record, json.dumps(record)) for record in told]

    def settle(self, how: str, deliveries: Sequence[Delivery], **options: Any) -> list[str]:
        noun = "" if how in ("ack", "nack") else "message "
        if how == "hold":
            return self.hold(deliveries, **options)
        lines = "\n".join(message.receipt for message in deliveries)
        return [line["outcome"] for line in self.run(f"{noun}{how}", stdin=lines, **options)]

    def hold(self, deliveries: Sequence[Delivery], seconds: float) -> list[str]:
        told = [json.loads(message.receipt) for message in deliveries]
        [(queue, lease_id)] = {(record["queue"], record["lease_id"]) for record in told}
        ids = [message.message_id for message in deliveries]
        return [
            record["outcome"] for record in self.run("message hold", queue, lease_id, *ids, seconds=seconds)
        ]

    def extend(self, delivery: Delivery, seconds: float) -> bool:
        told = json.loads(delivery.receipt)
        return bool(self.one("message extend", told["queue"], told["lease_id"], seconds)["held"])

    def peek(self, queue: str, quantity: int = 10, **options: Any) -> list[Record]:
        return self.run("message peek", queue, limit=quantity, **options)

    def state(self, queue: str, message_id: int) -> str:
        return str(self.one("message state", queue, message_id)["state"])

    def failures(self, queue: str, message_id: int) -> list[Record]:
        return self.run("message failures", queue, message_id)

    def cancel(self, queue: str, message_ids: Sequence[int]) -> dict[int, str]:
        return {
            record["message_id"]: record["outcome"]
            for record in self.run("message cancel", queue, *message_ids)
        }

    def delete(self, queue: str, message_ids: Sequence[int]) -> list[int]:
        return [record["message_id"] for record in self.run("message delete", queue, *message_ids)]

    def archive(self, queue: str, message_ids: Sequence[int]) -> list[int]:
        return [record["message_id"] for record in self.run("message archive", queue, *message_ids)]

    def archived(self, queue: str) -> list[Record]:
        return self.run("message peek-archive", queue)

    def dead_letters(self, queue: str, **options: Any) -> list[Record]:
        return self.run("dead-letter list", queue, **options)

    def count_dead_letters(self, queue: str) -> dict[str, int]:
        told = self.run("dead-letter count")
        return {record["category"]: record["count"] for record in told if record["queue"] == queue}

    def redrive(self, queue: str, **options: Any) -> list[Record]:
        return self.run("dead-letter redrive", queue, **options)

    def edit(self, queue: str, message_id: int, **options: Any) -> int:
        return int(self.one("dead-letter edit", queue, message_id, **options)["message_id"])

    def discard(self, queue: str, **options: Any) -> int:
        return int(self.one("dead-letter discard", queue, yes=True, **options)["purged"])

    def classify(self, queue: str, error: str) -> str:
        return str(self.one("category classify", error, queue=queue)["category"])

    def set_rule(self, queue: str, name: str, category: str, error: str) -> None:
        self.run("category set-rule", name, category, error=error, queue=queue)

    def drop_rule(self, queue: str, name: str) -> bool:
        return bool(self.one("category drop-rule", name, queue=queue)["dropped"])

    def rules(self, queue: str) -> list[Record]:
        return self.run("category list-rules", queue)

    def schedule(self, name: str, queue: str, cron: str, body: Any, **options: Any) -> None:
        self.run("schedule create", name, queue, cron, json.dumps(body), **options)

    def schedules(self, queue: str) -> list[Record]:
        return self.run("schedule list", queue)

    def pause_schedule(self, name: str) -> None:
        self.run("schedule pause", name)

    def resume_schedule(self, name: str) -> None:
        self.run("schedule resume", name)

    def delete_schedule(self, name: str) -> bool:
        return bool(self.one("schedule delete", name)["existed"])

    def bind(self, pattern: str, queue: str) -> None:
        self.run("topic bind", pattern, queue)

    def unbind(self, pattern: str, queue: str) -> bool:
        return bool(self.one("topic unbind", pattern, queue)["unbound"])

    def send_topic(self, topic: str, body: Any) -> int:
        return int(self.one("topic send", topic, json.dumps(body))["queues"])

    def subscribe(self, name: str, queue: str) -> None:
        self.run("subscription create", name, queue)


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
                word for item in values for word in (flag, json.dumps(item) if is_json else written(item))
            ]
    return words


def written(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
