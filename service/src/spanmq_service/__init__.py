"""The HTTP service: queues for callers without credentials of the database. `spanmq serve` runs it."""
