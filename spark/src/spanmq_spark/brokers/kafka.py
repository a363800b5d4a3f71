"""Kafka, through `confluent-kafka`: an idempotent producer, and all replicas in step confirm."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Final

from spanmq.errors import ExtraNotInstalledError, InvalidArgumentError, PipelineError
from spanmq_spark.brokers.outgoing import Outgoing

# How long the producer retries by itself; then a message counts as refused.
PATIENCE_SECONDS: Final = 120.0
CHECK_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaBroker:
    """A topic. The group of a message is its key, so that a group stays in order within one partition."""

    servers: str
    topic: str
    settings: Mapping[str, str] = field(default_factory=dict)
    patience: float = PATIENCE_SECONDS

    def describe(self) -> str:
        """Name the target, without credentials."""
        return f"kafka {self.servers} topic {self.topic}"

    def check(self) -> None:
        """Raise PipelineError unless the cluster answers and has the topic."""
        kafka = _kafka()
        producer = self._producer(kafka)
        try:
            topics = producer.list_topics(self.topic, timeout=CHECK_SECONDS).topics
        except kafka.KafkaException as error:
            raise self._refusal(error.args[0]) from error
        if topics[self.topic].error is not None:
            raise self._refusal(topics[self.topic].error)

    def publish(self, messages: Sequence[Outgoing]) -> None:
        """Send these in order, and return when the cluster has confirmed each of them."""
        if not messages:
            return
        kafka = _kafka()
        producer = self._producer(kafka)
        failures: list[PipelineError] = []
        for message in messages:
            self._produce(kafka, producer, message, failures)
            producer.poll(0)
            if failures:
                break
        unconfirmed = producer.flush(self.patience)
        if failures:
            raise failures[0]
        if unconfirmed:
            raise PipelineError(f"{self.describe()} has not confirmed {unconfirmed} messages")

    def _produce(
        self, kafka: ModuleType, producer: Any, message: Outgoing, failures: list[PipelineError]
    ) -> None:
        def confirmed(error: Any, _: Any) -> None:
            if error is not None:
                failures.append(self._refusal(error, message))

        while True:
            try:
                producer.produce(
                    self.topic,
                    message.payload,
                    key=message.group,
                    headers=list(message.labels().items()),
                    timestamp=int(message.enqueued_at.timestamp() * 1000),
                    on_delivery=confirmed,
                )
            except BufferError:
                # The producer's own queue is full: let it send.
                producer.poll(0.1)
            except kafka.KafkaException as error:
                raise self._refusal(error.args[0], message) from error
            except (TypeError, ValueError) as error:
                raise message.refusal(str(error)) from error
            else:
                return

    def _producer(self, kafka: ModuleType) -> Any:
        own = {
            "bootstrap.servers": self.servers,
            "enable.idempotence": "true",
            "acks": "all",
            "message.timeout.ms": str(int(self.patience * 1000)),
            "linger.ms": "20",
            "log_level": "0",
        }
        try:
            return kafka.Producer({**own, **self.settings})
        except kafka.KafkaException as error:
            raise InvalidArgumentError(f"a setting of the broker: {error.args[0].str()}") from error

    def _refusal(self, error: Any, message: Outgoing | None = None) -> PipelineError:
        reason = f"{self.describe()}: {error.str()} ({error.name()})"
        return PipelineError(reason) if message is None else message.refusal(reason)


def _kafka() -> ModuleType:
    try:
        import confluent_kafka
    except ImportError as error:
        raise ExtraNotInstalledError(
            "confluent-kafka is not installed; executors need it too", extra="kafka"
        ) from error
    module: ModuleType = confluent_kafka
    return module
