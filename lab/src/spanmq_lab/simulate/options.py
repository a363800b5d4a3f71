"""The options of a run and their validation."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Self

from spanmq.errors import InvalidArgumentError
from spanmq_lab.simulate.work import Work

CLASSIC_DSN: Final = "postgres://test:test@localhost/test"
ENGINES: Final = ("spanmq", "polling", "polling-indexed")
PRODUCERS: Final = ("client", "spark")
CATEGORIES: Final = ("TRANSIENT", "DEPENDENCY", "PERMANENT", "BUSINESS", "UNKNOWN")
DEFAULT_COUNT: Final = 1_000
# A table of the classic kind has integer ids.
COUNT_MAX: Final = 2**31 - 1

_ABOVE_ZERO: Final = ("rate", "workers", "types", "keys", "batch", "send_batch", "producers", "max_attempts")
_SECONDS_ABOVE_ZERO: Final = ("kill_every", "duration", "lease", "idle_sleep", "patience")
_NOT_NEGATIVE: Final = ("skew", "backoff", "transaction")
_SHARES: Final = ("failure_rate", "poison")


def option(
    default: Any,
    words: str,
    metavar: str | None = None,
    *,
    shown: str | None = None,
    flags: Sequence[str] = (),
    classic: str = "",
) -> Any:
    """Return a field with what the command says of its option; a `classic` one may also have a single dash."""
    flags = (f"--{classic}", f"-{classic}") if classic else flags
    more = {"metavar": metavar} | ({} if shown is None else {"show_default": shown})
    return field(default=default, metadata={"flags": flags, "help": words, **more})


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a run; times are in seconds, shares between 0 and 1."""

    schema_file: Path | None = option(
        None,
        "Makes the table of the polling engines.",
        "FILE",
        shown="schema.sql here, else our own",
        classic="schema",
    )
    fill_db: int | None = option(
        None,
        "Number of messages; the run ends when they are handled.",
        "N",
        shown="1000, or all rows of --from",
        classic="fill-db",
    )
    rate: float | None = option(
        None,
        "Send while they are handled, at most this many a second.",
        "R",
        shown="none: all are written before",
        classic="rate",
    )
    workers: int = option(5, "Worker processes, shared among the types.", "W", classic="workers")
    delmsg: bool = option(
        False, "Delete what is handled, instead of marking (spanmq: archiving) it.", classic="delmsg"
    )
    engine: str = option(
        "spanmq", "spanmq (ordered groups), polling (the classic statement) or polling-indexed."
    )
    next_msg_file: Path | None = option(
        None,
        "The statement with which the polling engines claim.",
        "FILE",
        shown="next_msg.sql here, else our own",
        flags=("--next-msg",),
    )
    types: int = option(3, "Types of queue: type1, type2, …")
    keys: int = option(2, "Different order_ids in each type.")
    skew: float = option(0.0, "Zipf's exponent over the keys; 0: all are alike.")
    work: str = option(
        "uniform:1:10", "Milliseconds to handle one: uniform:1:10, fixed:5, exponential:5, lognormal:5:1."
    )
    batch: int = option(32, "Number of messages that a worker receives at once (spanmq).")
    send_batch: int | None = option(
        None,
        "Number of messages that a producer sends at once.",
        shown="1 at a rate, 100000 with --producer spark, else 1000",
    )
    producer: str = option(
        "client",
        "Producers: processes with a client, or, before the workers begin, Spark's sink.",
        "client|spark",
    )
    producers: int = option(1, "Producer processes.")
    transaction: float = option(0.0, "Keep transactions of producers open for this time.", "SECONDS")
    same_time: bool = option(False, "Give all rows of a send the same time_added, as now() does (polling).")
    failure_rate: float = option(0.0, "This share of all attempts fails.")
    failure_category: str = option(
        "TRANSIENT", "Their category: TRANSIENT, DEPENDENCY, PERMANENT, BUSINESS or UNKNOWN."
    )
    poison: float = option(0.0, "This share of the messages fails whenever it is handled.")
    poison_kills: bool = option(False, "Poison kills its worker instead of failing.")
    max_attempts: int = option(5, "Attempts after which a message is a dead letter (spanmq).")
    backoff: float = option(0.1, "Before the second attempt, doubled for each further (spanmq).", "SECONDS")
    lease: float = option(5.0, "Seconds of a lease (spanmq).", "SECONDS")
    kill_every: float | None = option(
        None, "Kill a random worker with SIGKILL about so often, and start another.", "SECONDS", shown="never"
    )
    hold_snapshot: bool = option(False, "Keep a transaction open beside it, so that nothing is vacuumed.")
    duration: float | None = option(
        None,
        "Seconds until the run ends. With --rate and without --fill-db nothing else ends it.",
        "SECONDS",
        shown="none, 60 with --compare",
    )
    idle_sleep: float = option(1.0, "Pause of an idle worker (polling).", "SECONDS")
    patience: float = option(30.0, "Stop when no message was handled for this time.", "SECONDS")
    seed: int = option(1, "The same seed gives the same load.")
    source: str | None = option(
        None,
        "Send real data: the flights of the demo, or a file with an object a line.",
        "flights|FILE.jsonl",
        shown="generated messages",
        flags=("--from",),
    )
    key: str | None = option(
        None, "The field of that file whose values keep their order.", "FIELD", shown="none: a file needs it"
    )
    keep: bool = option(False, "Keep the queues, or the table.")

    def __post_init__(self) -> None:
        """Raise InvalidArgumentError for invalid options."""
        if self.fill_db is None and self.source is None and (self.duration is None or self.rate is None):
            object.__setattr__(self, "fill_db", DEFAULT_COUNT)
        self._check_numbers()
        if self.engine not in ENGINES:
            raise InvalidArgumentError(
                f"engine {self.engine!r} does not exist; choose one of {', '.join(ENGINES)}"
            )
        self._check_producer()
        if self.failure_category not in CATEGORIES:
            raise InvalidArgumentError(
                f"category {self.failure_category!r} does not exist; choose one of {', '.join(CATEGORIES)}"
            )
        if self.fill_db is not None and not 1 <= self.fill_db <= COUNT_MAX:
            raise InvalidArgumentError(f"fill-db must be between 1 and {COUNT_MAX}, got {self.fill_db}")
        if (self.source not in (None, "flights")) != (self.key is not None):
            raise InvalidArgumentError("a key field is required for a file of JSON lines, and only for that")
        Work.parse(self.work)

    def _check_producer(self) -> None:
        if self.producer not in PRODUCERS:
            raise InvalidArgumentError(
                f"producer {self.producer!r} does not exist; choose one of {', '.join(PRODUCERS)}"
            )
        if self.producer == "spark" and self.is_polling:
            raise InvalidArgumentError(f"Spark's sink writes to queues, not to the table of {self.engine}")
        if self.producer == "spark" and (self.rate is not None or self.transaction or self.producers > 1):
            raise InvalidArgumentError(
                "Spark's sink fills before the workers begin: no rate, no long transactions, one producer"
            )

    def _check_numbers(self) -> None:
        for setting in fields(self):
            value = getattr(self, setting.name)
            name = setting.name.replace("_", "-")
            if isinstance(value, float) and not math.isfinite(value):
                raise InvalidArgumentError(f"{name} must be a number, got {value}")
            if value is None:
                continue
            if setting.name in (*_ABOVE_ZERO, *_SECONDS_ABOVE_ZERO) and value <= 0:
                raise InvalidArgumentError(f"{name} must be above 0, got {value}")
            if setting.name in _NOT_NEGATIVE and value < 0:
                raise InvalidArgumentError(f"{name} must not be negative, got {value}")
            if setting.name in _SHARES and not 0 <= value <= 1:
                raise InvalidArgumentError(f"{name} must be between 0 and 1, got {value}")

    @property
    def is_polling(self) -> bool:
        """Return whether the engine is a polled table."""
        return self.engine != "spanmq"

    @property
    def messages_per_send(self) -> int:
        """Return the number of messages that a producer sends in one call: the option, or its default."""
        if self.send_batch:
            return self.send_batch
        if self.producer == "spark":
            return 100_000
        return 1_000 if self.rate is None else 1

    @property
    def quiet_seconds(self) -> float:
        """Return the seconds without progress that are normal: a lease must expire, and that must be noticed."""
        return 0.0 if self.is_polling else 2 * self.lease

    @property
    def connections(self) -> int:
        """Return the maximum number of open connections: those of the processes, and four of the run itself."""
        return self.workers * (1 if self.is_polling else 2) + self.producers + 4

    def types_of_worker(self, worker: int) -> list[int]:
        """Return the types of a worker: of twelve, each of three types gets four; a single one serves all."""
        if self.workers >= self.types:
            return [worker % self.types]
        return [number for number in range(self.types) if number % self.workers == worker]

    def workers_of_type(self, number: int) -> int:
        """Return the number of workers that serve a type."""
        return sum(number in self.types_of_worker(worker) for worker in range(self.workers))

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """Return the options of a result of `as_record`."""
        known = {setting.name for setting in fields(cls)}
        values = {name: value for name, value in record.items() if name in known}
        for name in ("schema_file", "next_msg_file"):
            values[name] = None if values.get(name) is None else Path(values[name])
        return cls(**values)

    def as_record(self) -> dict[str, Any]:
        """Return the fields as values for JSON."""
        return {
            setting.name: str(value) if isinstance(value := getattr(self, setting.name), Path) else value
            for setting in fields(self)
        }


def type_name(number: int) -> str:
    """Return the name of a type: type1 is the first."""
    return f"type{number + 1}"


@dataclass(frozen=True, slots=True)
class Site:
    """The place of a run: a database, and the prefix of the names of the run's objects.

    `began` is the time of the shared clock at the start.
    """

    dsn: str
    name: str
    log: Path
    began: float
    options: Options
