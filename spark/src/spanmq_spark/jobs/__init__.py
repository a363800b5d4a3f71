"""The jobs of the pipeline: small programs over Spark, each safe to kill and to run again."""
