"""The demo."""

import typer

commands = typer.Typer()
