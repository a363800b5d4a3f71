"""The program: its commands, and the modules that have them, which are imported when they are used."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperGroup

from spanmq.cli.failure import OK, USAGE, UsageError, in_json, reported, say, wants_json
from spanmq.version import __version__

if TYPE_CHECKING:
    from spanmq.cli.verbs import Function

# Each command of one word, and the module that has it in `commands`, none if it is in spanmq.doors. In the order of
# help. A module with a dot is of another distribution.
VERBS: Final = {
    "send": "sending",
    "receive": "settling",
    "ack": "settling",
    "nack": "settling",
    "why": "",
    "worker": "work",
    "push": "push",
    "check": "checking",
    "serve": "spanmq_service.cli.service",
    "maintain": "maintenance",
    "doctor": "maintenance",
    "top": "maintenance",
    "notify": "notify",
    "psql": "maintenance",
    "demo": "spanmq_lab.cli.demonstration",
    "simulate": "spanmq_lab.cli.simulation",
    "version": "schema",
}
# Each noun, the module and the name there of its commands by hand, and what help says about it.
NOUNS: Final = {
    "queue": ("queues", "queue", "Create, list, measure, pause and drop queues."),
    "message": ("messages", "message", "Show, settle and read messages, also by PGMQ's calls."),
    "dead-letter": ("dead_letters", "dead_letter", "List, redrive and discard what failed for good."),
    "batch": ("", "", "Batches of tasks, and what they send at their end."),
    "task": ("", "", "Kinds of tasks: how many were done and failed, and how long they took."),
    "result": ("messages", "result", "Results of tasks."),
    "schedule": ("", "", "Send messages at recurring times."),
    "signal": ("", "", "Signals for which messages wait."),
    "topic": ("topics", "topic", "Send to every queue that is bound to a topic."),
    "subscription": ("topics", "subscription", "Queues that get every message of another queue."),
    "notification": ("", "", "Notify listeners of new messages."),
    "policy": ("queues", "policy", "How a queue delivers: attempts, backoff, order, limits."),
    "category": ("dead_letters", "category", "Categories of failures: their rules, and their retries."),
    "grant": ("access", "grant", "Rights of database roles on queues."),
    "token": ("", "", "Tokens for callers of the HTTP service."),
    "key": ("access", "key", "Access keys for callers of the SQS protocol."),
    "encryption": ("encryption", "encryption", "The keys of encrypted bodies."),
    "shard": ("shards", "shard", "One logical queue over several queues."),
    "receiver": ("spanmq_spark.cli.receivers", "receiver", "Spark streams that consume queues."),
    "pipeline": (
        "spanmq_spark.cli.pipeline",
        "pipeline",
        "Jobs over Spark: export, report, backfill, migrate.",
    ),
    "schema": ("schema", "schema", "Install, upgrade, verify and remove the schema."),
}
# Usual guesses, and the words that they stand for.
SYNONYMS: Final = {
    "install": ("schema", "install"),
    "init": ("schema", "install"),
    "migrate": ("schema", "upgrade"),
    "upgrade": ("schema", "upgrade"),
    "create": ("queue", "create"),
    "list": ("queue", "list"),
    "ls": ("queue", "list"),
    "queues": ("queue", "list"),
    "status": ("queue", "health"),
    "health": ("queue", "health"),
    "stats": ("queue", "latest-statistics"),
    "workers": ("queue", "workers"),
    "failing": ("queue", "failing"),
    "changes": ("queue", "changes"),
    "tasks": ("task", "list"),
    "batches": ("batch", "list"),
    "schedules": ("schedule", "list"),
    "dashboard": ("serve",),
    "monitor": ("top",),
    "peek": ("message", "peek"),
    "dlq": ("dead-letter",),
    "dead-letters": ("dead-letter",),
    "retry": ("dead-letter", "redrive"),
    "redrive": ("dead-letter", "redrive"),
}
# The words of a noun's verbs that begin with another word.
PHRASES: Final[dict[tuple[str, ...], tuple[str, str]]] = {
    ("worker", "list"): ("queue", "workers"),
    ("worker", "stack"): ("queue", "worker-stack"),
}
# Usual guesses for a verb, and those that may be meant: an error names the ones that the noun has.
GUESSES: Final = {
    "add": ("create", "set", "bind", "enable", "set-rule", "add-key", "install"),
    "create": ("set", "bind", "enable", "set-rule", "add-key", "install"),
    "new": ("create", "set", "bind", "set-rule", "add-key"),
    "set": ("create", "bind", "set-policy"),
    "edit": ("set", "change", "set-policy", "create"),
    "change": ("set", "edit", "rotate", "update", "set-policy"),
    "update": ("set", "change", "edit", "rotate", "set-policy", "upgrade", "create"),
    "delete": ("drop", "discard", "revoke", "unbind", "disable", "drop-rule", "uninstall"),
    "remove": ("delete", "drop", "discard", "revoke", "unbind", "disable", "drop-rule", "uninstall"),
    "rm": ("delete", "drop", "discard", "revoke", "unbind", "disable", "drop-rule", "uninstall"),
    "drop": ("delete", "discard", "revoke", "unbind", "disable", "drop-rule", "uninstall"),
    "clear": ("purge", "discard"),
    "empty": ("purge", "discard"),
    "purge": ("discard", "delete"),
    "list": ("peek", "get", "list-rules", "in-use", "runs", "verify"),
    "ls": ("list", "peek", "get", "list-rules", "in-use", "runs"),
    "show": ("get", "health", "peek", "state", "list", "verify", "match", "runs"),
    "get": ("show", "health", "peek", "state", "list", "list-policies", "runs"),
    "info": ("health", "state", "show", "get", "list", "verify"),
    "describe": ("health", "state", "show", "get", "list"),
    "status": ("health", "state", "show", "verify", "list", "runs"),
    "check": ("health", "verify", "state", "match", "classify"),
    "stats": ("statistics", "metrics", "count", "list"),
    "size": ("count", "metrics", "storage"),
    "errors": ("failing", "failures", "list"),
    "retry": ("redrive", "retry-failing", "release", "replay"),
    "requeue": ("redrive", "retry-failing", "release"),
    "replay": ("redrive", "retry-failing"),
    "migrate": ("upgrade", "adopt"),
    "init": ("install", "create"),
    "stop": ("pause", "disable", "revoke", "stop-worker"),
    "drain": ("stop-worker", "pause"),
    "start": ("resume", "enable", "run"),
    "trigger": ("run",),
    "wait": ("get",),
}
# A sentence of help is shorter.
SENTENCE_MAX: Final = 300
HELP: Final = {"help_option_names": ["-h", "--help"]}


class Lazy(Mapping[str, Any]):
    """Commands by name; each is created when it is first used."""

    def __init__(self, names: Callable[[], Iterable[str]], make: Callable[[str], Any]) -> None:
        self._names = names
        self._make = make
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        """Return a command."""
        if name not in self._names():
            raise KeyError(name)
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        """Yield the names in the order of help."""
        return iter(self._names())

    def __len__(self) -> int:
        """Return how many there are."""
        return len(list(self._names()))


class CommandGroup(TyperGroup):
    """Commands that are made when they are used; those that are missing are of `extra`, if that is not installed."""

    def __init__(self, *, extra: str | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self._extra = extra

    def list_commands(self, _: Any) -> list[str]:
        """Return the names; Typer's own method makes all the commands."""
        return list(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return a command; the error for a usual guess names what may be meant."""
        word = args[0]
        if word not in self.commands and not word.startswith("-"):
            if self._extra is not None:
                raise _missing(f"{self.name} {word}", self._extra)
            if meant := self._meant(word):
                ctx.fail(f"No such command {word!r}. Did you mean {' or '.join(map(repr, meant))}?")
            if self.name in NOUNS and not get_close_matches(word, self.commands):
                ctx.fail(f"No such command {word!r}. spanmq {self.name} has {', '.join(self.commands)}.")
        return super().resolve_command(ctx, args)

    def format_commands(self, _: Any, formatter: Any) -> None:
        """Write the commands into help, with the first sentence of each."""
        self.write_commands(formatter, "Commands", self.commands)

    def write_commands(self, formatter: Any, title: str, names: Iterable[str]) -> None:
        """Write a section; its sentences are wrapped, which Click would cut at the end of the line."""
        with formatter.section(title):
            formatter.write_dl(
                [(name, self.commands[name].get_short_help_str(SENTENCE_MAX)) for name in names]
            )

    def _meant(self, word: str) -> list[str]:
        if meant := [guess for guess in GUESSES.get(word, ()) if guess in self.commands]:
            return meant[:2]
        if word in VERBS:
            return [f"spanmq {word}"]
        return [f"spanmq {' '.join(SYNONYMS[word])}"] if word in SYNONYMS else []


class Program(CommandGroup):
    """The program, whose errors end here: on stderr, as text or with --json as JSON."""

    def __init__(self, **settings: Any) -> None:
        commands = Lazy(lambda: (*VERBS, *NOUNS), lambda name: _verb(name) if name in VERBS else _noun(name))
        super().__init__(**{**settings, "commands": commands})
        self._as_json = False
        self._command = ""

    def main(self, args: Sequence[str] | None = None, *more: Any, **settings: Any) -> Any:
        """Run the program and end it with an exit code."""
        words = in_our_words(list(sys.argv[1:] if args is None else args))
        self._as_json = wants_json(words)
        # Without its arguments, of which some are secret.
        self._command = " ".join(words[: 2 if words and words[0] in NOUNS else 1])
        if not self._as_json:
            return super().main(words, *more, **settings)
        try:
            sys.exit(super().main(words, *more, **{**settings, "standalone_mode": False}) or OK)
        except UsageError as error:
            say(in_json("usage", error.format_message()))
            sys.exit(USAGE)

    def invoke(self, ctx: Any) -> Any:
        """Run one command."""
        from spanmq.client.call import ACTOR

        ACTOR.set(f"command, spanmq {self._command}")
        with reported(as_json=self._as_json):
            return super().invoke(ctx)

    def format_commands(self, _: Any, formatter: Any) -> None:
        """Write the commands into help."""
        self.write_commands(formatter, "Commands", VERBS)
        self.write_commands(formatter, "Nouns, each with commands of its own", NOUNS)


def in_our_words(words: list[str]) -> list[str]:
    """Return the words of a command line with a synonym replaced, and `help …` as `… --help`."""
    first, rest = words[0] if words else "", words[1:]
    if first == "help":
        return [*in_our_words(rest), "--help"]
    if (phrase := PHRASES.get(tuple(words[:2]))) is not None:  # no handler has such a name
        return [*phrase, *words[2:]]
    return [*SYNONYMS.get(first, (first,)), *rest] if words else words


def _verb(name: str) -> Any:
    module = VERBS[name]
    if (extra := _not_installed(module)) is not None:
        return _unavailable(name, extra)
    return _command(name, _functions("", module, "commands")[name])


def _noun(noun: str) -> CommandGroup:
    module, attribute, summary = NOUNS[noun]
    extra = _not_installed(module)
    # Without the distribution: what spanmq.doors describes.
    by_hand = "" if extra else module
    commands: Any = Lazy(
        lambda: _functions(noun, by_hand, attribute),
        lambda name: _command(name, _functions(noun, by_hand, attribute)[name]),
    )
    return CommandGroup(
        name=noun,
        commands=commands,
        extra=extra,
        help=summary if extra is None else f"{summary[:-1]}; most need pip install 'spanmq[{extra}]'.",
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings=HELP,
    )


@cache
def _functions(noun: str, module: str, attribute: str) -> dict[str, Callable[..., None]]:
    """Return the functions of a noun's commands by name: those of a module, and those that spanmq.doors describes."""
    from spanmq.doors import DOORS

    functions: dict[str, Callable[..., None]] = {}
    if module:
        path = module if "." in module else f"spanmq.cli.{module}"
        functions |= getattr(import_module(path), attribute).functions
    # The methods are imported only for a noun that needs them.
    if (noun or not module) and any(
        door.name.rpartition(" ")[0] == noun and door.shell is not None for door in DOORS
    ):
        from spanmq.cli.doors import derived

        functions |= derived(noun)
    return {name: functions[name] for name in sorted(functions)}


def _not_installed(module: str) -> str | None:
    """Return the extra that installs the distribution of a module, if that is not installed."""
    package, _, within = module.partition(".")
    return package.removeprefix("spanmq_") if within and find_spec(package) is None else None


def _unavailable(name: str, extra: str) -> Any:
    """Return a command in place of one that is not installed: whatever its arguments, it says what to install."""

    def unavailable() -> None:
        raise _missing(name, extra)

    unavailable.__doc__ = f"Not installed: pip install 'spanmq[{extra}]'."
    settings = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    unavailable.__dict__["context_settings"] = settings
    return _command(name, unavailable)


def _missing(name: str, extra: str) -> Exception:
    from spanmq.errors import ExtraNotInstalledError

    return ExtraNotInstalledError(f"{name} is a command of spanmq-{extra}", extra=extra)


def _command(name: str, function: "Function") -> Any:
    """Return a command for a function; lines of its docstring that begin with `$ ` are the examples."""
    lines = (function.__doc__ or "").splitlines()
    examples = [line.strip() for line in lines if line.strip().startswith("$ ")]
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(
        name,
        help="\n".join(line for line in lines if line.strip() not in examples).rstrip(),
        # \b keeps the lines as they are.
        epilog="\n".join(
            ["\b", "Examples:" if examples[1:] else "Example:", *(f"  {example}" for example in examples)]
        ),
        context_settings=HELP | getattr(function, "context_settings", {}),
    )(function)
    return typer.main.get_command(alone)


def _print_version(is_set: bool) -> None:
    if is_set:
        typer.echo(f"spanmq {__version__}")
        raise typer.Exit


def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Parse the options before the command."""


app = typer.Typer(
    cls=Program,
    callback=_common,
    no_args_is_help=True,
    help="A message queue inside PostgreSQL.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=HELP,
)
