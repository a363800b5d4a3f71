"""The leases of a worker, and the settlement of its messages."""
