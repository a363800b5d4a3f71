"""The handlers of a worker: their slots, limits and ends."""
