"""The port at which a worker answers /metrics, /healthz and /readyz, for each command that starts one."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from spanmq.errors import ExtraNotInstalledError
from spanmq.worker.event import Observer

logger = logging.getLogger("spanmq")


@contextmanager
def monitored(port: int | None, host: str = "127.0.0.1") -> Iterator[list[Observer]]:
    """Serve a worker's metrics and probes while the block runs; yield the observers that it needs for them.

    Without a `port` nothing is served, and the list is empty. Port 0 is any free one; the log has the address.
    Raises ExtraNotInstalledError without the extra `metrics`, and InvalidArgumentError for an address that cannot
    be listened on.
    """
    if port is None:
        yield []
        return
    try:
        from spanmq.worker.condition import Condition
        from spanmq.worker.measures import Measures, served
    except ModuleNotFoundError as error:
        raise ExtraNotInstalledError(
            f"the worker's metrics need {error.name}, which is not installed", extra="metrics"
        ) from error
    measures, condition = Measures(), Condition()
    with served(measures, condition, port, host) as url:
        logger.info("metrics_served address=%s", url)
        yield [measures, condition]
