"""RabbitMQ and others that speak AMQP 0-9-1, through `pika`, with publisher confirms."""

from __future__ import annotations

import re
import struct
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from spanmq.codec import Number
from spanmq.errors import ExtraNotInstalledError, InvalidArgumentError, PipelineError
from spanmq_spark.brokers.outgoing import ATTEMPT_HEADER, ID_HEADER, QUEUE_HEADER, Outgoing

if TYPE_CHECKING:
    import pika

    # The payload of a message, and its properties.
    Sending = tuple[bytes, pika.BasicProperties]

# Messages that may be unconfirmed at a time. RabbitMQ confirms many with one frame.
WINDOW: Final = 1_000
# How long a broker may be unavailable: a restart with many messages takes time.
PATIENCE_SECONDS: Final = 120.0
PAUSE_SECONDS: Final = 1.0
_INTEGER_MAX: Final = 2**63
_SIZE: Final = re.compile(r"\bmessage size ([0-9]+)")
# Reply codes of a broker that shuts down, or has an internal error.
_GOING_AWAY: Final = (320, 541)


@dataclass(frozen=True, slots=True, kw_only=True)
class AmqpBroker:
    """An exchange ("" is the default one) and the routing key: for the default exchange, a queue's name."""

    url: str
    routing_key: str
    exchange: str = ""
    patience: float = PATIENCE_SECONDS

    def describe(self) -> str:
        """Name the target, without credentials."""
        parameters = self._parameters()
        where = f"exchange {self.exchange}, key {self.routing_key}" if self.exchange else self.routing_key
        return f"amqp {parameters.host}:{parameters.port}{_host_of(parameters)} {where}"

    def check(self) -> None:
        """Raise PipelineError unless the broker lets us in and has the exchange, or the queue."""
        import pika

        parameters = self._parameters()
        try:
            connection = pika.BlockingConnection(parameters)
        except pika.exceptions.AMQPError as error:
            raise self._refusal(error) from error
        except OSError as error:
            raise PipelineError(f"{self.describe()} can't be reached: {error}") from error
        try:
            channel = connection.channel()
            if self.exchange:
                channel.exchange_declare(self.exchange, passive=True)
            else:
                channel.queue_declare(self.routing_key, passive=True)
        except pika.exceptions.ChannelClosedByBroker as error:
            raise self._refusal(error) from error
        finally:
            if connection.is_open:
                connection.close()

    def publish(self, messages: Sequence[Outgoing]) -> None:
        """Send these in order, and return when the broker has confirmed each of them.

        A broker that goes away is waited for; what it had not confirmed is sent again. Raises PipelineError
        if it stays away, refuses a message, or has no queue for it.
        """
        parameters = self._parameters()
        # Before connecting: what pika can't encode ends its connection as if that were lost.
        waiting = deque((message.payload, properties_of(message)) for message in messages)
        left, deadline = len(waiting), time.monotonic() + self.patience
        while waiting:
            session = _Session(self, parameters, waiting)
            failure = session.run()
            if failure is None:
                continue
            if not _may_pass(failure):
                # RabbitMQ names the size of a message that is too large, and not the message.
                size = _SIZE.search(_text(failure))
                for message in messages:
                    if size is not None and len(message.payload) == int(size[1]):
                        raise message.refusal(_text(failure)) from failure
                raise self._refusal(failure) from failure
            if len(waiting) < left:
                left, deadline = len(waiting), time.monotonic() + self.patience
            if time.monotonic() > deadline:
                raise PipelineError(
                    f"{self.describe()} has confirmed nothing for {self.patience:g} s: {_text(failure)}"
                ) from failure
            time.sleep(PAUSE_SECONDS)

    def _parameters(self) -> pika.URLParameters:
        try:
            import pika
        except ImportError as error:
            raise ExtraNotInstalledError(
                "pika is not installed; executors need it too", extra="amqp"
            ) from error
        if not self.url.startswith(("amqp://", "amqps://")):
            raise InvalidArgumentError("the url of a broker begins with amqp:// or amqps://")
        try:
            return pika.URLParameters(self.url)
        except (ValueError, TypeError) as error:
            # Not with the error's text, which may hold the password.
            raise InvalidArgumentError("the url of the broker can't be read") from error

    def _refusal(self, error: BaseException) -> PipelineError:
        return PipelineError(f"{self.describe()}: {_text(error)}", hint=_HINTS.get(type(error).__name__))


class UnroutableError(Exception):
    """The broker has no queue for a message."""


class NackedError(Exception):
    """The broker could not take a message."""


_HINTS: Final = {
    "ProbableAuthenticationError": "The url has the name and the password: amqp://name:password@host/vhost.",
    "ProbableAccessDeniedError": "The url ends with the virtual host; / is written %2F.",
    "ChannelClosedByBroker": "Make the queue or exchange first, durable, as your consumers want it.",
    "UnroutableError": "No queue is bound to the exchange for this routing key.",
}


class _Session:
    """One connection: sends waiting messages, and requeues those that were not confirmed when it ended."""

    def __init__(self, broker: AmqpBroker, parameters: pika.URLParameters, waiting: deque[Sending]) -> None:
        self._broker = broker
        self._parameters = parameters
        self._waiting = waiting
        self._flying: dict[int, Sending] = {}
        self._tag = 0
        self._channel: Any = None
        self._connection: Any = None
        self._failure: BaseException | None = None

    def run(self) -> BaseException | None:
        """Send until all is confirmed or something fails; give what failed."""
        import pika

        self._connection = pika.SelectConnection(
            self._parameters,
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._opened),
            on_open_error_callback=lambda _, error: self._ended(error),
            on_close_callback=lambda _, reason: self._ended(reason),
        )
        self._connection.ioloop.start()
        self._connection.ioloop.close()
        self._waiting.extendleft(reversed(self._flying.values()))
        return self._failure if self._waiting else None

    def _opened(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(lambda _, reason: self._stop(reason))
        channel.add_on_return_callback(self._returned)
        channel.confirm_delivery(self._confirmed, callback=lambda _: self._send())

    def _send(self) -> None:
        if self._failure is not None:
            return
        while self._waiting and len(self._flying) < WINDOW:
            payload, properties = self._waiting.popleft()
            self._tag += 1
            self._flying[self._tag] = (payload, properties)
            self._channel.basic_publish(
                self._broker.exchange, self._broker.routing_key, payload, properties, mandatory=True
            )
        if not self._waiting and not self._flying and self._connection.is_open:
            self._connection.close()

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        if method.NAME == "Basic.Nack":
            self._stop(NackedError("the broker could not take a message"))
            return
        # A return comes before the confirmation of the same message: it was not delivered.
        if self._failure is not None:
            return
        if method.multiple:
            for tag in [tag for tag in self._flying if tag <= method.delivery_tag]:
                del self._flying[tag]
        else:
            del self._flying[method.delivery_tag]
        self._send()

    def _returned(self, _channel: Any, method: Any, properties: Any, _body: bytes) -> None:
        self._stop(UnroutableError(f"message {properties.message_id} came back: {method.reply_text}"))

    def _stop(self, reason: BaseException) -> None:
        if self._failure is None:
            self._failure = reason
        if self._connection.is_open:
            self._connection.close()

    def _ended(self, reason: BaseException) -> None:
        if self._failure is None:
            self._failure = reason
        self._connection.ioloop.stop()


def properties_of(message: Outgoing) -> pika.BasicProperties:
    """Return a message's properties: persistent, with the same message_id at every delivery.

    Raises PipelineError, with the message's id, for headers that AMQP can't carry.
    """
    import pika

    headers = {name: _amqp_value(value) for name, value in message.own_headers().items()}
    properties = pika.BasicProperties(
        content_type="application/json",
        delivery_mode=2,
        message_id=message.mark,
        timestamp=int(message.enqueued_at.timestamp()),
        headers={
            **headers,
            QUEUE_HEADER: message.queue,
            ID_HEADER: message.message_id,
            ATTEMPT_HEADER: message.attempt,
        },
    )
    try:
        properties.encode()
    except (pika.exceptions.AMQPError, TypeError, ValueError, struct.error) as error:
        raise message.refusal(str(error) or type(error).__name__) from error
    return properties


def _amqp_value(value: Any) -> Any:
    """Return a header's value with an AMQP type; a number without one as a string."""
    if isinstance(value, dict):
        return {name: _amqp_value(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_amqp_value(each) for each in value]
    if isinstance(value, Number):
        is_integer = len(value) < 20 and value.removeprefix("-").isdecimal()
        return int(value) if is_integer and -_INTEGER_MAX <= int(value) < _INTEGER_MAX else str(value)
    return value


def _may_pass(error: BaseException) -> bool:
    """Return whether to retry: not after a refusal by the broker."""
    from pika import exceptions

    if isinstance(error, exceptions.ConnectionClosedByBroker):
        return error.reply_code in _GOING_AWAY
    refusals = (
        UnroutableError,
        exceptions.ChannelClosedByBroker,
        exceptions.ProbableAuthenticationError,
        exceptions.ProbableAccessDeniedError,
    )
    return not isinstance(error, refusals)


def _text(error: BaseException) -> str:
    """Return the message of the original cause, from the broker or the system."""
    causes = getattr(error, "exceptions", ()) or [
        each for each in (*error.args, getattr(error, "exception", None)) if isinstance(each, BaseException)
    ]
    if causes:
        return _text(causes[-1])
    if len(error.args) == 2 and isinstance(error.args[0], int):
        return f"{error.args[1]} ({error.args[0]})"
    return str(error) or type(error).__name__


def _host_of(parameters: pika.URLParameters) -> str:
    return "" if parameters.virtual_host == "/" else f" {parameters.virtual_host}"
