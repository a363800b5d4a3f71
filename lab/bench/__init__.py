"""The benchmark: upstream PGMQ, PGMQ's calls on spanmq, and spanmq's own calls, in turn on one server."""
