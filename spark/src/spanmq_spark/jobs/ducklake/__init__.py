"""A lake whose catalogue is tables of the database of the queues, as DuckLake specifies it."""
