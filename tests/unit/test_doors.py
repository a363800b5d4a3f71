"""Doors: each line of the table has its command and its routes, with what the method takes, and in its words."""

import inspect
from dataclasses import fields
from typing import Any, get_args

import pytest
import typer

from spanmq.cli.app import NOUNS, VERBS, app
from spanmq.cli.doors import derived
from spanmq.client import AsyncClient, Client
from spanmq.client.door import REQUIRED, bound, method_of, parameters_of, result_of, words_of
from spanmq.doors import DOORS, Door, Http, door
from spanmq_service.app import TABLES
from spanmq_service.guard.access import Scope

OPERATIONS = {f"{each.method} {each.path}": each for table in TABLES for each in table.operations}
ROUTES = [(door, route) for door in DOORS for route in door.routes]
COMMANDS = [door for door in DOORS if door.shell is not None]


def command_of(name: str) -> Any:
    program: Any = typer.main.get_command(app)
    noun, _, verb = name.rpartition(" ")
    return program.commands[noun].commands[verb] if noun else program.commands[verb]


def id_of(value: object) -> str | None:
    return value.name if isinstance(value, Door) else value.route if isinstance(value, Http) else None


@pytest.mark.parametrize("door", DOORS, ids=id_of)
def test_both_clients_have_the_method_of_a_door(door: Door) -> None:
    for client in (Client("host=localhost"), AsyncClient("host=localhost")):
        is_async = isinstance(client, AsyncClient)
        assert bound(client, door.method).__func__ is method_of(door.method, is_async=is_async)  # type: ignore[attr-defined]
    assert inspect.signature(method_of(door.method)).parameters.keys() == (
        inspect.signature(method_of(door.method, is_async=True)).parameters.keys()
    )


def test_a_command_or_a_route_has_one_line() -> None:
    assert len({door.name for door in DOORS}) == len(DOORS)
    assert len({route.route for _, route in ROUTES}) == len(ROUTES)
    nouns = {door.name.rpartition(" ")[0] for door in COMMANDS} - {""}
    assert nouns <= NOUNS.keys()
    # None has a command by hand too, which would be hidden.
    assert {name for name in VERBS if not VERBS[name]} == {
        door.name for door in COMMANDS if " " not in door.name
    }


@pytest.mark.parametrize("door", COMMANDS, ids=id_of)
def test_command_takes_what_the_method_takes(door: Door) -> None:
    parameters = {each.name: each for each in parameters_of(method_of(door.method))}
    options = {
        each.name: each
        for each in command_of(door.name).params
        if each.name not in ("dsn", "as_json", "help")
    }
    assert options.keys() == parameters.keys()
    for name, option in options.items():
        assert option.required == parameters[name].is_required
        assert option.help
        if not option.required:
            # An option with several values has none as its default.
            assert option.default == parameters[name].default or (option.multiple and not option.default), (
                name
            )


@pytest.mark.parametrize(("door", "route"), ROUTES, ids=id_of)
def test_route_takes_what_the_method_takes(door: Door, route: Http) -> None:
    method, path = route.route.split(" ")
    operation = OPERATIONS[f"{method} /v1{path}"]
    given = {
        name: REQUIRED if argument.is_required else argument.default
        for name, argument in operation.arguments.items()
        if argument.place != "body"
    }
    for argument in operation.arguments.values():
        if argument.place == "body":
            kind: Any = getattr(argument.kind, "__args__", [argument.kind])[0]
            defaults = zip(kind.__struct_fields__[::-1], kind.__struct_defaults__[::-1], strict=False)
            given |= dict.fromkeys(kind.__struct_fields__, REQUIRED) | dict(defaults)
    hidden = {*route.without, *(() if "{queue}" in path else ("queue",))}
    hidden |= {"queues"} if route.of == "filtered" else set()
    parameters = [each for each in parameters_of(method_of(door.method)) if each.name not in hidden]
    names = {route.names.get(each.name, each.name): each.default for each in parameters}
    assert given.keys() == names.keys()
    for name, default in names.items():
        assert given[name] == (REQUIRED if f"{{{name}}}" in path else default) or given[name] is REQUIRED, (
            name
        )


@pytest.mark.parametrize(("door", "route"), ROUTES, ids=id_of)
def test_route_wants_the_verb_of_its_queue_or_of_all(door: Door, route: Http) -> None:
    method, path = route.route.split(" ")
    scope = OPERATIONS[f"{method} /v1{path}"].scope
    assert isinstance(scope, Scope)
    assert scope.verb == (route.needs or ("look" if method == "GET" else "manage")), door.name
    assert scope.of == (route.of or ("path" if "{queue}" in path else "everything")), door.name
    if scope.of == "filtered" and path != "/version":
        called = method_of(door.method)
        [kind] = get_args(result_of(called))
        # Either only these queues are asked about, or the rows say of which queue they are.
        asked = any(each.name == "queues" for each in parameters_of(called))
        assert method == "GET"
        assert asked or any(each.name == "queue" for each in fields(kind))


class Example:
    def act(self, queue: str | None = None, *, limit: int = 100, names: list[str] | None = None) -> None:
        """List the things of a `queue`, or (None) of all, the newest first.

        Each is kept for a day. At most `limit`, with these `names` (None: any). Raises QueueNotFoundError. Never [].
        """


@pytest.mark.parametrize(
    ("queue", "first"),
    [
        ("one", "List the things of a `queue`, the newest first."),
        ("all", "List the things of all, the newest first."),
        ("both", "List the things of a `queue`, or of all, the newest first."),
    ],
)
def test_words_of_a_method_are_those_before_what_it_raises(queue: Any, first: str) -> None:
    assert words_of(Example.act, queue=queue) == [
        first,
        "Each is kept for a day.",
        "At most `limit`, with these `names` (None: any).",
    ]


def test_option_of_a_new_name_has_the_type_of_its_parameter_and_the_sentence_that_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spanmq.cli.doors.DOORS", (door("receiver release", "Receivers.release"),))
    alone = typer.Typer()
    alone.command()(derived("receiver")["release"])
    command: Any = typer.main.get_command(alone)
    [settled] = [each for each in command.params if each.name == "settled"]
    assert (settled.opts, settled.type.name, settled.default) == (["--settled"], "int", None)
    assert settled.help == "First settles the batches up to settled, which its checkpoint proves to be done."
