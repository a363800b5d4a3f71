"""The options of a run and their validation."""

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Self

from spanmq.errors import InvalidArgumentError
from spanmq.simulate.work import Work

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a run; times are in seconds, shares between 0 and 1.

    `fill_db` is the number of messages (None: as many as fit in `duration`, or as `source` has), `rate` the
    maximum per second while they are handled (None: all are written before). `source` is "flights" or a
    file of JSON lines, whose field `key` is the key within which order is kept.
    """

    engine: str = "spanmq"
    fill_db: int | None = DEFAULT_COUNT
    rate: float | None = None
    workers: int = 5
    delmsg: bool = False
    types: int = 3
    keys: int = 2
    skew: float = 0.0
    work: str = "uniform:1:10"
    batch: int = 32
    send_batch: int | None = None
    producer: str = "client"
    producers: int = 1
    transaction: float = 0.0
    same_time: bool = False
    failure_rate: float = 0.0
    failure_category: str = "TRANSIENT"
    poison: float = 0.0
    poison_kills: bool = False
    max_attempts: int = 5
    backoff: float = 0.1
    lease: float = 5.0
    kill_every: float | None = None
    hold_snapshot: bool = False
    duration: float | None = None
    idle_sleep: float = 1.0
    patience: float = 30.0
    seed: int = 1
    source: str | None = None
    key: str | None = None
    schema_file: Path | None = None
    next_msg_file: Path | None = None
    keep: bool = False

    def __post_init__(self) -> None:
        """Raise InvalidArgumentError for invalid options."""
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
        if self.fill_db is None and self.source is None and (self.duration is None or self.rate is None):
            raise InvalidArgumentError("without a number of messages a run needs a duration and a rate")
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
        for field in fields(self):
            value = getattr(self, field.name)
            name = field.name.replace("_", "-")
            if isinstance(value, float) and not math.isfinite(value):
                raise InvalidArgumentError(f"{name} must be a number, got {value}")
            if value is None:
                continue
            if field.name in (*_ABOVE_ZERO, *_SECONDS_ABOVE_ZERO) and value <= 0:
                raise InvalidArgumentError(f"{name} must be above 0, got {value}")
            if field.name in _NOT_NEGATIVE and value < 0:
                raise InvalidArgumentError(f"{name} must not be negative, got {value}")
            if field.name in _SHARES and not 0 <= value <= 1:
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
        """Return the types of a worker: with three types, each gets four of twelve workers, and one worker
        serves all.
        """
        if self.workers >= self.types:
            return [worker % self.types]
        return [number for number in range(self.types) if number % self.workers == worker]

    def workers_of_type(self, number: int) -> int:
        """Return the number of workers that serve a type."""
        return sum(number in self.types_of_worker(worker) for worker in range(self.workers))

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """Return the options of a result of `as_record`."""
        known = {field.name for field in fields(cls)}
        values = {name: value for name, value in record.items() if name in known}
        for name in ("schema_file", "next_msg_file"):
            values[name] = None if values.get(name) is None else Path(values[name])
        return cls(**values)

    def as_record(self) -> dict[str, Any]:
        """Return the fields as values for JSON."""
        return {
            field.name: str(value) if isinstance(value := getattr(self, field.name), Path) else value
            for field in fields(self)
        }


def type_name(number: int) -> str:
    """Return the name of a type: type1 is the first."""
    return f"type{number + 1}"


@dataclass(frozen=True, slots=True)
class Site:
    """The place of a run: a database, and the prefix of the names of the run's objects.

    `folder` is for files of the run's processes, `began` is the time of the shared clock at the start.
    """

    dsn: str
    name: str
    folder: Path
    log: Path
    began: float
    options: Options
