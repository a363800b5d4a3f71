"""Orders out of a queue, each once; and what each customer has ordered."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from spanmq_spark.bodies import parse_bodies

spark = SparkSession.active()


@dp.table
def orders() -> DataFrame:
    queue = spark.readStream.format("spanmq").option("queue", "orders").load()
    received = parse_bodies(queue, "customer string, amount double")
    return received.selectExpr("message_id", "enqueued_at", "body.customer", "body.amount")


@dp.materialized_view
def customers() -> DataFrame:
    return spark.read.table("orders").groupBy("customer").agg({"amount": "sum", "message_id": "count"})
