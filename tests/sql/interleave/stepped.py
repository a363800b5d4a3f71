"""Functions of the schema with a step before each statement that reads or writes shared state.

A step waits until the controller of the session lets it go (machine.py), so that a test decides in which order the
statements of several sessions run. PL/pgSQL takes a new snapshot for each statement, so these are the places at which
another session can come between.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psycopg

# Tables whose rows several sessions read and write.
SHARED = re.compile(
    r"\bspanmq_core\.(state|later|unsettled|group_lock|lock|bound|sending|queue|batch|batch_part|breaker"
    # The last two are functions that become a part of the statement.
    r"|dead_letter|failure|dedup|subscription|rows_of|next_groups)\b|\bpgmq\.[qa]_"
)
TOKEN = re.compile(
    r"--[^\n]*|/\*.*?\*/|[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'"
    r"|\$(\w*)\$.*?\$\1\$|[A-Za-z_]\w*|<<|>>|:=|\s+|.",
    re.DOTALL,
)
STEP = "perform spanmq_step.step(); "
# A session waits for one of two locks in turn, so that the controller, which holds both, can take one back while the
# session goes on to the other. Session locks, and not variables, know which one is next: a rollback leaves them.
SCHEMA = """
create schema spanmq_step;
grant usage on schema spanmq_step to public;
create function spanmq_step.step() returns void language plpgsql
set client_min_messages = error set lock_timeout = 0 as $$
declare
    me int := nullif(current_setting('spanmq_step.session', true), '');
    is_second boolean;
begin
    if me is null then
        return;
    end if;
    is_second := pg_advisory_unlock(me, 2);
    perform pg_advisory_lock(me, is_second::int);
    perform pg_advisory_unlock(me, is_second::int);
    if not is_second then
        perform pg_advisory_lock(me, 2);
    end if;
end $$;
"""
FUNCTIONS = """
select p.oid::regprocedure::text, pg_get_functiondef(p.oid), p.prosrc
from pg_proc p join pg_language l on l.oid = p.prolang
where p.pronamespace in ('spanmq_core'::regnamespace, 'spanmq_call'::regnamespace) and l.lanname = 'plpgsql'
    and p.prorettype <> 'trigger'::regtype
order by 1
"""


@dataclass(frozen=True, slots=True)
class Token:
    """A word or sign of a function's body, in lower case, and where it begins."""

    text: str
    start: int
    end: int


def tokens_of(source: str) -> list[Token]:
    """Return the tokens of a text, without white space and comments."""
    return [
        Token(found.group().lower(), found.start(), found.end())
        for found in TOKEN.finditer(source)
        if not found.group().isspace() and not found.group().startswith(("--", "/*"))
    ]


class Body:
    """A function's body in PL/pgSQL, read from statement to statement."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._tokens = tokens_of(source)
        self._place = 0
        # Where statements begin that read or write shared state.
        self.places: list[int] = []

    def read(self) -> None:
        """Read the whole body, behind its options (`#variable_conflict …`)."""
        self._until("declare", "begin")
        self._block()

    @property
    def _next(self) -> str:
        return self._tokens[self._place].text if self._place < len(self._tokens) else ""

    def _take(self, *texts: str) -> None:
        if self._next not in texts:
            around = self._source[self._tokens[max(self._place - 5, 0)].start :][:120]
            raise ValueError(f"expected {texts}, got {self._next!r} in {around!r}")
        self._place += 1

    def _until(self, *words: str) -> None:
        """Go to the first of these words that is in no parentheses and in no CASE expression."""
        depth = 0
        while depth or self._next not in words:
            if not self._next:
                raise ValueError(f"no {words}")
            if self._next in {"(", "[", "case"}:
                depth += 1
            elif self._next in {")", "]", "end"}:
                depth -= 1
            self._place += 1

    def _block(self) -> None:
        if self._next == "declare":
            self._until("begin")
        self._take("begin")
        self._statements()
        if self._next == "exception":
            self._place += 1
            while self._next == "when":
                self._until("then")
                self._place += 1
                self._statements()
        self._take("end")
        self._until(";", "")
        self._place += 1

    def _statements(self) -> None:
        while self._next not in {"end", "else", "elsif", "elseif", "when", "exception", ""}:
            self._statement()

    def _statement(self) -> None:
        first = self._tokens[self._place]
        if self._next == "<<":
            self._until(">>")
            self._place += 1
        kind = self._next
        if kind in {"declare", "begin"}:
            self._block()
            return
        header_to: Callable[[], None] = {
            "if": lambda: self._until("then"),
            "for": lambda: self._until("loop"),
            "foreach": lambda: self._until("loop"),
            "while": lambda: self._until("loop"),
            "loop": lambda: None,
        }.get(kind, lambda: self._until(";"))
        if kind == "case":
            self._place += 1
            header_to = lambda: self._until("when")  # noqa: E731
        header_to()
        if SHARED.search(self._source[first.start : self._tokens[self._place].end]):
            self.places.append(first.start)
        if kind == "if":
            self._conditions("then", "if", "elsif", "elseif")
        elif kind == "case":
            self._conditions("then", "case", "when")
        elif kind in {"for", "foreach", "while", "loop"}:
            self._take("loop")
            self._statements()
            self._take("end")
            self._take("loop")
            self._until(";")
            self._place += 1
        else:
            self._take(";")

    def _conditions(self, before: str, closed_by: str, *more: str) -> None:
        """Read the branches of IF or CASE."""
        if closed_by == "case":
            self._until(before)
        self._take(before)
        self._statements()
        while self._next in more:
            self._until(before)
            self._take(before)
            self._statements()
        if self._next == "else":
            self._place += 1
            self._statements()
        self._take("end")
        self._take(closed_by)
        self._take(";")


def places_of(source: str) -> list[int]:
    """Return where the statements of a body begin that read or write shared state."""
    body = Body(source)
    body.read()
    return body.places


def with_steps(source: str) -> str:
    """Return a body with a step before each of these statements."""
    for place in reversed(places_of(source)):
        source = source[:place] + STEP + source[place:]
    return source


def stepped(connection: psycopg.Connection[Any]) -> Iterator[str]:
    """Yield the definitions of all functions of a database that have steps, with them."""
    for _, definition, source in connection.execute(FUNCTIONS).fetchall():
        changed = with_steps(source)
        if changed != source:
            yield definition.replace(source, changed)


def install_steps(connection: psycopg.Connection[Any]) -> int:
    """Write steps into the functions of a database; return how many functions have some."""
    connection.execute(SCHEMA.encode())
    definitions = list(stepped(connection))
    for definition in definitions:
        connection.execute(definition.encode())
    return len(definitions)


def plant(connection: psycopg.Connection[Any], function: str, old: str, new: str) -> None:
    """Put a fault into a function: replace a text of its body. Before `install_steps`."""
    rows = connection.execute(
        "select pg_get_functiondef(p.oid) from pg_proc p where p.proname = %s"
        " and p.pronamespace in ('spanmq_core'::regnamespace, 'spanmq_call'::regnamespace)",
        [function],
    ).fetchall()
    [definition] = [each for (each,) in rows if old in each]
    connection.execute(definition.replace(old, new).encode())
