"""The registry of commands: a command is a function, and those that call the client share one decorator.

Typer makes a command of a function only when it is used (spanmq.cli.app): making all would take too long.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import Field, fields, is_dataclass
from operator import getitem
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import typer

from spanmq.cli.connect import client
from spanmq.cli.option import AsJson, Dsn
from spanmq.cli.output import Output

Function = TypeVar("Function", bound=Callable[..., Any])


class Commands:
    """The commands of a noun, or some of the program itself, by their names."""

    def __init__(self) -> None:
        self.functions: dict[str, Callable[..., None]] = {}

    def command(self, name: str | None = None, *, passes_on: bool = False) -> Callable[[Function], Function]:
        """Register a function whose parameters are the arguments and options of a command.

        `**options: Unpack[Options]` stands for the options of a TypedDict, which several commands share, a
        parameter `options: Options` for the fields of a dataclass that have the metadata of an option. The
        docstring is the help; its lines that begin with `$ ` are the examples. A command that `passes_on`
        finds unknown arguments and options in `ctx.args`.
        """

        def register(function: Function) -> Function:
            command = _with_options(function)
            if passes_on:
                settings = {"allow_extra_args": True, "ignore_unknown_options": True}
                command.__dict__["context_settings"] = settings
            self.functions[name or function.__name__.replace("_", "-")] = command
            return function

        return register

    def verb(
        self, name: str | None = None, *, columns: Sequence[str] = (), empty: str = "no records"
    ) -> Callable[[Function], Function]:
        """Register a function of a client and such parameters; the command prints what it returns.

        The command has --dsn and --json too. `columns` and `empty` are those of `Output.show`.
        """

        def register(function: Function) -> Function:
            command = _with_client(function, columns, empty)
            self.command(name or function.__name__.replace("_", "-"))(command)
            return function

        return register


def _with_client(function: Callable[..., Any], columns: Sequence[str], empty: str) -> Callable[..., None]:
    def command(dsn: Dsn = None, as_json: AsJson = False, **arguments: Any) -> None:
        output = Output(as_json=as_json)
        with client(dsn) as opened:
            output.show(function(opened, **arguments), columns=columns, empty=empty)

    dsn, as_json, _ = inspect.signature(command).parameters.values()
    set_parameters(command, [*_parameters(function)[1:], dsn, as_json])
    command.__doc__ = function.__doc__
    return command


def _with_options(function: Callable[..., Any]) -> Callable[..., None]:
    """Return a function that takes the fields of a dataclass, and the members of a TypedDict, one by one."""
    parameters = inspect.signature(function).parameters.values()
    kinds: dict[str, Any] = {
        parameter.name: parameter.annotation for parameter in parameters if is_dataclass(parameter.annotation)
    }
    if not kinds and not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return function

    def command(**arguments: Any) -> None:
        for name, kind in kinds.items():
            arguments[name] = kind(**{option.name: arguments.pop(option.name) for option in _options(kind)})
        function(**arguments)

    command.__name__, command.__doc__ = function.__name__, function.__doc__
    set_parameters(command, _parameters(function))
    return command


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a function, with those of a TypedDict or a dataclass one by one."""
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            [options] = get_args(parameter.annotation)
            parameters += [_option(name, kind) for name, kind in options.__annotations__.items()]
        elif is_dataclass(parameter.annotation):
            hints = get_type_hints(parameter.annotation)
            for one in _options(parameter.annotation):
                told = dict(one.metadata)
                # Without its name, a truth value would have an option --no-… too.
                flags = told.pop("flags", ()) or (f"--{one.name.replace('_', '-')}",)
                annotation: Any = getitem(Annotated, (hints[one.name], typer.Option(*flags, **told)))
                parameters.append(_option(one.name, annotation, one.default))
        else:
            parameters.append(parameter)
    return parameters


def _options(kind: Any) -> list[Field[Any]]:
    """Return the fields of a dataclass that are options: those with metadata."""
    return [option for option in fields(kind) if option.metadata]


def _option(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def set_parameters(function: Callable[..., Any], parameters: Sequence[inspect.Parameter]) -> None:
    """Set what Typer takes for the parameters of a function."""
    function.__dict__["__signature__"] = inspect.Signature(parameters)
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
