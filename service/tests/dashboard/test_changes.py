"""What was done through pages and service is on the page of changes, with the token."""

from service.tests.dashboard.conftest import Person, rows


def test_changes_by_pages_and_service_are_shown(keeper: Person, filled: str) -> None:
    keeper.post("/queue/pause?queue=orders", "/queue?queue=orders")
    done = keeper.http.post("/v1/queues/orders/resume", headers={"accept": "application/json"})
    assert done.status_code == 200, done.text
    found = rows(filled, "select action, actor from spanmq.list_changes('orders') limit 2")
    assert found == [("resume", "service"), ("pause", "dashboard")]
    for path in ("/changes", "/queue/changes?queue=orders"):
        page = keeper.get(path).text
        assert ">pause</code>" in page
        assert ">dashboard<" in page
