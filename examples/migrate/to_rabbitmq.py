"""Sends messages to a durable queue of RabbitMQ: needs `pip install pika`, also on executors.

AMQP_URL=amqp://name:password@host/vhost AMQP_QUEUE=orders \
    spanmq pipeline migrate orders --to to_rabbitmq:send --checkpoint orders-to-rabbitmq
"""

import json
import os
from collections.abc import Iterator

import pika
from pyspark.sql import DataFrame, Row

from spanmq.errors import PipelineError


def send(messages: DataFrame, _: int) -> None:
    """Send a batch, one connection for each partition."""
    url, queue = os.environ["AMQP_URL"], os.environ["AMQP_QUEUE"]
    messages.foreachPartition(lambda rows: publish(url, queue, rows))


def publish(url: str, queue: str, rows: Iterator[Row]) -> None:
    """Send these in order; RabbitMQ has confirmed each before the next is sent."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for row in rows:
            try:
                properties = pika.BasicProperties(
                    content_type="application/json",
                    delivery_mode=pika.DeliveryMode.Persistent,
                    # The same at every delivery, so that a consumer can drop the second one.
                    message_id=f"{row.queue}:{row.message_id}",
                    headers=json.loads(row.headers or "{}"),
                )
                body = (row.body or "null").encode()
                channel.basic_publish("", queue, body, properties, mandatory=True)
            except Exception as error:
                raise PipelineError(
                    f"message {row.message_id} was not sent: {error!r}",
                    hint=f"`spanmq receiver reject {row.queue} migrate {row.message_id} --error …` skips it.",
                ) from error
