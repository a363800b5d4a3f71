"""Write the pages of docs/reference that the code determines; `--check` only compares, for CI."""

from __future__ import annotations

import argparse
import difflib
import inspect
import logging
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from itertools import groupby
from pathlib import Path
from typing import Any, get_args

import spanmq
import spanmq.push
import spanmq.tasks
import spanmq.testing
from spanmq import errors
from spanmq.client.namespace import Namespace
from spanmq.worker import event, log
from spanmq.worker.measures import Measures
from spanmq_service import measures
from spanmq_service.app import TABLES, description
from spanmq_service.guard import gate
from spanmq_service.settings import Settings

ROOT = Path(__file__).parent.parent
SQL = ROOT / "src/spanmq/sql/functions"
REFERENCE = ROOT / "docs/reference"
MARK = "<!-- Made by tools/generate_reference.py: change the {source}. -->\n"

FUNCTION = re.compile(
    r"(?P<header>(?:^--[^\n]*\n)*)"
    r"create or replace function (?P<schema>pgmq|spanmq|spanmq_call)\.(?P<name>\w+)\((?P<arguments>[^)]*)\)\s*"
    r"returns (?P<result>.*?)\s*(?:\n| )language ",
    re.MULTILINE | re.DOTALL,
)


def escape(text: str) -> str:
    """Return text as Markdown that shows it; code in backquotes stays as it is, but for the bars of tables."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part.replace("|", r"\|") if index % 2 else re.sub(r"([\\*_<>\[\]|])", r"\\\1", part)
        for index, part in enumerate(parts)
    )


def paragraphs(header: str) -> Iterator[str]:
    """Yield the paragraphs and lists of a comment: a line indented by two is an item, one indented further goes on."""
    blocks = list[tuple[bool, str]]()
    for line in re.sub(r"^--( |$)", "", header.strip(), flags=re.MULTILINE).split("\n"):
        is_item = line.startswith("  ")
        if blocks and line and (line.startswith("   ") or not (is_item or blocks[-1][0])):
            blocks[-1] = (blocks[-1][0], f"{blocks[-1][1]} {line.strip()}")
        elif line:
            blocks.append((is_item, line.strip()))
    for is_list, group in groupby(blocks, lambda block: block[0]):
        texts = [f"- {item_of(text)}\n" if is_list else f"{escape(text)}\n" for _, text in group]
        yield "".join(texts) if is_list else "\n".join(texts)


def item_of(text: str) -> str:
    """Return an item: its names, two spaces and the text."""
    names, _, rest = text.partition("  ")
    listed = ", ".join(f"`{name}`" for name in names.split(", "))
    return f"{listed}: {escape(rest.strip())}" if rest else escape(text)


def verbs() -> dict[tuple[str, str], str]:
    """Return the verb of each function that needs one, by schema and name."""
    text = (SQL / "entries.sql").read_text("utf-8")
    result = {}
    for verb, schema, names in re.findall(r"\('(\w+)',\s+'(\w+)',\s+'([^{}]*?)'\)", text):
        listed = [name.removeprefix("+").partition(":")[0] for name in names.split()]
        result.update({(schema, name): f"`{verb}` on the queue" for name in listed})
    for verb, schema, names in re.findall(r"\((?:'(\w+)'|null),\s+'(\w+)',\s+'\{(.*?)\}'", text, re.DOTALL):
        need = f"`{verb}` on all queues" if verb else "ownership of the schema"
        result.update({(schema, name): need for name in re.findall(r"\w+", names)})
    return result


def sql_functions() -> dict[str, dict[str, list[re.Match[str]]]]:
    """Return the overloads of each public function, by schema and name."""
    needs = verbs()
    entry = {name: schema for schema, name in needs if schema != "spanmq_call"}
    result: dict[str, dict[str, list[re.Match[str]]]] = {"pgmq": {}, "spanmq": {}}
    for path in sorted(SQL.rglob("*.sql")):
        for overload in FUNCTION.finditer(path.read_text("utf-8")):
            schema = (
                entry.get(overload["name"]) if overload["schema"] == "spanmq_call" else overload["schema"]
            )
            if schema and "trigger" not in overload["result"]:
                result[schema].setdefault(overload["name"], []).append(overload)
    return result


def signature(name: str, overload: re.Match[str]) -> str:
    """Return how an overload is called, without the arguments that its entry fills in."""
    arguments = [
        " ".join(argument.split())
        for argument in re.split(r",(?![^{]*\})", overload["arguments"])
        if argument.strip()
    ]
    inner = ("of_queue ", "by_role ", "of_caller ")
    arguments = [
        argument
        for argument in arguments
        if overload["schema"] != "spanmq_call" or not argument.startswith(inner)
    ]
    result = " ".join(overload["result"].split())
    line = f"{name}({', '.join(arguments)}) returns {result}"
    if len(line) <= 110:
        return line
    return f"{name}(\n" + ",\n".join(f"    {argument}" for argument in arguments) + f"\n) returns {result}"


def sql_page() -> Iterator[str]:
    yield MARK.format(source="headers in src/spanmq/sql/functions") + "# SQL functions\n"
    yield (
        "The texts are also comments in the database: `\\df+ spanmq.*` shows them. Schema `pgmq` has\n"
        "[PGMQ's interface](../guides/pgmq.md), and schema `spanmq` all other functions.\n\n"
        "*Privilege* is the [verb](../operations/privileges.md) that the caller needs. A function with the name of a\n"
        "queue as an argument raises 42P01 if the queue does not exist or the caller may not see it, and 42501 if the\n"
        "caller lacks the privilege on it.\n"
    )
    needs = verbs()
    for schema, functions in sql_functions().items():
        yield f"## Schema {schema}\n"
        for name, overloads in sorted(functions.items()):
            yield f"### {schema}.{name}\n"
            yield "```text\n" + "\n".join(signature(name, overload) for overload in overloads) + "\n```\n"
            for header in dict.fromkeys(overload["header"] for overload in overloads if overload["header"]):
                yield from paragraphs(header)
            if need := needs.get((schema, name)):
                yield f"Privilege: {need}.\n"


def summary(kind: type) -> str:
    """Return the docstring of a class in one line."""
    return escape(" ".join(inspect.cleandoc(kind.__doc__ or "").split()))


def errors_page() -> Iterator[str]:
    yield MARK.format(source="docstrings in src/spanmq/errors.py") + "# Errors\n"
    yield (
        "All are in `spanmq.errors` and are kinds of `SpanmqError`, which keeps the server's `sqlstate`, `detail` and\n"
        "`hint`, the `queue` and the `function` of the call, and the driver's exception as `__cause__`. *Code* is the\n"
        "`code` of the error, also in the answers of the [service](../guides/service.md#errors) and with `--json`.\n"
    )
    states: dict[str, set[str]] = {"server_exhausted": {"53…"}, "connection_lost": {"08…", "57P…"}}
    rows = [(state, *error) for state, error in errors._OF_SQLSTATE.items()]
    rows += [(state, kind, code) for state, _, kind, code in errors._OF_TEXT]
    for state, kind, code in rows:
        states.setdefault(code or errors.code_of(kind), set()).add(state)
    yield "| error | SQLSTATE | code | meaning |\n|---|---|---|---|"
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.SpanmqError):
            base = kind.__mro__[1].__name__ if kind.__mro__[1] not in (errors.SpanmqError, Exception) else ""
            meaning = summary(kind) + (f" A kind of `{base}`." if base else "")
            others = {code: escape(said) + "." for code, said in vars(kind).get("codes", {}).items()}
            for code, said in ({errors.code_of(kind): meaning} | others).items():
                shown = ", ".join(sorted(states.get(code, ()), key=lambda state: (state[:2] != "MQ", state)))
                yield f"| `{kind.__name__}` | {shown} | `{code}` | {said[0].upper() + said[1:]} |"


def events_page() -> Iterator[str]:
    yield MARK.format(source="docstrings in src/spanmq/worker/event.py") + "# Events of the worker\n"
    yield (
        "Classes of `spanmq.worker.event`. A [worker](../guides/worker.md#events) passes each event to its observers;\n"
        "the log shows the name in lower case and the fields.\n"
    )
    yield "| event | in the log | level | fields | meaning |\n|---|---|---|---|---|"
    for kind in get_args(event.Event):
        level = logging.getLevelName(log.LEVELS.get(kind, logging.INFO)).lower()
        if kind is event.MessageSettled:
            level = "debug if acked or released, else warning"
        named = ", ".join(f"`{field.name}`" for field in fields(kind))
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()
        yield f"| `{kind.__name__}` | `{name}` | {level} | {named} | {summary(kind)} |"


def families() -> Iterator[tuple[str, Any]]:
    """Yield each metric with the part of the product that exports it."""
    settings = Settings(dsn="postgresql:///none")
    for family in measures.Measures(gate.Gate(settings)).registry.collect():
        yield "Service", family
    for family in (*measures.of_queues(()), *measures.of_receivers(())):
        yield "Service", family
    for family in Measures().registry.collect():
        yield "Worker", family


LABELS = {
    "spanmq_requests": "method, route, status",
    "spanmq_request_seconds": "route",
    "spanmq_receiver_held": "queue, receiver",
    "spanmq_receiver_seen_timestamp_seconds": "queue, receiver",
    "spanmq_worker_messages_settled": "queue, outcome",
    "spanmq_worker_messages_failed": "queue, category",
    "spanmq_worker_breaker": "queue, spanmq_worker_breaker",
    "spanmq_worker_connections_broken": "",
}


def metrics_page() -> Iterator[str]:
    yield MARK.format(source="texts of the metrics") + "# Metrics\n"
    yield (
        "The service exports its metrics at `/metrics` ([service](../guides/service.md#metrics)), a worker with\n"
        "`--metrics-port` ([worker](../guides/worker.md#metrics)). [Monitoring](../operations/monitoring.md) has\n"
        "alert rules and a dashboard.\n"
    )
    part = ""
    for owner, family in families():
        if family.name.endswith("_created"):
            continue
        if owner != part:
            part = owner
            yield f"\n## {owner}\n\n| metric | type | labels | meaning |\n|---|---|---|---|"
        name = family.name + ("_total" if family.type == "counter" else "")
        default = "queue" if "queue" in name or "messages" in name or owner == "Worker" else ""
        labels = LABELS.get(family.name, default)
        yield f"| `{name}` | {family.type} | {labels} | {escape(family.documentation)} |"


def http_page() -> Iterator[str]:
    yield MARK.format(source="routes in service/src/spanmq_service") + "# HTTP routes\n"
    yield (
        "The routes of the [service](../guides/service.md). `/openapi.json` of a running service describes their\n"
        "bodies and answers, `/docs` shows the same as a page. *Verb* is the verb that\n"
        "the [token](../guides/service.md#tokens) needs.\n"
    )
    paths = description()["paths"]
    yield "| route | verb | effect |\n|---|---|---|"
    for operation in (one for table in (TABLES[-1], *TABLES[:-1]) for one in table.operations):
        about = paths[operation.path][operation.method.lower()]["description"]
        about = " ".join(about.split("\n\n")[0].split())
        verb = "none" if operation.scope is None else operation.scope.verb
        yield f"| `{operation.method} {operation.path}` | {verb} | {escape(about)} |"


def python_page() -> Iterator[str]:
    yield MARK.format(source="list in it") + "# Python\n"
    yield (
        "Signatures and docstrings, as the code has them. `AsyncClient` and `AsyncShardedQueue` have the methods of\n"
        "`Client` and `ShardedQueue`, to be awaited. The guides are [the client](../guides/client.md),\n"
        "[the worker](../guides/worker.md), [tasks](../guides/tasks.md) and [testing](../guides/testing.md).\n"
    )
    for title, module in MODULES.items():
        yield f"## {title}\n"
        names = [name for name in module.__all__ if not name.startswith("Async")]
        if module is spanmq:
            names = [name for name in names if name not in spanmq.tasks.__all__]
        for name in names:
            yield f"::: {module.__name__}.{name}\n"
            if name == "Client":
                for path, part in parts_of(module.Client, "client"):
                    yield f"::: spanmq.client.{part.__qualname__}"
                    yield f"    options:\n      heading: {path}\n      toc_label: {path}\n"


def parts_of(value: type, path: str) -> Iterator[tuple[str, type]]:
    """Yield a client's namespaces, and theirs, as a program calls them, with their classes."""
    for name, part in sorted(vars(value).items()):
        if isinstance(part, Namespace):
            yield f"{path}.{name}", part.kind
            yield from parts_of(part.kind, f"{path}.{name}")


MODULES: dict[str, Any] = {
    "Client and worker": spanmq,
    "Tasks": spanmq.tasks,
    "Push": spanmq.push,
    "Testing": spanmq.testing,
}
PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "sql.md": sql_page,
    "errors.md": errors_page,
    "events.md": events_page,
    "metrics.md": metrics_page,
    "http.md": http_page,
    "python.md": python_page,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; exit with 1 if a page is stale")
    check = parser.parse_args().check
    stale = 0
    for name, make in PAGES.items():
        page = REFERENCE / name
        text = "\n".join(make()).rstrip() + "\n"
        written = page.read_text("utf-8") if page.exists() else ""
        if text == written:
            continue
        if not check:
            page.write_text(text, "utf-8")
            continue
        stale = 1
        old, new = written.splitlines(keepends=True), text.splitlines(keepends=True)
        sys.stdout.writelines(difflib.unified_diff(old, new, f"{name} as committed", "as generated"))
    return stale


if __name__ == "__main__":
    sys.exit(main())
