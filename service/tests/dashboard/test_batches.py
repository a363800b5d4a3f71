"""The page of batches."""

import re

from service.tests.dashboard.conftest import Person
from tests.cli.program import wait_until

from spanmq.client import Client


def test_batches_are_shown_with_their_counts(keeper: Person, filled: str) -> None:
    with Client(filled) as client:
        ids = client.send_batch("invoices", [1, 2])
        first = client.batches.create("orders", {"report": 1}, {"invoices": ids})
        client.delete("invoices", ids[0])
        second = client.batches.create("mail", {"report": 2}, {"invoices": ids[:1]})

        def has_ended() -> bool:
            client.admin.maintain()
            return client.batches.list()[0].ended_at is not None

        # The service's housekeeping may be at it at this moment: then this one does nothing.
        wait_until(has_ended)
    text = keeper.get("/batches").text
    assert re.findall(r'rowheader">(\d+)<', text)[:2] == [str(second), str(first)]
    counts = re.findall(r'data-label="(?:Messages|Not settled|Done|Dead)">([^<]+)<', text)
    assert counts[:6] == ["1", "0", "1", "0", "2", "1"]
    assert str(second) not in re.findall(r'rowheader">(\d+)<', keeper.get("/batches", before=second).text)
