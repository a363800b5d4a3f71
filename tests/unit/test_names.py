"""Names in the code: a variable says what it holds, and a class has a name of its own within its distribution."""

import ast
from collections import Counter
from collections.abc import Iterator

from tests.unit.test_layout import MODULES, PACKAGES, ROOT

# Names of variables that do not say what the value is.
EMPTY_NAMES = frozenset({"each", "found", "given", "wanted"})
# Modules that still have such a variable. The list only becomes shorter.
EMPTY_NAMES_LEFT = {
    # worker
    "src/spanmq/worker/event.py",
    "src/spanmq/worker/failure.py",
    "src/spanmq/worker/handler.py",
    "src/spanmq/worker/machine.py",
    "src/spanmq/worker/observing/reporting.py",
    "src/spanmq/worker/observing/stacks.py",
    "src/spanmq/worker/observing/trace.py",
    "src/spanmq/worker/receiving/poller.py",
    "src/spanmq/worker/receiving/pool.py",
    "src/spanmq/worker/receiving/roster.py",
    "src/spanmq/worker/receiving/scheduler.py",
    "src/spanmq/worker/receiving/source.py",
    "src/spanmq/worker/running/limiter.py",
    "src/spanmq/worker/running/performing.py",
    "src/spanmq/worker/running/slots.py",
    "src/spanmq/worker/running/threads.py",
    "src/spanmq/worker/runtime.py",
    "src/spanmq/worker/setting.py",
    "src/spanmq/worker/settling/settler.py",
    # tasks
    "src/spanmq/tasks/arguments.py",
    "src/spanmq/tasks/check.py",
    "src/spanmq/tasks/handling.py",
    "src/spanmq/tasks/periodic.py",
    "src/spanmq/tasks/registry.py",
    "src/spanmq/tasks/results.py",
    "src/spanmq/tasks/sending.py",
    "src/spanmq/tasks/shapes.py",
    "src/spanmq/tasks/task.py",
    # service
    "service/src/spanmq_service/backend.py",
    "service/src/spanmq_service/cli/service.py",
    "service/src/spanmq_service/dashboard/attention.py",
    "service/src/spanmq_service/dashboard/changes.py",
    "service/src/spanmq_service/dashboard/chart.py",
    "service/src/spanmq_service/dashboard/dead_letters.py",
    "service/src/spanmq_service/dashboard/failing.py",
    "service/src/spanmq_service/dashboard/figures.py",
    "service/src/spanmq_service/dashboard/listing.py",
    "service/src/spanmq_service/dashboard/message.py",
    "service/src/spanmq_service/dashboard/messages.py",
    "service/src/spanmq_service/dashboard/policies.py",
    "service/src/spanmq_service/dashboard/queue.py",
    "service/src/spanmq_service/dashboard/queue_head.py",
    "service/src/spanmq_service/dashboard/queues.py",
    "service/src/spanmq_service/dashboard/repair.py",
    "service/src/spanmq_service/dashboard/schedules.py",
    "service/src/spanmq_service/dashboard/search.py",
    "service/src/spanmq_service/dashboard/sign_in.py",
    "service/src/spanmq_service/dashboard/standing.py",
    "service/src/spanmq_service/dashboard/tasks.py",
    "service/src/spanmq_service/dashboard/typed.py",
    "service/src/spanmq_service/dashboard/visit.py",
    "service/src/spanmq_service/dashboard/wording.py",
    "service/src/spanmq_service/dashboard/workers.py",
    "service/src/spanmq_service/guard/caller.py",
    "service/src/spanmq_service/guard/credentials.py",
    "service/src/spanmq_service/guard/gate.py",
    "service/src/spanmq_service/http/arguments.py",
    "service/src/spanmq_service/http/request_json.py",
    "service/src/spanmq_service/measures.py",
    "service/src/spanmq_service/receipt.py",
    "service/src/spanmq_service/routes/categories.py",
    "service/src/spanmq_service/routes/dead_letters.py",
    "service/src/spanmq_service/routes/description.py",
    "service/src/spanmq_service/routes/doors.py",
    "service/src/spanmq_service/routes/lookup.py",
    "service/src/spanmq_service/routes/queues.py",
    "service/src/spanmq_service/routes/receiving.py",
    "service/src/spanmq_service/routes/sending.py",
    "service/src/spanmq_service/routes/table.py",
    "service/src/spanmq_service/routes/topics.py",
    "service/src/spanmq_service/server.py",
    "service/src/spanmq_service/sqs/endpoint.py",
    "service/src/spanmq_service/sqs/message.py",
    "service/src/spanmq_service/sqs/message_actions.py",
    "service/src/spanmq_service/sqs/moves.py",
    "service/src/spanmq_service/sqs/query.py",
    "service/src/spanmq_service/sqs/queue.py",
    "service/src/spanmq_service/sqs/queue_actions.py",
    "service/src/spanmq_service/sqs/signature.py",
    "service/src/spanmq_service/sqs/store.py",
    "service/src/spanmq_service/waiting.py",
    # spark
    "spark/src/spanmq_spark/adbc.py",
    "spark/src/spanmq_spark/archive_stream.py",
    "spark/src/spanmq_spark/bodies.py",
    "spark/src/spanmq_spark/calls.py",
    "spark/src/spanmq_spark/catalog.py",
    "spark/src/spanmq_spark/cli/pipeline.py",
    "spark/src/spanmq_spark/cli/receivers.py",
    "spark/src/spanmq_spark/column.py",
    "spark/src/spanmq_spark/filters.py",
    "spark/src/spanmq_spark/jobs/archived.py",
    "spark/src/spanmq_spark/jobs/backfill.py",
    "spark/src/spanmq_spark/jobs/checkpoint.py",
    "spark/src/spanmq_spark/jobs/dead_letters.py",
    "spark/src/spanmq_spark/jobs/delta.py",
    "spark/src/spanmq_spark/jobs/ducklake/catalogue.py",
    "spark/src/spanmq_spark/jobs/ducklake/format.py",
    "spark/src/spanmq_spark/jobs/ducklake/repair.py",
    "spark/src/spanmq_spark/jobs/ducklake/run.py",
    "spark/src/spanmq_spark/jobs/export.py",
    "spark/src/spanmq_spark/jobs/iceberg.py",
    "spark/src/spanmq_spark/jobs/lake.py",
    "spark/src/spanmq_spark/jobs/lake_table.py",
    "spark/src/spanmq_spark/jobs/manifests/repair.py",
    "spark/src/spanmq_spark/jobs/manifests/state.py",
    "spark/src/spanmq_spark/jobs/manifests/store.py",
    "spark/src/spanmq_spark/jobs/migrate.py",
    "spark/src/spanmq_spark/jobs/moved.py",
    "spark/src/spanmq_spark/jobs/orphans.py",
    "spark/src/spanmq_spark/jobs/parquet.py",
    "spark/src/spanmq_spark/jobs/ranges.py",
    "spark/src/spanmq_spark/jobs/recorded.py",
    "spark/src/spanmq_spark/jobs/repairs.py",
    "spark/src/spanmq_spark/jobs/restored.py",
    "spark/src/spanmq_spark/options.py",
    "spark/src/spanmq_spark/programs.py",
    "spark/src/spanmq_spark/queues_stream.py",
    "spark/src/spanmq_spark/reader.py",
    "spark/src/spanmq_spark/rows.py",
    "spark/src/spanmq_spark/sealed.py",
    "spark/src/spanmq_spark/session.py",
    "spark/src/spanmq_spark/source.py",
    "spark/src/spanmq_spark/stream.py",
    "spark/src/spanmq_spark/table_sink.py",
    "spark/src/spanmq_spark/writer.py",
    # lab
    "lab/src/spanmq_lab/cli/demonstration.py",
    "lab/src/spanmq_lab/cli/simulation.py",
    "lab/src/spanmq_lab/demo/__init__.py",
    "lab/src/spanmq_lab/demo/flights.py",
    "lab/src/spanmq_lab/demo/report.py",
    "lab/src/spanmq_lab/simulate/audit.py",
    "lab/src/spanmq_lab/simulate/compare.py",
    "lab/src/spanmq_lab/simulate/engine_polling.py",
    "lab/src/spanmq_lab/simulate/engine_spanmq.py",
    "lab/src/spanmq_lab/simulate/options.py",
    "lab/src/spanmq_lab/simulate/plot.py",
    "lab/src/spanmq_lab/simulate/report.py",
    "lab/src/spanmq_lab/simulate/worker_process.py",
}

# Classes of the same name in two modules of a distribution, and why.
SAME_NAME = {
    ("spanmq", "Command"): "Django finds a command by its module and calls this class",
    ("spanmq", "Migration"): "Django calls this class of a migration; the other one is a step of the schema",
    (
        "spanmq",
        "Queue",
    ): "Django names the pages of its admin after the model's class: the same thing, as rows",
    ("spanmq", "DeadLetter"): "as Queue",
    ("spanmq", "Schedule"): "as Queue",
}
# Those without a reason. The list only becomes shorter.
SAME_NAME_LEFT = {
    # spanmq
    ("spanmq", "Call"),
    ("spanmq", "Sample"),
    ("spanmq", "Failure"),
    ("spanmq", "Batch"),
    ("spanmq", "Holding"),
    ("spanmq", "Release"),
    # spanmq_service
    ("spanmq_service", "Problem"),
    ("spanmq_service", "Redrive"),
    # spanmq_spark
    ("spanmq_spark", "Column"),
    ("spanmq_spark", "Standing"),
    ("spanmq_spark", "State"),
    ("spanmq_spark", "Run"),
    ("spanmq_spark", "Written"),
    ("spanmq_spark", "Writer"),
    # spanmq_lab
    ("spanmq_lab", "Check"),
    ("spanmq_lab", "Load"),
}


def variables(tree: ast.AST) -> Iterator[str]:
    """Yield the names of the variables, parameters and fields that a module makes."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name
            case (
                ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ):
                yield name
            case ast.MatchMapping(rest=str(name)):
                yield name


def has_empty_name(source: str) -> bool:
    return not EMPTY_NAMES.isdisjoint(variables(ast.parse(source)))


def classes_of_the_same_name(sources: list[str]) -> set[str]:
    """Return the names that a class at the top of two of these modules has."""
    counts = Counter(
        node.name for source in sources for node in ast.parse(source).body if isinstance(node, ast.ClassDef)
    )
    return {name for name, count in counts.items() if count > 1}


# The modules that people write: those in `_sync` are generated.
WRITTEN = {
    package: {
        path.relative_to(ROOT).as_posix(): path.read_text("utf-8")
        for path in MODULES
        if path.is_relative_to(folder / package) and "_sync" not in path.parts
    }
    for package, folder in PACKAGES.items()
}


def test_variables_say_what_they_hold() -> None:
    assert all(WRITTEN.values())
    modules = {name: source for sources in WRITTEN.values() for name, source in sources.items()}
    assert {name for name, source in modules.items() if has_empty_name(source)} == EMPTY_NAMES_LEFT
    for source in (
        "each = 1",
        "[each for each in rows]",
        "def f(*, found): pass",
        "lambda wanted: 1",
        "class Row:\n    given: int",
        "try:\n    f()\nexcept E as found:\n    pass",
        "match row:\n    case {'a': given, **rest}: pass",
        "if (found := f()): pass",
    ):
        assert has_empty_name(source), source
    assert not has_empty_name("row.each = found(given=wanted)")


def test_a_class_has_a_name_of_its_own() -> None:
    same = {
        (package, name)
        for package, sources in WRITTEN.items()
        for name in classes_of_the_same_name(list(sources.values()))
    }
    assert same == SAME_NAME.keys() | SAME_NAME_LEFT
    assert classes_of_the_same_name(["class A: pass", "class A: pass\nclass B: pass"]) == {"A"}
