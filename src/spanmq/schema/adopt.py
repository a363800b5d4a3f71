"""Take over PGMQ: its queues, in the same database, in one transaction."""

import importlib.resources
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spanmq.errors import NotPossibleError, SchemaMissingError
from spanmq.schema import manager as schema
from spanmq.schema.manager import UPSTREAM, Connection, Holding
from spanmq.schema.release import Release, Statement, load_release, manager

__all__ = ["AdoptReport", "AdoptedQueue", "Obstacle", "adopt"]


@dataclass(frozen=True, slots=True)
class AdoptedQueue:
    """The parts of a queue that are taken over.

    `hidden` of its `messages` wait for their vt; ids continue after `last_id`; `notify_ms` is None where
    inserts do not notify; `grantees` are the roles whose rights on the table are transferred to the view.
    """

    queue: str
    messages: int
    hidden: int
    archived: int
    last_id: int
    is_partitioned: bool
    is_unlogged: bool
    topics: tuple[str, ...]
    notify_ms: int | None
    grantees: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Obstacle:
    """An object that cannot be transferred and must be dealt with first."""

    object: str
    reason: str


@dataclass(frozen=True, slots=True)
class AdoptReport:
    """The result of a take-over, or with `is_dry_run` its plan. `obstacles` are empty unless it is a dry run.

    `version` is that of the extension; `kept` names the other objects in schema pgmq, which stay there.
    """

    holding: Holding
    version: str | None
    is_dry_run: bool
    queues: tuple[AdoptedQueue, ...]
    kept: tuple[str, ...]
    obstacles: tuple[Obstacle, ...]

    @property
    def messages(self) -> int:
        """Count the messages of all queues."""
        return sum(queue.messages for queue in self.queues)


def adopt(
    connection: Connection,
    *,
    dry_run: bool = False,
    lock_timeout_seconds: float = 30.0,
    follow_table_grants: bool = False,
    release: Release | None = None,
) -> AdoptReport:
    """Replace PGMQ (1.4 to 1.13, extension or SQL only) by spanmq and keep its queues; return what was taken over.

    Runs on a `connection` of psycopg; `release` is this version if it is None. Ids continue, and every message keeps
    its id, read count, times, visibility, body and headers; archives stay the same tables; topics, notifications and
    rights go over. Locks PGMQ's tables first, waiting for each up to `lock_timeout_seconds`, and copies all messages
    while it holds them. Any error leaves all as it was. With `dry_run` it counts and looks for obstacles; it locks
    PGMQ's tables against changes of their definitions only. With `follow_table_grants`, privileges on the tables become
    privileges on the views, and count as verbs from then on.

    Raises NotPossibleError, which names every obstacle, or where spanmq is installed already; SchemaMissingError where
    there is neither; StatementCancelledError when the tables could not be locked in time; and what `schema.install`
    raises.
    """
    release = release or load_release()
    with schema.typed_errors(), schema.locked_transaction(connection):
        current = schema.fetch_state(connection, release)
        if current.holding not in UPSTREAM:
            if current.version is None:
                raise SchemaMissingError(
                    "the database has no PGMQ to take over",
                    hint="For an empty database, run spanmq schema install.",
                    sqlstate="MQ006",
                )
            raise NotPossibleError(
                f"the database holds spanmq {current.version}, not PGMQ",
                hint="Nothing needs to be done: the queues are spanmq's already.",
                sqlstate="MQ006",
                code="adoption_refused",
            )
        schema.check_server(current)
        schema.execute(connection, [_statement(name) for name in ("prepare", "inspect", "lock")])
        mode = "share update exclusive" if dry_run else "access exclusive"
        rows = _hold(connection, "settings", mode, lock_timeout_seconds)
        if not rows:
            rows = _hold(connection, "queues", mode, lock_timeout_seconds)
            schema.execute(connection, [_statement("inventory")])
            rows = schema.query(connection, _statement("obstacles"))
        obstacles = tuple(Obstacle(**row) for row in rows)
        if obstacles and not dry_run:
            _refuse(obstacles)
        report = AdoptReport(
            holding=current.holding,
            version=current.version,
            is_dry_run=dry_run,
            queues=tuple(_queue(row) for row in schema.query(connection, _statement("queues"))),
            kept=tuple(row["name"] for row in schema.query(connection, _statement("own_objects"))),
            obstacles=obstacles,
        )
        if not dry_run:
            schema.execute(connection, [_statement("set_aside")])
            planned = schema.plan(schema.fetch_state(connection, release), release, reapply=False)
            schema.execute(connection, planned)
            schema.execute(connection, [_following(follow_table_grants), _statement("take_over")])
            if follow_table_grants:
                schema.execute(connection, [schema.FOLLOW])
            if current.holding is Holding.UPSTREAM_EXTENSION:
                schema.execute(connection, [manager("extension", asked="false")])
        schema.execute(connection, [Statement("adopt/end", "drop schema spanmq_adopt cascade")])
    return report


def _hold(connection: Connection, what: str, mode: str, lock_timeout_seconds: float) -> list[dict[str, Any]]:
    """Lock PGMQ's tables of settings, or its queues, and return the obstacles that the catalogs show."""
    milliseconds = max(1, round(lock_timeout_seconds * 1000))
    before = schema.query(
        connection, Statement("adopt/timeout", "select current_setting('lock_timeout') as value")
    )
    schema.execute(
        connection,
        [
            Statement("adopt/timeout", f"select set_config('lock_timeout', '{milliseconds}ms', true)"),
            Statement("adopt/lock.sql", f"select spanmq_adopt.hold_{what}('{mode}')"),
            Statement("adopt/timeout", f"select set_config('lock_timeout', '{before[0]['value']}', true)"),
        ],
    )
    query = "select o.object, o.reason from spanmq_adopt.obstacle o order by 1, 2"
    return schema.query(connection, Statement("adopt/obstacles", query))


def _following(is_following: bool) -> Statement:
    value = "on" if is_following else "off"
    return Statement("adopt/follow", f"select set_config('spanmq.follow_table_grants', '{value}', true)")


def _queue(row: dict[str, Any]) -> AdoptedQueue:
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in row.items()
    }
    return AdoptedQueue(**fields)


def _refuse(obstacles: Sequence[Obstacle]) -> None:
    raise NotPossibleError(
        f"PGMQ can't be taken over as it is: {len(obstacles)} obstacles",
        detail="\n".join(f"{obstacle.object}: {obstacle.reason}" for obstacle in obstacles),
        hint="Remove them and run it again; spanmq schema adopt --dry-run lists them too.",
        sqlstate="MQ006",
        code="adoption_refused",
    )


def _statement(name: str) -> Statement:
    folder = importlib.resources.files("spanmq") / "sql" / "adopt"
    return Statement(f"adopt/{name}.sql", (folder / f"{name}.sql").read_text(encoding="utf-8"))
