"""The demo and the load simulator of spanmq."""
