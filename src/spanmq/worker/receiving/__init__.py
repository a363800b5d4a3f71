"""Which queues a worker receives from, and its receives and polls."""
