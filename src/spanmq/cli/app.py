"""The whole program, all commands of it: for its documentation, and for tests that call it."""

from spanmq.cli.commands import program

app = program()
