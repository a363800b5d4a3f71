"""The alert rules, over days of samples: which fire, and which do not. Needs promtool, of Prometheus."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
import yaml

RULES: Final = Path(__file__).parents[2] / "docs/operations/alerts.yml"
PROMTOOL: Final = shutil.which("promtool")
pytestmark = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")

# A queue with a steady load and a worker: a series for each metric, one value a minute. See promtool's notation.
QUIET: Final = {
    "spanmq_queue_backlog": "100x600",
    "spanmq_queue_visible": "5x600",
    "spanmq_queue_dead_letters": "0x600",
    "spanmq_queue_received_per_second": "50x600",
    "spanmq_queue_failed_per_second": "0x600",
    "spanmq_queue_dead_per_second": "0x600",
    "spanmq_queue_paused": "0x600",
    "spanmq_queue_breaker_open": "0x600",
    "spanmq_queue_oldest_ready_seconds": "1x600",
    "spanmq_queue_blocked_groups": "0x600",
    "spanmq_oldest_snapshot_seconds": "1x600",
}
STUCK_GROUP: Final = {"spanmq_queue_blocked_groups": "0x59 3x540"}
OLD_SNAPSHOT: Final = {"spanmq_oldest_snapshot_seconds": "1x59 1+60x540"}
# Ten thousand deaths within one minute, then nothing.
BURST: Final = {
    "spanmq_queue_dead_per_second": "0x59 166 0x540",
    "spanmq_queue_dead_letters": "0x59 10000x541",
}
# The same between two scrapes: the rate was never seen.
UNSEEN_BURST: Final = {"spanmq_queue_dead_letters": "0x59 10000x541"}
# One an hour.
LEAK: Final = {
    "spanmq_queue_dead_per_second": " ".join(["0x58 0.0166"] * 10),
    "spanmq_queue_dead_letters": " ".join(f"{n}x59" for n in range(10)),
}
# One message in twenty, for good.
LOSS: Final = {
    "spanmq_queue_dead_per_second": "0x59 2.5x540",
    "spanmq_queue_dead_letters": "0x59 0+150x540",
}
# A breaker that opens again after each trial, and one that was open once.
BREAKER: Final = {"spanmq_queue_breaker_open": "0x59 " + " ".join(["1 1 0"] * 100)}
ONE_TRIP: Final = {"spanmq_queue_breaker_open": "0x59 1 0x540"}
PAUSED: Final = {"spanmq_queue_paused": "0x59 1x540"}
PAUSED_AND_EMPTY: Final = PAUSED | {"spanmq_queue_backlog": "0x600", "spanmq_queue_visible": "0x600"}
NO_WORKER: Final = {
    "spanmq_queue_received_per_second": "50x59 0x540",
    "spanmq_queue_visible": "5x59 5+50x540",
    "spanmq_queue_oldest_ready_seconds": "1x59 1+60x540",
}
GROWING: Final = {"spanmq_queue_backlog": "1000+60x600"}
# A deployment breaks four hundred messages within a minute; their retries come minutes apart.
RETRIES: Final = {
    "spanmq_queue_received_per_second": "0.1x59 6.7 0.1x540",
    "spanmq_queue_failed_per_second": "0x59 6.6 0x540",
}
ONE_RETRY: Final = {
    "spanmq_queue_received_per_second": "0x59 0.0166 0x540",
    "spanmq_queue_failed_per_second": "0x59 0.0166 0x540",
}
LARGE_AND_STEADY: Final = {"spanmq_queue_backlog": "250000x600", "spanmq_queue_visible": "249000x600"}


@pytest.mark.parametrize(
    ("minute", "changes", "alerts"),
    [
        (300, {}, set()),
        (300, LARGE_AND_STEADY, set()),
        (59, BURST, set()),
        (61, BURST, {"SpanmqDeadLetters"}),
        (69, BURST, {"SpanmqDeadLetters", "SpanmqManyDeadLetters"}),
        (80, BURST, set()),
        (61, UNSEEN_BURST, {"SpanmqDeadLetters"}),
        (181, LEAK, {"SpanmqDeadLetters"}),
        (210, LEAK, set()),
        (72, NO_WORKER, {"SpanmqMessagesWait"}),
        (80, NO_WORKER, {"SpanmqMessagesWait", "SpanmqNoWorker"}),
        (70, STUCK_GROUP, set()),
        (80, STUCK_GROUP, {"SpanmqGroupsBlocked"}),
        (64, LOSS, {"SpanmqDeadLetters"}),
        (80, LOSS, {"SpanmqDeadLetters", "SpanmqManyDeadLetters"}),
        (62, BREAKER, set()),
        (70, BREAKER, {"SpanmqBreakerOpen"}),
        (130, BREAKER, {"SpanmqBreakerOpen"}),
        (70, ONE_TRIP, set()),
        (130, PAUSED, {"SpanmqQueuePaused"}),
        (130, PAUSED_AND_EMPTY, set()),
        (118, OLD_SNAPSHOT, set()),
        (130, OLD_SNAPSHOT, {"SpanmqOldSnapshot"}),
        (67, RETRIES, {"SpanmqFailures"}),
        (95, RETRIES, set()),
        (67, ONE_RETRY, set()),
        (20, GROWING, set()),
        (100, GROWING, {"SpanmqBacklogGrows"}),
    ],
)
def test_alerts_fire(minute: int, changes: dict[str, str], alerts: set[str], tmp_path: Path) -> None:
    series = [
        {"series": f'{name}{{queue="orders"}}', "values": values}
        for name, values in (QUIET | changes).items()
    ]
    firing = {
        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
        "eval_time": f"{minute}m",
        "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(alerts)],
    }
    case = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": [firing]}],
    }
    file = tmp_path / "case.yml"
    file.write_text(yaml.safe_dump(case))
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, "test", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
