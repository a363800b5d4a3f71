"""The settings of a worker and their validation. No I/O here."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypedDict

from spanmq.client.dsn import UNLIMITED, Timeouts
from spanmq.client.options import check_password
from spanmq.client.password import Password
from spanmq.codec.body import Decoder, read_json
from spanmq.errors import InvalidArgumentError
from spanmq.worker.breaker import BreakerPolicy
from spanmq.worker.event import Observer
from spanmq.worker.failure import checked_category
from spanmq.worker.job import Undecodable


class WorkerSettings(TypedDict, total=False):
    """The settings of a worker as keyword arguments: the fields of Settings, each where it is given."""

    concurrency: int
    batch: int
    in_batches: bool
    lease: float | None
    lease_max: float
    handler_timeout: float | None
    slow_after: float | None
    slow_share: float
    gather: float
    grace: float
    poll_interval: float | None
    breaker: BreakerPolicy | None
    categories: Mapping[type[BaseException], str]
    weights: Mapping[str, float]
    limits: Mapping[str, int]
    guaranteed: Mapping[str, int]
    timeouts: Timeouts | None
    pooler: bool
    patience: float | None
    decoder: Decoder | None
    until_empty: bool
    processes: int | None
    password: Password | None


class WorkerOptions(WorkerSettings, total=False):
    """All keyword arguments of Worker."""

    dsn: str | None
    shards: str | Iterable[str] | None
    name: str | None
    observers: Iterable[Observer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a worker beside its queues and its handler; times are in seconds.

    Up to `concurrency` handlers run at once. One call receives up to `batch` messages; with `in_batches` the handler
    takes a list. `lease` None is that of the queue's policy; it is extended up to `lease_max`. A handler that takes
    longer than `handler_timeout` (None: no limit) has failed. One that runs for `slow_after` seconds (None: none) and
    longer than 99 of 100 of its task, or past `slow_share` of its limit, is named while it runs. Outcomes are gathered
    for up to `gather` while no slot is idle, handlers have
    `grace` to end at a stop, and an idle worker polls at least every `poll_interval` (None: 3 while it is notified,
    else 0.5). `breaker` says when a queue is paused after failures (None: never), and `categories` maps classes of
    exceptions to categories. By the names of queues, `weights` are shares of the slots, `limits` the most messages at
    once, and `guaranteed` the slots that are left free. `timeouts` are those of connections (None passes none);
    `pooler` says that the DSN leads to a pooler in transaction mode. A call without an answer within `patience`
    (None: the statement's limit and 5) counts as a broken connection. `decoder` and `password` are those of Client.
    With `until_empty` the worker ends when no message is visible. `processes` (None: one for each processor) run
    tasks with `process=True`. Raises InvalidArgumentError for a value that is not valid.
    """

    concurrency: int = 10
    batch: int = 250
    in_batches: bool = False
    lease: float | None = None
    lease_max: float = 3600.0
    handler_timeout: float | None = None
    slow_after: float | None = 10.0
    slow_share: float = 0.8
    gather: float = 0.1
    grace: float = 25.0
    poll_interval: float | None = None
    breaker: BreakerPolicy | None = field(default_factory=BreakerPolicy)
    categories: Mapping[type[BaseException], str] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    guaranteed: Mapping[str, int] = field(default_factory=dict)
    timeouts: Timeouts | None = field(default_factory=Timeouts)
    pooler: bool = False
    patience: float | None = None
    decoder: Decoder | None = None
    until_empty: bool = False
    processes: int | None = None
    password: Password | None = None

    def __post_init__(self) -> None:
        """Raise InvalidArgumentError for invalid settings."""
        check_count("concurrency", self.concurrency)
        check_count("batch", self.batch)
        if self.processes is not None:
            check_count("processes", self.processes)
        for name, least_seconds in LEAST.items():
            value = getattr(self, name)
            if value is None and name in (
                "lease",
                "handler_timeout",
                "poll_interval",
                "patience",
                "slow_after",
            ):
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least_seconds:
                raise InvalidArgumentError(f"{name} must be at least {least_seconds:g} s, got {value!r}")
        if self.lease is not None and self.lease_max < self.lease:
            raise InvalidArgumentError(f"lease_max must be at least the lease, {self.lease:g} s")
        share: object = self.slow_share
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise InvalidArgumentError(f"slow_share must be above 0 and at most 1, got {share!r}")
        check_shares(self.weights, self.limits, self.guaranteed)
        check_password(self.password, "the worker's")
        if (slots := sum(self.guaranteed.values())) > self.concurrency:
            raise InvalidArgumentError(
                f"the guaranteed slots must be at most the concurrency, {self.concurrency}, got {slots}"
            )
        for kind, category in self.categories.items():
            checked: object = kind
            if not (isinstance(checked, type) and issubclass(checked, BaseException)):
                raise InvalidArgumentError(f"categories are by classes of exceptions, got {kind!r}")
            checked_category(category)

    @property
    def timeouts_passed(self) -> Timeouts:
        """The time limits of its connections, whose silence ends in any case."""
        timeouts = (
            Timeouts(lock=0, statement=0, idle_in_transaction=0) if self.timeouts is None else self.timeouts
        )
        return replace(timeouts, answer=self.patience_seconds)

    @property
    def patience_seconds(self) -> float:
        """The time for which the server may be silent: slightly longer than its own time limit for a statement."""
        if self.patience is not None:
            return self.patience
        timeouts = self.timeouts or UNLIMITED
        if timeouts.answer is not None:
            return timeouts.answer
        return (timeouts.statement or 30.0) + 5.0


def check_count(name: str, value: object) -> None:
    """Raise InvalidArgumentError for what is not an integer from 1 to 10,000."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10_000:
        raise InvalidArgumentError(f"{name} must be an integer from 1 to 10,000, got {value!r}")


def check_shares(
    weights: Mapping[str, object], limits: Mapping[str, object], guaranteed: Mapping[str, object]
) -> None:
    """Raise InvalidArgumentError for invalid weights, limits and guaranteed slots of queues."""
    for queue, weight in weights.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight <= 1_000:
            raise InvalidArgumentError(
                f"the weight of {queue} must be above 0 and at most 1,000, got {weight!r}"
            )
    for name, numbers in (("limit", limits), ("guaranteed number of slots", guaranteed)):
        for queue, number in numbers.items():
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise InvalidArgumentError(f"the {name} of {queue} must be at least 1, got {number!r}")


LEAST: Final = {
    "lease": 0.1,
    "lease_max": 0.1,
    "handler_timeout": 0.001,
    "slow_after": 0.001,
    "gather": 0.0,
    "grace": 0.0,
    "poll_interval": 0.01,
    "patience": 0.1,
}


def forgiving(decoder: Decoder | None) -> Callable[[bytes], Any]:
    """Return a decoder that never raises, so that one bad body does not affect the other messages."""
    read = read_json if decoder is None else decoder

    def decode(raw: bytes) -> Any:
        try:
            return read(raw)
        except Exception as error:  # noqa: BLE001, the user's decoder may raise anything
            return Undecodable(error)

    return decode
