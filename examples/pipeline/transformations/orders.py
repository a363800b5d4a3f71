"""Orders out of a queue, each once; and what each customer has ordered."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table
def orders() -> DataFrame:
    queue = spark.readStream.format("spanmq").option("queue", "orders")
    received = queue.option("bodySchema", "customer string, amount double").load()
    return received.selectExpr("message_id", "enqueued_at", "body.customer", "body.amount")


@dp.materialized_view
def customers() -> DataFrame:
    return spark.read.table("orders").groupBy("customer").agg({"amount": "sum", "message_id": "count"})
