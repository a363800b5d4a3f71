"""Settings that make no sense."""

from pathlib import Path

import pytest
from tests.cli.program import spanmq

from spanmq.errors import InvalidArgumentError
from spanmq_service.settings import Settings


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tls_certificate": Path("/no/such/file")}, "this file does not exist"),
        ({"tls_key": Path("/no/such/file")}, "requires its certificate"),
        ({"host": "0.0.0.0", "with_tokens": False}, "without tokens"),
        ({"port": 70_000}, "is not a valid port"),
        ({"pool_size": 0}, "pool_size"),
    ],
)
def test_bad_setting_is_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        Settings(dsn="postgresql://u:hunter2@h/d", **options)  # type: ignore[arg-type]
    assert "hunter2" not in repr(Settings(dsn="postgresql://u:hunter2@h/d"))


def test_bad_setting_ends_the_command_with_a_sentence(orders: str) -> None:
    done = spanmq("serve", "--without-tokens", "--host", "0.0.0.0", dsn=orders)
    assert done.code == 1
    assert done.err.startswith("spanmq: invalid argument: a service without tokens can't listen on '0.0.0.0'")
