"""Sends to a RabbitMQ that a test kills in the middle: some messages are confirmed, others under way."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from spanmq_spark.brokers import amqp
from spanmq_spark.brokers.outgoing import ID_HEADER, Outgoing

# Of one batch. Each of four tasks has about twice what may be unconfirmed at a time.
BATCH: Final = 8 * amqp.WINDOW
# The first kill comes in the first batch, the second one in the second.
KILLS: Final = (1, BATCH + 1)


@dataclass(frozen=True, kw_only=True)
class FalteringBroker(amqp.AmqpBroker):
    """A broker that dies twice: `folder` has `hit-NUMBER` when it must, and `dead-NUMBER` when it has."""

    folder: Path

    def publish(self, messages: Sequence[Outgoing]) -> None:
        """Send these, and stop where the broker is to be killed."""
        with patch.object(amqp, "_Session", partial(_Session, self.folder)):
            super().publish(messages)


class _Session(amqp._Session):
    def __init__(self, folder: Path, *given: Any) -> None:
        super().__init__(*given)
        self._folder = folder
        self._sends = 0

    def _send(self) -> None:
        super()._send()
        self._sends += 1
        # The second time some are confirmed, and as many more have followed them.
        if self._sends > 1:
            for number, first in enumerate(KILLS):
                if any(sent.headers[ID_HEADER] >= first for _, sent in self._flying.values()):
                    self._falter(number)

    def _falter(self, number: int) -> None:
        try:
            (self._folder / f"hit-{number}").open("x").close()
        except FileExistsError:
            return
        while not (self._folder / f"dead-{number}").exists():
            time.sleep(0.02)
