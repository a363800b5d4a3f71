"""The fixtures of service/tests/sqs; pytest finds those of service/tests itself."""

from service.tests.sqs.conftest import key, keyed

__all__ = ["key", "keyed"]
