"""The commands as a whole: help, examples, options, errors as JSON, completion, and what is imported."""

import ast
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from psycopg.conninfo import make_conninfo
from tests.cli.program import environment, records, run, spanmq

from spanmq.cli.app import GUESSES, NOUNS, VERBS, app

PROGRAM: Any = typer.main.get_command(app)
# psql has its own formats, and a script is SQL.
WITHOUT_JSON = {"psql", "schema sql"}
WITHOUT_DSN = {"schema sql", "encryption add-key"}
# Slow to import. The methods of the client, whose words are the help, are not.
SLOW = {"pydantic", "psycopg", "psycopg_pool", "http", "asyncio", "rich", "typer.rich_utils"}
SLOW |= {"spanmq.client._sync.client", "spanmq.client._sync.connection"}
IMPORTED = "import sys; from spanmq.cli import main\ntry: main()\nexcept SystemExit: print(*sys.modules)"


def every_command(group: Any = PROGRAM, *words: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from every_command(command, *words, name)
        else:
            yield " ".join([*words, name]), command


COMMANDS = dict(every_command())


@pytest.mark.parametrize("name", COMMANDS)
def test_command_has_its_options_and_examples_that_it_understands(name: str) -> None:
    command = COMMANDS[name]
    options = {option for param in command.params for option in param.opts}
    assert ("--json" in options) == (name not in WITHOUT_JSON)
    assert ("--dsn" in options) == (name not in WITHOUT_DSN)
    assert [param.name for param in command.params if not param.help] == []
    context = command.context_class(command, info_name=name)
    assert "<bool>" not in command.get_help(context)
    arguments = [
        param.make_metavar(context) for param in command.params if param.param_type_name == "argument"
    ]
    assert all(argument.isupper() or "|" in argument for argument in arguments)
    examples = [line.strip() for line in command.epilog.splitlines() if line.strip().startswith("$ ")]
    assert examples
    for example in examples:
        calls = [words.split() for words in example.removeprefix("$ ").split(" | ")]
        assert name.split() in [words[1 : 1 + len(name.split())] for words in calls if words[0] == "spanmq"]
        for call in example.removeprefix("$ ").split(" | "):
            if call.startswith("spanmq "):
                understand(PROGRAM, shlex.split(call)[1:])


def test_simulate_shows_the_default_of_every_option() -> None:
    options = [param for param in COMMANDS["simulate"].params if param.param_type_name == "option"]
    assert [option.name for option in options if not option.is_flag and not option.show_default] == []


def understand(command: Any, words: list[str]) -> None:
    """Parse words as the program does; raises for a usage error."""
    context = command.make_context("spanmq", words)
    if hasattr(command, "commands"):
        name, subcommand, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert name is not None
        understand(subcommand, rest)


def test_tasks_of_airflow_run_commands_that_exist() -> None:
    example = Path(__file__).resolve().parents[2] / "examples/airflow/orders.py"
    commands = {
        keyword.arg: ast.literal_eval(keyword.value)
        for node in ast.walk(ast.parse(example.read_text("utf-8")))
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg in ("bash_command", "application_args")
    }
    understand(PROGRAM, shlex.split(commands["bash_command"])[1:])
    understand(PROGRAM, commands["application_args"])


def test_no_command_delays_a_message_unasked() -> None:
    delays = {
        name: param.default
        for name, command in COMMANDS.items()
        for param in command.params
        if "--delay" in param.opts and not param.required
    }
    assert delays.keys() >= {"send", "dead-letter redrive", "dead-letter edit", "pipeline dead-letters"}
    assert {name: delay for name, delay in delays.items() if delay} == {}


def test_help_lists_all_commands_and_suggests_one_for_a_typing_error() -> None:
    everything = spanmq("--help", dsn=None)
    assert everything.code == 0
    assert [name for name in (*VERBS, *NOUNS) if f"\n  {name} " not in everything.out] == []
    # Sentences are wrapped, not cut.
    assert [
        words
        for words in ("", "queue")
        if re.search(r"\w\.\.\.", run(*words.split(), "--help", dsn=None).out)
    ] == []
    for words, suggested in ((("recieve", "orders"), "receive"), (("queue", "creat", "orders"), "create")):
        slip = spanmq(*words, dsn=None)
        assert (slip.code, f"Did you mean '{suggested}'" in slip.err) == (2, True)
    assert "  $ spanmq queue create events --unlogged\n" in spanmq("queue create", "-h", dsn=None).out


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["queue", "metrics", "nope"], 1, {"code": "queue_not_found", "queue": "nope"}),
        (["serve", "--log-level", "loud"], 1, {"code": "invalid_argument"}),
        (["queue", "list", "--dsn", "postgresql://127.0.0.1:1/x"], 1, {"code": "connection_failed"}),
        (["queue", "purge", "orders"], 2, {"code": "usage"}),
        (["message", "peek"], 2, {"code": "usage", "message": "Missing argument 'QUEUE'."}),
        (["message", "peek", "orders", "--unknown"], 2, {"code": "usage"}),
        (["sned"], 2, {"code": "usage"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_error_is_json_under_json(orders: str, words: list[str], code: int, error: dict[str, str]) -> None:
    done = spanmq(*words, "--json", dsn=orders)
    assert (done.code, done.out) == (code, "")
    [line] = done.err.splitlines()
    told = json.loads(line)["error"]
    assert told["message"]
    assert {name: told[name] for name in error} == error


def test_queue_names_are_completed(orders: str) -> None:
    records("queue create", "invoices", dsn=orders)
    typed = {"_SPANMQ_COMPLETE": "complete_bash", "COMP_CWORD": "3"}
    for words, completed in (
        ("spanmq message peek o", ["orders"]),
        ("spanmq queue drop ", ["invoices", "orders"]),
        ("spanmq queue dro", ["drop"]),
    ):
        more = {**typed, "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        assert sorted(spanmq(dsn=orders, more=more).out.split()) == completed, words
        if completed != ["drop"]:
            assert spanmq(dsn=None, more=more).out.split() == []


@pytest.mark.parametrize("dsn", ["host=h password=secret xx", "postgresql://u:secret word@h/db"])
def test_psql_does_not_print_the_password_of_a_dsn_that_it_cannot_read(dsn: str) -> None:
    done = run("psql", dsn=dsn)
    assert done.code != 0
    assert "the DSN can't be read" in done.err
    assert "secret" not in done.err + done.out
    assert "Traceback" not in done.err


def test_psql_runs_on_the_database_with_arguments_and_exit_codes_of_its_own(orders: str) -> None:
    # The one has a variable of libpq, the other has none.
    dsn = make_conninfo(orders, application_name="mine", tcp_user_timeout=7000)
    shown = run("psql", "-At", "--command", "show application_name", dsn=dsn)
    assert (shown.code, shown.out, shown.err) == (0, "mine\n", "")
    assert run("psql", "--command", "select nonsense", dsn=orders).code == 1


@pytest.mark.parametrize(
    ("words", "own"),
    [
        (["--version"], set()),
        (["queue", "--help"], {"queues"}),
        (["token", "--help"], set()),
        (["schedule", "create", "--help"], set()),
        (["schema", "sql", "--help"], {"schema"}),
    ],
    ids=" ".join,
)
def test_what_needs_no_database_imports_no_driver(words: list[str], own: set[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, *words],
        capture_output=True,
        text=True,
        env=environment(None),
        check=True,
    )
    imported = set(done.stdout.splitlines()[-1].split())
    assert imported & SLOW == set()
    homes = {*VERBS.values(), *(module for module, _, _ in NOUNS.values())}
    assert {name for name in homes if (name if "." in name else f"spanmq.cli.{name}") in imported} == own


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("queue show orders", "'health' or 'list'"),
        ("queue info orders", "'health' or 'list'"),
        ("queue delete orders", "'drop'"),
        ("queue ls", "'list'"),
        ("queue retry orders", "'retry-failing'"),
        ("queue peek orders", "'spanmq message peek'"),
        ("queue send orders 1", "'spanmq send'"),
        ("message list orders", "'peek'"),
        ("message show orders 1", "'peek' or 'state'"),
        ("message get orders 1", "'peek' or 'state'"),
        ("message ack orders 1", "'spanmq ack'"),
        ("dead-letter retry orders", "'redrive'"),
        ("dead-letter requeue orders", "'redrive'"),
        ("dead-letter delete orders 1", "'discard'"),
        ("schedule add nightly", "'create'"),
        ("schedule trigger nightly", "'run'"),
        ("schema migrate", "'upgrade' or 'adopt'"),
        ("policy list", "'get'"),
        ("policy show orders", "'get'"),
        ("token remove shop", "'revoke'"),
        ("grant delete shop", "'revoke'"),
        ("result show orders 1", "'get'"),
        ("task stats", "'statistics' or 'list'"),
    ],
)
def test_usual_guess_has_an_error_that_names_what_is_meant(words: str, meant: str) -> None:
    done = spanmq(*words.split(), dsn=None)
    word = words.split()[1]
    assert (done.code, done.out) == (2, "")
    assert f"No such command '{word}'. Did you mean {meant}?" in done.err


@pytest.mark.parametrize(
    ("command", "arguments", "part"),
    [
        ("serve", "--without-tokens", "service"),
        ("demo", "--rows 10", "lab"),
        ("simulate", "--help", "lab"),
        ("pipeline export", "orders --to lake", "spark"),
        ("receiver release", "orders lake", "spark"),
    ],
)
def test_command_that_is_not_installed_says_what_to_install(
    command: str, arguments: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, f"spanmq_{part}", None)
    done = spanmq(*command.split(), *arguments.split(), dsn=None)
    assert (done.code, done.out) == (1, "")
    assert f"{command} is a command of spanmq-{part}" in done.err
    assert f"hint: pip install 'spanmq[{part}]'\n" in done.err
    told = rf"^  {command.split(maxsplit=1)[0]} [^.]*pip\s+install\s+'spanmq\[{part}\]'\.$"
    assert re.search(told, spanmq("--help", dsn=None).out, re.MULTILINE)


def test_every_guess_leads_somewhere() -> None:
    verbs = {name.rpartition(" ")[2] for name in COMMANDS}
    assert {word: set(meant) - verbs for word, meant in GUESSES.items() if set(meant) - verbs} == {}


def test_error_for_an_unknown_verb_lists_those_of_the_noun() -> None:
    done = spanmq("policy frobnicate", dsn=None)
    assert (done.code, "spanmq policy has get, set." in done.err) == (2, True)
