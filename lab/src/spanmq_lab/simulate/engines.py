"""The engines by name, and Spark as a producer for one of them."""

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext

from spanmq.errors import ExtraNotInstalledError
from spanmq_lab.simulate.engine_polling import PollingReceiver, PollingSender, PollingStage
from spanmq_lab.simulate.engine_spanmq import ID_HEADER, SpanmqReceiver, SpanmqSender, SpanmqStage, queue_of
from spanmq_lab.simulate.load import Item
from spanmq_lab.simulate.options import Site
from spanmq_lab.simulate.record import Recorder


class SparkSender:
    """Fills the queues through the Spark sink: each send is a data frame, which becomes visible at once."""

    def __init__(self, site: Site) -> None:
        try:
            from spanmq_spark.session import opened
        except ModuleNotFoundError as error:
            raise ExtraNotInstalledError(
                f"the producer spark needs {error.name}, which is not installed", extra="spark"
            ) from error
        self._site = site
        self._stack = ExitStack()
        self._spark = self._stack.enter_context(opened(name=site.name))

    def transaction(self) -> AbstractContextManager[object]:
        """Do nothing: options with long transactions and this producer are refused."""
        return nullcontext()

    def send(self, items: Sequence[Item]) -> None:
        """Send messages of one type, all or none."""
        from spanmq_spark.cause import clear_errors

        rows = [
            (item.id, json.dumps(item.body), json.dumps({ID_HEADER: item.id}), item.key) for item in items
        ]
        to = {"dsn": self._site.dsn, "queue": queue_of(self._site, items[0].type)}
        with clear_errors():
            frame = self._spark.createDataFrame(rows, "id long, body string, headers string, `group` string")
            # A task numbers its rows as they come: a key in one task, in order, keeps its order.
            ordered = frame.repartition("group").sortWithinPartitions("id").drop("id")
            ordered.write.format("spanmq").options(**to).mode("append").save()

    def close(self) -> None:
        """Stop the Spark session, if this object started it."""
        self._stack.close()


# A stage creates and drops the database objects of an engine; each producer has a sender, each worker a receiver.
Stage = SpanmqStage | PollingStage
Sender = SpanmqSender | PollingSender | SparkSender
Receiver = SpanmqReceiver | PollingReceiver


def stage_of(site: Site) -> Stage:
    """Return the stage of the engine that the options name."""
    return PollingStage(site) if site.options.is_polling else SpanmqStage(site)


def sender_of(site: Site) -> Sender:
    """Return a sender of the engine."""
    if site.options.producer == "spark":
        return SparkSender(site)
    return PollingSender(site) if site.options.is_polling else SpanmqSender(site)


def receiver_of(site: Site, types: Sequence[int], recorder: Recorder) -> Receiver:
    """Return a receiver of the engine for some of the types."""
    return PollingReceiver(site, types) if site.options.is_polling else SpanmqReceiver(site, types, recorder)
