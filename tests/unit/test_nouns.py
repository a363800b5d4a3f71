"""Each noun has one name in SQL, in the client, over HTTP, on the command line and in metrics: one table."""

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from psycopg import Connection
from service.tests.route_table import ROUTES

import spanmq
from spanmq.cli.app import NOUNS, VERBS, app
from spanmq.client import Admin, AsyncClient, Client, DeadLetters, Health, Queues
from spanmq.client.namespace import Namespace
from spanmq.doors import DOORS
from spanmq.model import DeadLetterFilters, FailingFilters

SOURCE = Path(str(spanmq.__file__)).parent
# The folders of the sources of all distributions.
SOURCES = [SOURCE, *SOURCE.parents[1].glob("*/src")]

# Where each noun is found. In SQL it is the name of a file of functions, in the client a namespace, over HTTP a
# part of a path, on the command line a group, and in metrics what follows `spanmq_`.
PLACES = {
    "queue": "sql client http command metrics",
    "message": "sql client http command metrics",
    "dead_letter": "sql client http command",
    "batch": "sql client command",
    "result": "sql client command",
    "schedule": "sql client http command",
    "signal": "sql client http command",
    "topic": "sql client http command",
    "subscription": "sql client http command",
    "notification": "sql client command",
    "policy": "sql client http command",
    "category": "sql client http command",
    "health": "sql client http",
    "grant": "sql client command",
    "token": "sql client command",
    "key": "sql client command",
    "session": "sql",
    "receiver": "sql client http command",
    "pipeline_run": "sql client http command",
    "shard": "sql client command",
    "worker": "sql client command metrics",
    # Kinds of tasks, which are statistics in the database and in the client.
    "task": "command",
    # A program's own, without functions in the database.
    "encryption": "command",
    "schema": "command",
    "request": "metrics",
}
# The same noun under another name, and why.
EXCEPTIONS: dict[tuple[str, str], tuple[Any, ...]] = {
    ("message", "client"): (Client, "send", "the verbs of every day are flat"),
    ("policy", "client"): (Queues, "set_policy", "a queue has exactly one"),
    ("shard", "client"): (spanmq.ShardedQueue, "shards", "over several clients"),
    ("worker", "client"): (Health, "workers", "with the health of queues"),
    ("result", "sql"): ("settled", "with the wait for them"),
    ("notification", "sql"): ("notify", "PGMQ's word"),
    ("grant", "sql"): ("access", "with what reads them"),
    ("key", "sql"): ("access_key", "a key of what, for who reads SQL"),
    ("pipeline_run", "command"): ("pipeline", "with the commands that run jobs"),
    ("worker", "command"): ("worker", "a verb: `spanmq worker`"),
}
# Namespaces that look into several nouns.
VIEWS = {"inspect", "admin"}
# Commands by hand whose method is not the verb of that name in the noun's namespace, in the client, or in a view.
METHODS = {
    "dead-letter edit": "dead_letters.edit",
    "doctor": "health.doctor",
    "maintain": "admin.maintain",
    "queue attention": "health.attention",
    "queue health": "health.now",
    "result get": "results.list",
    "schema install": "install",
    "version": "admin.version",
}
DERIVED = {door.name for door in DOORS if door.shell is not None}
# What a command has beyond the method, and its other words.
MORE_OPTIONS = {
    "dsn", "checkpoint", "as_json", "yes", "is_text", "is_message", "batch", "every", "settings", "help",
}  # fmt: skip
SINGULAR = {"queue": "queues", "verb": "verbs"}
# Functions of ours that no Python calls.
UNCALLED = {
    "note_change": "for clients of 0.1.0: it does nothing",
    "grant_create": "for SQL: `admin.grants.all(role, 'create')`",
    "list_bindings": "for SQL: `topics.list(queue)`",
    "list_throttles": "for SQL: `admin.notifications.list()`",
    "dead_letter_extent": "spark.rows makes the name",
    "dead_letters_between": "spark.rows makes the name",
    "failure_extent": "spark.rows makes the name",
    "failures_between": "spark.rows makes the name",
}


def plural(noun: str) -> str:
    return (
        noun
        if noun == "health"
        else f"{noun[:-1]}ies"
        if noun.endswith("y") and noun != "key"
        else f"{noun}es"
        if noun.endswith("ch")
        else f"{noun}s"
    )


def members(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


NAMESPACES = {
    f"{start}{name}": part.kind
    for holder, start in ((Client, ""), (Admin, "admin."), (DeadLetters, "dead_letters."))
    for name, part in vars(holder).items()
    if isinstance(part, Namespace)
}


def in_sql(noun: str) -> bool:
    return any(path.stem.startswith(noun) for path in (SOURCE / "sql/functions").rglob("*.sql"))


def in_client(noun: str) -> bool:
    return plural(noun) in {path.rpartition(".")[2] for path in NAMESPACES}


def in_http(noun: str) -> bool:
    words = {noun.replace("_", "-"), plural(noun).replace("_", "-")}
    parts = {part for route in ROUTES for part in route.path.split("/")}
    return any(part in words or part.startswith(f"{noun}-") for part in parts)


def in_command(noun: str) -> bool:
    return noun.replace("_", "-") in {*NOUNS, *VERBS}


def in_metrics(noun: str) -> bool:
    files = (SOURCE / "worker/measures.py", SOURCE.parents[1] / "service/src/spanmq_service/measures.py")
    texts = [path.read_text("utf-8") for path in files]
    return bool(re.search(rf'"spanmq_{noun}s?[_"{{]', "".join(texts)))


PROVED: dict[str, Callable[[str], bool]] = {
    "sql": in_sql,
    "client": in_client,
    "http": in_http,
    "command": in_command,
    "metrics": in_metrics,
}


def test_noun_has_one_name_everywhere() -> None:
    assert len(EXCEPTIONS) <= 10
    for noun, places in PLACES.items():
        for place in places.split():
            if (noun, place) not in EXCEPTIONS:
                assert PROVED[place](noun), (noun, place)
    for (_, place), (name, *more) in EXCEPTIONS.items():
        if place == "client":
            assert hasattr(name, more[0])
        else:
            assert PROVED[place](name)


def test_everything_that_has_a_name_of_a_noun_is_in_the_table() -> None:
    nouns = {plural(noun) for noun in PLACES}
    assert {path.rpartition(".")[2] for path in NAMESPACES} - nouns == VIEWS
    groups = {value[0] for (_, place), value in EXCEPTIONS.items() if place == "command"}
    assert {name.replace("-", "_") for name in NOUNS} - PLACES.keys() == groups - {"worker"}
    collections = {
        before.replace("-", "_")
        for route in ROUTES
        for before, part in zip(route.path.split("/"), route.path.split("/")[1:], strict=False)
        if part.startswith("{") and before not in ("category-rules", "category-policies", "bindings")
    }
    assert collections - nouns == set()


def test_both_clients_have_the_same_members() -> None:
    assert members(Client) == members(AsyncClient)


def commands() -> Iterator[tuple[str, Any]]:
    program: Any = typer.main.get_command(app)
    for name in VERBS:
        yield name, program.commands[name]
    for noun in NOUNS:
        for verb, command in program.commands[noun].commands.items():
            yield f"{noun} {verb}", command


def method_of(command: str) -> Callable[..., Any] | None:
    """Return the method that a command calls: `queue pause` is queues.pause, `message ack` is ack."""
    noun, _, verb = command.replace("-", "_").rpartition(" ")
    names = [f"{start}{plural(noun)}.{verb}" for start in ("", "admin.", "dead_letters.")]
    names += [verb, f"{noun}s.{verb}_{noun}"]
    names += [f"queues.{verb}_{noun}", f"inspect.{verb}", f"admin.{verb}"]
    for name in [METHODS[command]] if command in METHODS else names:
        path, _, method = name.rpartition(".")
        found = getattr(NAMESPACES.get(path, Client if path == "" else None), method, None)
        if inspect.isfunction(found):
            return found
        if path == "admin" and inspect.isfunction(vars(Admin).get(method)):
            return getattr(Admin, method)  # type: ignore[no-any-return]
    return None


def test_options_of_a_command_by_hand_are_the_parameters_of_its_method() -> None:
    by_hand = {name: command for name, command in commands() if name not in DERIVED}
    found = {name: (method, command) for name, command in by_hand.items() if (method := method_of(name))}
    assert METHODS.keys() - found.keys() == set()
    assert len(found) > 20
    for name, (method, command) in found.items():
        parameters = set(inspect.signature(method).parameters) - {"self", "settings"}
        if "filters" in parameters:
            kind = FailingFilters if "failing" in name else DeadLetterFilters
            parameters |= kind.__annotations__.keys()
        options = {each.name for each in command.params}
        if "messages" in parameters:
            parameters |= {"queue", "lease_id", "message_ids"}
        if name.partition(" ")[0] in ("token", "key"):
            options = {SINGULAR.get(each, each) for each in options}
        assert options - MORE_OPTIONS - parameters == set(), name
        # The token is in the checkpoint.
        given_otherwise = {"messages", "filters", "conditional", "grouped", "settled_token"}
        given_otherwise |= {"alone", "retries", "newest"}
        assert parameters - options - given_otherwise == set(), name


@pytest.fixture
def functions(connection: Connection[Any]) -> set[str]:
    rows = connection.execute(
        "select proname from pg_proc where pronamespace = 'spanmq'::regnamespace"
    ).fetchall()
    return {name for (name,) in rows}


def test_every_function_of_ours_is_called(functions: set[str]) -> None:
    paths = [path for folder in SOURCES for path in folder.rglob("*.py") if "_sync" not in path.parts]
    text = "".join(path.read_text("utf-8") for path in paths)
    uncalled = {name for name in functions if not re.search(rf'"{name}"|spanmq\.{name}\(|"{name}\(', text)}
    assert uncalled == UNCALLED.keys()
