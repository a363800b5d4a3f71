"""Sends each message of a queue to an endpoint, as a signed webhook. See docs/guides/push.md."""

from spanmq.push.endpoint import Endpoint
from spanmq.push.worker import push_worker

__all__ = ["Endpoint", "push_worker"]
