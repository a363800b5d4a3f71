"""A command starts with what it needs, and help knows them all."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
import typer
from tests.cli.program import spanmq

from spanmq.cli.commands import PANELS, WORDS, Panel, name_of, program


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title)
def test_every_command_of_a_module_is_listed(panel: Panel) -> None:
    module = import_module(f"spanmq.cli.{panel.module}")
    names = [name_of(each) for each in module.commands.registered_commands]
    assert panel.commands.split() == names


def test_no_command_has_two_homes() -> None:
    names = [name for panel in PANELS for name in panel.commands.split()] + [each.name for each in WORDS]
    assert len(names) == len(set(names))
    group = typer.main.get_command(program())
    assert sorted(getattr(group, "commands")) == sorted(names)  # noqa: B009


def every_command(group: Any, *words: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from every_command(command, *words, name)
        else:
            yield " ".join([*words, name]), command


def test_every_command_has_the_options_that_the_reference_promises() -> None:
    for name, command in every_command(typer.main.get_command(program())):
        options = {option for each in command.params for option in each.opts}
        if name != "sql":
            assert "--json" in options, name
        if name not in ("sql", "encryption add-key"):
            assert "--dsn" in options, name
        arguments = [each for each in command.params if each.param_type_name == "argument"]
        assert [each.name for each in arguments if each.metavar is None] == [], name


def test_no_command_delays_a_message_unasked() -> None:
    delays = {
        name: each.default
        for name, command in every_command(typer.main.get_command(program()))
        for each in command.params
        if "--delay" in each.opts and not each.required
    }
    assert delays.keys() >= {"send", "redrive", "redrive-message", "pipeline dead-letters"}
    assert {name: delay for name, delay in delays.items() if delay} == {}


def test_help_shows_no_type_for_a_flag() -> None:
    for words in ([], ["extend"], ["tokens"], ["tokens", "create"]):
        done = spanmq(*words, "--help", dsn=None)
        assert (done.code, "<bool>" in done.out) == (0, False), words


def test_help_lists_all_commands_and_a_slip_is_set_right() -> None:
    everything = spanmq("--help", dsn=None)
    assert everything.code == 0
    assert all(f" {name} " in everything.out for panel in PANELS for name in panel.commands.split())
    slip = spanmq("recieve", "orders", dsn=None)
    assert slip.code == 2
    assert "receive" in slip.err
