"""A message queue inside PostgreSQL, as a log and spans, with PGMQ's interface."""

__version__ = "0.1.0"
