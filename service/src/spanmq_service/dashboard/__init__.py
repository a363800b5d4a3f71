"""Pages for people: how queues are, and what became of a message. `spanmq serve` shows them."""

from spanmq_service.dashboard.app import pages

__all__ = ["pages"]
