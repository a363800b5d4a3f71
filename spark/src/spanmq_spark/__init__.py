"""The pipeline on Spark: the data source `spanmq` and the jobs over it. Needs the extra `spark`."""
