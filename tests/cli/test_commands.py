"""A command starts with what it needs, and help knows them all."""

from __future__ import annotations

from importlib import import_module

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


def test_help_lists_all_commands_and_a_slip_is_set_right() -> None:
    everything = spanmq("--help", dsn=None)
    assert everything.code == 0
    assert all(f" {name} " in everything.out for panel in PANELS for name in panel.commands.split())
    slip = spanmq("recieve", "orders", dsn=None)
    assert slip.code == 2
    assert "receive" in slip.err
