"""Workers against each other: no-op handlers, 250-byte bodies, one process each, one server."""
