"""Random programs that write their steps down, so that one that failed is saved and can be run again."""

import functools
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from tests.sql.seeds import SEED

FOLDER = Path(__file__).parent / "scenarios"
STEPS = 30
# For how long smaller programs that fail are looked for.
SHRINK_SECONDS = 45.0

Function = Callable[..., None]


class Drawn:
    """Values that a step draws while it runs, written down."""

    def __init__(self, data: Any, values: list[Any]) -> None:
        self._data = data
        self._values = values

    def draw(self, strategy: Any) -> Any:
        self._values.append(self._data.draw(strategy))
        return self._values[-1]


class Replayed:
    """The values that a step drew when it was written down."""

    def __init__(self, values: list[Any]) -> None:
        self._values: Iterator[Any] = iter(values)

    def draw(self, strategy: Any) -> Any:
        return next(self._values)


class SmallEnoughError(BaseException):
    """The time for making a program smaller is over. Hypothesis lets it pass."""


class Recorded(RuleBasedStateMachine):
    """A program that writes its steps down: name, arguments, and what was drawn meanwhile as `data`."""

    # The smallest program that failed, and how; and when no smaller one is looked for.
    smallest: tuple[list[tuple[str, dict[str, Any]]], Exception] | None = None
    shrinks_until: float

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[str, dict[str, Any]]] = []

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note a failure."""
        try:
            yield
        except Exception as error:
            if Recorded.smallest is None:
                Recorded.shrinks_until = time.monotonic() + SHRINK_SECONDS
            if Recorded.smallest is None or len(self.steps) <= len(Recorded.smallest[0]):
                Recorded.smallest = self.steps, error
            raise


def step(**strategies: Any) -> Callable[[Function], Any]:
    """Make a method a step that programs may take."""
    decorate: Any = rule(**strategies)
    return lambda function: decorate(_recorded(function))


def first_step(**strategies: Any) -> Callable[[Function], Any]:
    """Make a method the step with which programs begin."""
    decorate: Any = initialize(**strategies)
    return lambda function: decorate(_recorded(function))


def always() -> Callable[[Function], Any]:
    """Make a method a check that runs after each step."""

    def decorate(function: Function) -> Any:
        @functools.wraps(function)
        def check(self: Recorded) -> None:
            with self.noted():
                function(self)

        check.runs_always = True  # type: ignore[attr-defined]
        return invariant()(check)

    return decorate


def _recorded(function: Function) -> Function:
    @functools.wraps(function)
    def run(self: Recorded, **arguments: Any) -> None:
        written = dict(arguments)
        self.steps.append((function.__name__, written))
        if "data" in arguments:
            written["data"] = []
            arguments["data"] = Drawn(arguments["data"], written["data"])
        with self.noted():
            function(self, **arguments)

    run.function = function  # type: ignore[attr-defined]
    return run


def run_programs(make: Callable[[], Recorded], name: str, *, few: int, many: int) -> None:
    """Run a few programs, the same each time, or many by SPANMQ_TEST_SEED; save the smallest that fails.

    Raises what that one raised.
    """

    def factory() -> Recorded:
        if Recorded.smallest and time.monotonic() > Recorded.shrinks_until:
            raise SmallEnoughError
        return make()

    wanted = settings(
        max_examples=few if SEED is None else many,
        stateful_step_count=STEPS,
        derandomize=SEED is None,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    Recorded.smallest = None
    try:
        run_state_machine_as_test((factory if SEED is None else seed(SEED)(factory)), settings=wanted)  # type: ignore[arg-type]
    except (Exception, SmallEnoughError):
        if Recorded.smallest is None:
            raise
        steps, failure = Recorded.smallest
        if SEED is not None:
            failure.add_note(f"SPANMQ_TEST_SEED={SEED}; saved as {save(name, steps, FOLDER)}")
        else:
            failure.add_note("\n".join(map(str, steps)))
        raise failure from None


def save(name: str, steps: list[tuple[str, dict[str, Any]]], folder: Path) -> Path:
    """Write a program to a file, a step a line."""
    lines = ",\n".join(f"  {json.dumps(each)}" for each in steps)
    digest = hashlib.sha256(lines.encode()).hexdigest()[:8]
    path = folder / f"{name} {digest}.json"
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    return path


def replay(machine: Recorded, path: Path) -> None:
    """Run a saved program, and all checks after each of its steps."""
    kind = type(machine)
    checks = [name for name in dir(kind) if getattr(getattr(kind, name), "runs_always", False)]
    for name, arguments in json.loads(path.read_text(encoding="utf-8")):
        if "data" in arguments:
            arguments["data"] = Replayed(arguments["data"])
        getattr(kind, name).function(machine, **arguments)
        for check in checks:
            getattr(machine, check)()
