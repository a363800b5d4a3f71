"""Routes that only call a method of the client: their arguments, answers and words are the method's (spanmq.doors)."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import NoneType
from typing import Annotated, Any, Final, get_args

from msgspec import Struct, defstruct
from msgspec.structs import asdict
from starlette.responses import Response

from spanmq.client.door import REQUIRED, Parameter, bound, method_of, parameters_of, result_of, words_of
from spanmq.doors import DOORS, Door, Http
from spanmq.model import Message
from spanmq_service.backend import Backend
from spanmq_service.guard.access import Scope
from spanmq_service.guard.caller import Caller
from spanmq_service.http.json_text import messages_of, reply
from spanmq_service.routes.parts import KINDS, WORDS, ReceivedMessages, RequestModel, answer
from spanmq_service.routes.table import Call, Table

# The name of the parameter that is the body of a request.
BODY: Final = "request_body"


def add_doors(table: Table, *nouns: str) -> None:
    """Add the routes of the doors of these nouns to a table."""
    for door in DOORS:
        if door.name.partition(" ")[0] in nouns:
            for route in door.routes:
                method, path = route.route.split(" ")
                kind = _answer_of(door, route)
                add = table.add(
                    method, path, answer=kind, status=route.status, errors=route.errors, tag=route.tag
                )
                add(_call_of(door, route))


def doors_of(tag: str, *nouns: str) -> Table:
    """Return a table of the routes of the doors of these nouns alone."""
    table = Table(tag)
    add_doors(table, *nouns)
    return table


def _call_of(door: Door, route: Http) -> Call:
    """Return a function whose parameters are what it takes of a request."""
    taken = _taken(door, route)
    in_body = {
        shown: parameter
        for shown, parameter in taken.items()
        if route.body[0] and f"{{{shown}}}" not in route.route
    }
    kinds = {shown: _kind_of(route, shown, parameter) for shown, parameter in taken.items()}
    body = _struct(
        *route.body, tuple((shown, kinds[shown], parameter.default) for shown, parameter in in_body.items())
    )
    _, result = _names_of(route)
    is_of_messages = result_of(_method_of(door)) == list[Message]
    is_about_queues = any(parameter.name == "queues" for parameter in parameters_of(_method_of(door)))

    async def call(backend: Backend, caller: Caller, **values: Any) -> Response:
        if in_body:
            values |= asdict(values.pop(BODY) or body())
        arguments = {parameter.name: values[shown] for shown, parameter in taken.items()}
        if route.of == "filtered" and is_about_queues:
            arguments["queues"] = await backend.queues_of(caller)
        value = await bound(backend.client, door.method)(**arguments)
        if is_of_messages:
            return messages_of(value)
        if route.of == "filtered" and not is_about_queues and isinstance(value, list):
            value = caller.seen(value)
        echo = {name: values[name] for name in route.echo}
        return reply(route.status, **{**echo, **({result: value} if result else {}), **route.also})

    parameters = [
        _parameter(shown, kinds[shown], parameter.default)
        for shown, parameter in taken.items()
        if shown not in in_body
    ]
    if any(parameter.is_required for parameter in in_body.values()):
        parameters.append(_parameter(BODY, body))
    elif in_body:
        parameters.append(_parameter(BODY, body | None, None))
    parameters += [_parameter("backend", Backend), _parameter("caller", Annotated[Caller, _scope_of(route)])]
    call.__name__, call.__doc__ = route.name, _words_of(door, route)
    call.__dict__["__signature__"] = inspect.Signature(parameters)
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def _method_of(door: Door) -> Callable[..., Any]:
    return method_of(door.method, is_async=True)


def _taken(door: Door, route: Http) -> dict[str, Parameter]:
    """Return the parameters that a request has, by their names in it. A queue is in the path, and never elsewhere."""
    hidden = {*route.without, *(() if "{queue}" in route.route else ("queue",))}
    if route.of == "filtered":
        hidden.add("queues")
    parameters = [parameter for parameter in parameters_of(_method_of(door)) if parameter.name not in hidden]
    taken = {route.names.get(parameter.name, parameter.name): parameter for parameter in parameters}
    # What is in the path is never missing.
    return {
        shown: replace(parameter, default=REQUIRED) if f"{{{shown}}}" in route.route else parameter
        for shown, parameter in taken.items()
    }


def _kind_of(route: Http, shown: str, parameter: Parameter) -> Any:
    """Return the type of an argument: that of its name, else one that the parameter's own allows."""
    kind: Any = WORDS.get(route.words.get(shown, shown)) or KINDS[parameter.simple_kind]
    # Of an Annotated, the first argument is the type itself.
    inner = get_args(kind)[0] if get_args(kind) else kind
    may_be_null = inner is Any or NoneType in get_args(inner)
    return kind if may_be_null or parameter.default is not None else kind | None


def _parameter(name: str, kind: Any, default: Any = REQUIRED) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


@cache
def _struct(name: str, about: str, members: tuple[tuple[str, Any, Any], ...]) -> Any:
    """Return the type of a body; routes that name the same share it."""
    fields = [
        (shown, kind) if default is REQUIRED else (shown, kind, default) for shown, kind, default in members
    ]
    return defstruct(name, fields, bases=(RequestModel,), namespace={"__doc__": about}, kw_only=True)


def _names_of(route: Http) -> tuple[str, str]:
    """Return the names of the answer's type and of the result in it: `Leases.leases`, or `leases` for both."""
    kind, _, result = route.answer.partition(".")
    return (kind, result) if result or kind[0].isupper() else (kind.capitalize(), kind)


def _answer_of(door: Door, route: Http) -> type[Struct]:
    """Return the type of the answer."""
    kind, result = _names_of(route)
    method = _method_of(door)
    taken = _taken(door, route)
    if result_of(method) == list[Message]:
        return ReceivedMessages
    members = {name: taken[name].kind for name in route.echo}
    if result:
        members[result] = result_of(method)
    return answer(kind, **members, **{name: type(value) for name, value in route.also.items()})


def _scope_of(route: Http) -> Scope:
    verb = route.needs or ("look" if route.route.startswith("GET ") else "manage")
    return Scope(verb, route.of or ("path" if "{queue}" in route.route else "everything"))


def _words_of(door: Door, route: Http) -> str:
    """Return the words of a method, without those about arguments that a request doesn't have by this name."""
    if route.about:
        return route.about
    method, taken = _method_of(door), _taken(door, route)
    first, *rest = words_of(method, queue="one" if "{queue}" in route.route else "all")
    others = [f"`{parameter.name}`" for parameter in parameters_of(method) if parameter.name not in taken]
    more = [sentence for sentence in rest if not any(name in sentence for name in others)]
    return f"{first}\n\n{' '.join(more)}".rstrip()
