"""The Spark sink as a producer: each send is a data frame, whose messages become visible at one instant."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext

from spanmq.simulate.engine import Site
from spanmq.simulate.engine_spanmq import ID_HEADER, queue_of
from spanmq.simulate.load import Item
from spanmq.spark.fill import fill
from spanmq.spark.session import opened


class SparkSender:
    """Fills the queues through a session of this process."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._stack = ExitStack()
        self._spark = self._stack.enter_context(opened(name=site.name))

    def transaction(self) -> AbstractContextManager[object]:
        """Do nothing: options with long transactions and this producer are refused."""
        return nullcontext()

    def send(self, items: Sequence[Item]) -> None:
        """Send messages of one type, all or none."""
        rows = [(json.dumps(item.body), json.dumps({ID_HEADER: item.id}), item.key) for item in items]
        fill(self._spark, self._site.dsn, queue_of(self._site, items[0].type), rows)

    def close(self) -> None:
        """End the session, if this made it."""
        self._stack.close()
