"""Two ways to run the pipeline's jobs from Airflow 3: a command on the worker's machine, or spark-submit.

The database's address has no password: libpq takes that from the file that PGPASSFILE names.
"""

from datetime import datetime, timedelta

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

ENVIRONMENT = {
    "SPANMQ_DSN": "postgresql://spanmq@db.example/orders",
    "PGPASSFILE": "/run/secrets/pgpass",
}

with DAG(
    dag_id="spanmq_orders",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    # One export at a time writes into a lake, and a run that was killed is simply run again.
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=5)},
):
    # Spark runs within this command, on this machine.
    export = BashOperator(
        task_id="export",
        bash_command="/opt/spanmq/bin/spanmq pipeline export orders --to /data/lake --json",
        env=ENVIRONMENT,
        append_env=True,
    )
    # On the cluster of the connection `spark_default`, whose machines have the environment at the same path.
    causes = SparkSubmitOperator(
        task_id="causes",
        application="/opt/spanmq/spark_job.py",
        application_args=["pipeline", "dead-letters", "orders"],
        conn_id="spark_default",
        env_vars={**ENVIRONMENT, "PYSPARK_PYTHON": "/opt/spanmq/bin/python"},
    )
    _ = export >> causes
