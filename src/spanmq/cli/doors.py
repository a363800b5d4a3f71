"""Commands that only call a method of the client: their options and words are the method's (spanmq.doors)."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from inspect import Parameter as Inspected
from operator import getitem
from typing import Annotated, Any, get_args

import typer

from spanmq.cli.option import EXAMPLES, WORDS, raw_json, time_option
from spanmq.cli.output import Done, number_of
from spanmq.cli.verbs import Commands, set_parameters
from spanmq.client.door import REQUIRED, Parameter, bound, method_of, parameters_of, result_of, words_of
from spanmq.doors import DOORS, Door, Shell


class Count(int):
    """A number that is written with its noun: `{rejected:message}`."""

    def __format__(self, noun: str) -> str:
        """Return it with its noun."""
        return number_of(int(self), noun) if noun else str(int(self))


def derived(noun: str) -> dict[str, Callable[..., None]]:
    """Return the commands of a noun, or those of the program (""), by their names."""
    commands = Commands()
    for door in DOORS:
        start, _, verb = door.name.rpartition(" ")
        if start == noun and door.shell is not None:
            listed = f"{noun}s" if verb == "list" else verb.removeprefix("list-")
            empty = door.shell.empty or f"no {listed.replace('-', ' ')}"
            commands.verb(verb, columns=door.shell.columns, empty=empty)(_call_of(door, door.shell))
    return commands.functions


def _call_of(door: Door, shell: Shell) -> Callable[..., Any]:
    """Return a function of a client, with the parameters and the words of a method."""
    method = method_of(door.method)
    parameters = parameters_of(method)

    def call(client: Any, **arguments: Any) -> Any:
        result = bound(client, door.method)(**arguments)
        return _done(shell, parameters, arguments, result) if shell.done else result

    words = {parameter.name: _word_of(door, shell, parameter, method) for parameter in parameters}
    example = f"$ spanmq {door.name} {_example_of(door, shell)}".rstrip()
    call.__doc__ = f"{_help_of(shell, method, words)}\n\n{example}"
    kind = Inspected.POSITIONAL_OR_KEYWORD
    options = [
        Inspected(parameter.name, kind, default=parameter.default, annotation=words[parameter.name])
        for parameter in parameters
    ]
    # What may be missing follows the rest.
    options.sort(key=lambda parameter: parameter.default is not REQUIRED)
    set_parameters(call, [Inspected("client", kind), *options])
    return call


def _done(shell: Shell, parameters: Sequence[Parameter], arguments: Mapping[str, Any], result: Any) -> Done:
    echo = (
        [parameter.name for parameter in parameters if parameter.is_required]
        if shell.echo is None
        else shell.echo
    )
    named = {shell.result: result} if shell.result else {}
    sentence = shell.done if isinstance(shell.done, str) else shell.done[0 if result else 1]
    values = {
        name: Count(value) if type(value) is int else value for name, value in {**arguments, **named}.items()
    }
    return Done(
        sentence.format(**values), {**{name: arguments[name] for name in echo}, **named, **shell.also}
    )


def _word_of(door: Door, shell: Shell, parameter: Parameter, method: Callable[..., Any]) -> Any:
    """Return the argument or option for a parameter: that of its name, else one that its docstring describes."""
    for key in _keys_of(door, shell, parameter):
        if key in WORDS:
            return WORDS[key]
    is_argument = parameter.is_required and not parameter.is_named
    described = (sentence for sentence in words_of(method) if f"`{parameter.name}`" in sentence)
    about = _in_shell(next(described, ""), {})
    kind = parameter.simple_kind
    if kind is datetime or kind is Any:
        read = time_option(about) if kind is datetime else typer.Option(parser=raw_json, help=about)
        kind = Any
    elif is_argument:
        read = typer.Argument(metavar=parameter.name.upper(), help=about)
    else:
        read = typer.Option(f"--{parameter.name.replace('_', '-')}", help=about)
    return getitem(Annotated, (kind if parameter.default is not None else kind | None, read))


def _keys_of(door: Door, shell: Shell, parameter: Parameter) -> list[str]:
    """Return the names of what may be said about a parameter, the closest first."""
    name = shell.words.get(parameter.name, parameter.name)
    how = f"--{name}" if parameter.is_named else name if parameter.is_required else f"[{name}]"
    return [f"{door.name.partition(' ')[0]} {name}", how, name]


def _example_of(door: Door, shell: Shell) -> str:
    """Return the words of an example behind the name of the command."""
    if shell.example:
        return shell.example
    parameters = [parameter for parameter in parameters_of(method_of(door.method)) if not parameter.is_named]
    examples = (
        next((EXAMPLES[key] for key in _keys_of(door, shell, parameter) if key in EXAMPLES), "")
        for parameter in parameters
    )
    return " ".join(filter(None, examples))


def _help_of(shell: Shell, method: Callable[..., Any], words: Mapping[str, Any]) -> str:
    """Return the words of a method: the first sentence, and those that are not about one option, which has its own."""
    flags = {name: _flag_of(name, word) for name, word in words.items()}
    first, *rest = words_of(method)
    more = [
        _in_shell(sentence, {}) for sentence in rest if not any(f"`{name}`" in sentence for name in words)
    ]
    more += [shell.more] if shell.more else []
    more += ["--json has all fields."] if _is_cut(shell, result_of(method)) else []
    return f"{_in_shell(first, flags)}\n\n{' '.join(more)}".rstrip()


def _is_cut(shell: Shell, result: Any) -> bool:
    """Return whether a table leaves fields out."""
    return bool(shell.columns) and {field.name for field in fields(get_args(result)[0])} > {*shell.columns}


def _flag_of(name: str, word: Any) -> str:
    """Return how an option is written; an argument has its name."""
    [read] = word.__metadata__
    if isinstance(read, typer.models.ArgumentInfo):
        return name
    # The first one takes the place of a default.
    decls = [flag for flag in (read.default, *(read.param_decls or ())) if str(flag).startswith("--")]
    return str(decls[0]) if decls else f"--{name.replace('_', '-')}"


def _in_shell(sentence: str, flags: Mapping[str, str]) -> str:
    """Return a sentence about a method in the words of its command."""
    sentence = re.sub(r"^Return ", "Show ", sentence)
    sentence = re.sub(r"(?<=[;,] )return |(?<= and )return ", "print ", sentence)
    sentence = sentence.replace("None: ", "default: ")
    # `a queue` stays: only a value is written as its option.
    sentence = re.sub("(?<= a )`([^`]+)`", r"\1", sentence)
    return re.sub("`([^`]+)`", lambda code: flags.get(code[1], code[1]), sentence)
