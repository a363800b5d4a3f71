"""docs/guides/tracing.md: its programs run, and it names what is traced."""

import psycopg
import pytest
from opentelemetry import trace
from tests.documented import DOCS, programs, run_programs
from tests.recorded import FOREIGN, Recorded

from spanmq.client import Client

PAGE = (DOCS / "guides/tracing.md").read_text("utf-8")


def test_programs_run(
    client: Client,
    database: str,
    recorded: Recorded,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with psycopg.connect(database) as connection:
        for statement in programs("guides/tracing", "sql"):
            connection.execute(statement.encode())
    [message] = client.receive("orders")
    assert message.headers == {"traceparent": FOREIGN}
    client.ack(message)
    # The program's own provider would be the last one of this process.
    monkeypatch.setattr(trace, "set_tracer_provider", lambda provider: provider.shutdown())
    run_programs("guides/tracing", {"dsn": database})
    assert capsys.readouterr().out == "{'order': 17}\n"
    named = {span.name for span in recorded.exporter.get_finished_spans()}
    assert named == {"send orders", "receive orders", "process orders"}
    assert {name for name in named if f"`{name}`" not in PAGE} == set()
    for span in recorded.exporter.get_finished_spans():
        assert {name for name in span.attributes or {} if f"`{name}`" not in PAGE} == set()
