"""The asynchronous client: the source of `_sync`."""
