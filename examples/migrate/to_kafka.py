"""Sends messages to a topic of Kafka by Spark's own sink: the group is the key, so each group stays in order.

KAFKA_SERVERS=host:9092 KAFKA_TOPIC=orders \
PYSPARK_SUBMIT_ARGS='--packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0 pyspark-shell' \
    spanmq pipeline migrate orders --to to_kafka:send --checkpoint orders-to-kafka
"""

import os

from pyspark.sql import DataFrame

# A message that is sent twice has the same id, so that a consumer can drop the second one.
ID = "struct('x-spanmq-message-id' as key, encode(concat(queue, ':', message_id), 'UTF-8') as value)"
HEADERS = "struct('x-spanmq-headers' as key, encode(headers, 'UTF-8') as value)"


def send(messages: DataFrame, _: int) -> None:
    """Send a batch; all replicas in step have confirmed it at the end."""
    columns = ("`group` as key", "body as value", f"array({ID}, {HEADERS}) as headers")
    messages.selectExpr(*columns).write.format("kafka").options(
        **{
            "kafka.bootstrap.servers": os.environ["KAFKA_SERVERS"],
            "kafka.acks": "all",
            "kafka.enable.idempotence": "true",
            "topic": os.environ["KAFKA_TOPIC"],
            "includeHeaders": "true",
        }
    ).mode("append").save()
