"""The command line for spark-submit: `spark-submit … spark_job.py pipeline export orders --to /lake`."""

from spanmq.cli import main

main()
