"""The doors, each in the words of `door.py`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import partial
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
    }
    ARGUMENTS: ClassVar = {
        "message_ids": "msg_ids",
        "message_id": "msg_id",
        "quantity": "qty",
        "limit": "qty",
        "where": "match",
        "dedup_id": "dedup_ids",
    }

    def __init__(self, session: psycopg.Connection[Any]) -> None:
        self.session = session

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

    def create(self, queue: str) -> None:
        self.value("pgmq.create", queue_name=queue)

    def drop(self, queue: str) -> None:
        self.value("pgmq.drop_queue", queue_name=queue)

    def purge(self, queue: str) -> int:
        return int(self.value("pgmq.purge_queue", queue_name=queue))

    def pause(self, queue: str) -> None:
        self.value("pause", queue=queue)

    def resume(self, queue: str) -> None:
        self.value("resume", queue=queue)

    def metrics(self, queue: str) -> Record:
        [row] = self.call("pgmq.metrics", queue_name=queue)
        return {"length": row["queue_length"], "visible_length": row["queue_visible_length"], **row}

    def policy(self, queue: str) -> Record:
        return cast(Record, self.value("get_policy", queue=queue))

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
        rows = self.call("send_messages", queue=queue, messages=[Jsonb(each) for each in bodies])
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
        return [done[each.receipt, each.message_id] for each in deliveries]

    def extend(self, delivery: Delivery, seconds: float) -> bool:
        queue, lease_id = delivery.receipt
        return bool(self.value("extend", queue=queue, lease_id=lease_id, seconds=seconds))

    def peek(self, queue: str, quantity: int = 10, **options: Any) -> list[Record]:
        return self.call("peek", queue=queue, quantity=quantity, **options)

    def state(self, queue: str, message_id: int) -> str:
        return str(self.value("state", queue=queue, message_id=message_id))

    def failures(self, queue: str, message_id: int) -> list[Record]:
        return self.call("failures", queue=queue, message_id=message_id)

    def cancel(self, queue: str, message_ids: Sequence[int]) -> dict[int, str]:
        return self.outcomes("cancel", queue=queue, message_ids=list(message_ids))

    def delete(self, queue: str, message_ids: Sequence[int]) -> list[int]:
        rows = self.call("pgmq.delete", queue_name=queue, message_ids=list(message_ids))
        return [value for row in rows for value in row.values()]

    def archive(self, queue: str, message_ids: Sequence[int]) -> list[int]:
        rows = self.call("pgmq.archive", queue_name=queue, message_ids=list(message_ids))
        return [value for row in rows for value in row.values()]

    def archived(self, queue: str) -> list[Record]:
        return self.call("peek_archive", queue=queue)

    def dead_letters(self, queue: str, **options: Any) -> list[Record]:
        return self.call("dead_letters", queue=queue, **options)

    def count_dead_letters(self, queue: str) -> dict[str, int]:
        return {row["category"]: row["n"] for row in self.call("count_dead_letters", queue=queue)}

    def redrive(self, queue: str, patch: Any = None, **options: Any) -> list[Record]:
        return self.call("redrive", queue=queue, patch=None if patch is None else Jsonb(patch), **options)

    def edit(self, queue: str, message_id: int, body: Any = None, delay: float | None = None) -> int:
        message = None if body is None else Jsonb(body)
        return int(
            self.value("redrive_message", queue=queue, message_id=message_id, message=message, delay=delay)
        )

    def discard(self, queue: str, **options: Any) -> int:
        return int(self.value("purge_dead_letters", queue=queue, **options))

    def classify(self, queue: str, error: str) -> str:
        return str(self.value("classify", queue=queue, error=error))

    def set_rule(self, queue: str, name: str, category: str, error: str) -> None:
        self.value("set_category_rule", queue=queue, name=name, category=category, error=error)

    def drop_rule(self, queue: str, name: str) -> bool:
        return bool(self.value("drop_category_rule", queue=queue, name=name))

    def rules(self, queue: str) -> list[Record]:
        return self.call("list_category_rules", queue=queue)

    def schedule(self, name: str, queue: str, cron: str, body: Any, **options: Any) -> None:
        headers = options.pop("headers", None)
        more = None if headers is None else Jsonb(headers)
        self.value("schedule", name=name, queue=queue, cron=cron, body=Jsonb(body), headers=more, **options)

    def schedules(self, queue: str) -> list[Record]:
        return self.call("list_schedules", queues=[queue])

    def pause_schedule(self, name: str) -> None:
        self.value("pause_schedule", name=name)

    def resume_schedule(self, name: str) -> None:
        self.value("resume_schedule", name=name)

    def delete_schedule(self, name: str) -> bool:
        return bool(self.value("unschedule", name=name))

    def bind(self, pattern: str, queue: str) -> None:
        self.value("pgmq.bind_topic", pattern=pattern, queue_name=queue)

    def unbind(self, pattern: str, queue: str) -> bool:
        return bool(self.value("pgmq.unbind_topic", pattern=pattern, queue_name=queue))

    def send_topic(self, topic: str, body: Any) -> int:
        return int(self.value("pgmq.send_topic", routing_key=topic, msg=Jsonb(body)))

    def subscribe(self, name: str, queue: str) -> None:
        self.value("create_subscription", name=name, queue=queue)


class Waited:
    """An asynchronous object whose methods are waited for in the thread of a portal."""

    def __init__(self, portal: BlockingPortal, of: Any) -> None:
        self._portal, self._of = portal, of

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._of, name)
        if inspect.iscoroutinefunction(value):
            return lambda *args, **named: self._portal.call(partial(value, *args, **named))
        return Waited(self._portal, value)


class ClientDoor:
    """A client of either kind."""

    def __init__(self, client: Client) -> None:
        self.client = client

    @classmethod
    def over(cls, portal: BlockingPortal, client: AsyncClient) -> ClientDoor:
        return cls(cast(Client, Waited(portal, client)))

    def create(self, queue: str) -> None:
        self.client.queues.create(queue)

    def drop(self, queue: str) -> None:
        self.client.queues.drop(queue)

    def purge(self, queue: str) -> int:
        return self.client.queues.purge(queue)

    def pause(self, queue: str) -> None:
        self.client.queues.pause(queue)

    def resume(self, queue: str) -> None:
        self.client.queues.resume(queue)

    def metrics(self, queue: str) -> Record:
        return asdict(self.client.queues.metrics(queue))

    def policy(self, queue: str) -> Record:
        return asdict(self.client.queues.policy(queue))

    def set_policy(self, queue: str, **settings: Any) -> Record:
        return asdict(self.client.queues.set_policy(queue, **settings))

    def send(self, queue: str, body: Any, **options: Any) -> int:
        return self.client.send(queue, body, **options)

    def send_batch(self, queue: str, bodies: Sequence[Any]) -> list[int]:
        return self.client.send_batch(queue, bodies)

    def receive(self, queue: str, quantity: int = 1, lease: float | None = None) -> list[Delivery]:
        return [delivery(asdict(each), each) for each in self.client.receive(queue, quantity, lease=lease)]

    def settle(self, how: str, deliveries: Sequence[Delivery], **options: Any) -> list[str]:
        act = self.client.admin.hold if how == "hold" else getattr(self.client, how)
        return [each.outcome for each in act([each.receipt for each in deliveries], **options)]

    def extend(self, delivery: Delivery, seconds: float) -> bool:
        return bool(self.client.extend(delivery.receipt.queue, delivery.receipt.lease_id, seconds))

    def peek(self, queue: str, quantity: int = 10, **options: Any) -> list[Record]:
        return [asdict(each) for each in self.client.peek(queue, quantity, **options)]

    def state(self, queue: str, message_id: int) -> str:
        return self.client.inspect.state(queue, message_id)

    def failures(self, queue: str, message_id: int) -> list[Record]:
        return [asdict(each) for each in self.client.inspect.failures(queue, message_id)]

    def cancel(self, queue: str, message_ids: Sequence[int]) -> dict[int, str]:
        return {each.message_id: each.outcome for each in self.client.cancel(queue, message_ids)}

    def delete(self, queue: str, message_ids: Sequence[int]) -> list[int]:
        return self.client.delete(queue, message_ids)

    def archive(self, queue: str, message_ids: Sequence[int]) -> list[int]:
        return self.client.archive(queue, message_ids)

    def archived(self, queue: str) -> list[Record]:
        return [asdict(each) for each in self.client.inspect.archive(queue)]

    def dead_letters(self, queue: str, **options: Any) -> list[Record]:
        return [asdict(each) for each in self.client.dead_letters.list(queue, **options)]

    def count_dead_letters(self, queue: str) -> dict[str, int]:
        return {each.category: each.count for each in self.client.dead_letters.count(queue)}

    def redrive(self, queue: str, **options: Any) -> list[Record]:
        return [asdict(each) for each in self.client.dead_letters.redrive(queue, **options)]

    def edit(self, queue: str, message_id: int, **options: Any) -> int:
        return self.client.dead_letters.edit(queue, message_id, **options)

    def discard(self, queue: str, **options: Any) -> int:
        return self.client.dead_letters.discard(queue, **options)

    def classify(self, queue: str, error: str) -> str:
        return self.client.dead_letters.categories.classify(error, queue=queue)

    def set_rule(self, queue: str, name: str, category: str, error: str) -> None:
        self.client.dead_letters.categories.set_rule(name, category, error=error, queue=queue)

    def drop_rule(self, queue: str, name: str) -> bool:
        return self.client.dead_letters.categories.drop_rule(name, queue=queue)

    def rules(self, queue: str) -> list[Record]:
        return [asdict(each) for each in self.client.dead_letters.categories.list_rules(queue)]

    def schedule(self, name: str, queue: str, cron: str, body: Any, **options: Any) -> None:
        self.client.schedules.create(name, queue, cron, body, **options)

    def schedules(self, queue: str) -> list[Record]:
        return [asdict(each) for each in self.client.schedules.list(queues=[queue])]

    def pause_schedule(self, name: str) -> None:
        self.client.schedules.pause(name)

    def resume_schedule(self, name: str) -> None:
        self.client.schedules.resume(name)

    def delete_schedule(self, name: str) -> bool:
        return self.client.schedules.delete(name)

    def bind(self, pattern: str, queue: str) -> None:
        self.client.topics.bind(pattern, queue)

    def unbind(self, pattern: str, queue: str) -> bool:
        return self.client.topics.unbind(pattern, queue)

    def send_topic(self, topic: str, body: Any) -> int:
        return self.client.topics.send(topic, body)

    def subscribe(self, name: str, queue: str) -> None:
        self.client.subscriptions.create(name, queue)


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
        done = self.post(f"queues/{queue}/messages/batch", messages=[{"body": each} for each in bodies])
        return [each["message_id"] for each in done["results"]]

    def receive(self, queue: str, quantity: int = 1, lease: float | None = None) -> list[Delivery]:
        told = self.post(f"queues/{queue}/receive", quantity=quantity, lease=lease)["messages"]
        return [delivery(each, each["receipt"]) for each in told]

    def settle(self, how: str, deliveries: Sequence[Delivery], **options: Any) -> list[str]:
        receipts = [each.receipt for each in deliveries]
        results = self.post(how.replace("_", "-"), receipts=receipts, **options)["results"]
        assert [each["receipt"] for each in results] == receipts
        return [each["outcome"] for each in results]

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
        return {each["message_id"]: each["outcome"] for each in results}

    def delete(self, queue: str, message_ids: Sequence[int]) -> list[int]:
        return self.gone("delete", queue, message_ids)

    def archive(self, queue: str, message_ids: Sequence[int]) -> list[int]:
        return self.gone("archive", queue, message_ids)

    def gone(self, how: str, queue: str, message_ids: Sequence[int]) -> list[int]:
        results = self.post(f"queues/{queue}/{how}", message_ids=message_ids)["results"]
        return [each["message_id"] for each in results if each["outcome"] != "unknown"]

    def archived(self, queue: str) -> list[Record]:
        return list(self.ask("GET", f"queues/{queue}/archive")["messages"])

    def dead_letters(self, queue: str, **options: Any) -> list[Record]:
        return list(self.post(f"queues/{queue}/dead-letters/search", **options)["dead_letters"])

    def count_dead_letters(self, queue: str) -> dict[str, int]:
        told = self.ask("GET", f"queues/{queue}/dead-letters")["counts"]
        return {each["category"]: each["count"] for each in told}

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
        return [each for each in told if each["queue"] == queue]

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
        lines = "".join(f"{json.dumps(each)}\n" for each in bodies)
        return [each["message_id"] for each in self.run("send", queue, stdin=lines)]

    def receive(self, queue: str, quantity: int = 1, lease: float | None = None) -> list[Delivery]:
        told = self.run("receive", queue, limit=quantity, lease=lease)
        return [delivery(each, json.dumps(each)) for each in told]

    def settle(self, how: str, deliveries: Sequence[Delivery], **options: Any) -> list[str]:
        noun = "" if how in ("ack", "nack") else "message "
        if how == "hold":
            return self.hold(deliveries, **options)
        lines = "\n".join(each.receipt for each in deliveries)
        return [each["outcome"] for each in self.run(f"{noun}{how}", stdin=lines, **options)]

    def hold(self, deliveries: Sequence[Delivery], seconds: float) -> list[str]:
        told = [json.loads(each.receipt) for each in deliveries]
        [(queue, lease_id)] = {(each["queue"], each["lease_id"]) for each in told}
        ids = [each.message_id for each in deliveries]
        return [each["outcome"] for each in self.run("message hold", queue, lease_id, *ids, seconds=seconds)]

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
            each["message_id"]: each["outcome"] for each in self.run("message cancel", queue, *message_ids)
        }

    def delete(self, queue: str, message_ids: Sequence[int]) -> list[int]:
        return [each["message_id"] for each in self.run("message delete", queue, *message_ids)]

    def archive(self, queue: str, message_ids: Sequence[int]) -> list[int]:
        return [each["message_id"] for each in self.run("message archive", queue, *message_ids)]

    def archived(self, queue: str) -> list[Record]:
        return self.run("message peek-archive", queue)

    def dead_letters(self, queue: str, **options: Any) -> list[Record]:
        return self.run("dead-letter list", queue, **options)

    def count_dead_letters(self, queue: str) -> dict[str, int]:
        told = self.run("dead-letter count")
        return {each["category"]: each["count"] for each in told if each["queue"] == queue}

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
                word for each in values for word in (flag, json.dumps(each) if is_json else written(each))
            ]
    return words


def written(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
