"""The description of the routes, and requests made of it."""

from __future__ import annotations

from tests.service.route_table import APP, ROUTES
from tests.service.running import Running


def test_every_route_is_described_and_has_the_shape_of_errors() -> None:
    paths = APP.openapi()["paths"]
    for route in ROUTES:
        described = paths[route.path][route.method.lower()]
        assert described["summary"]
        assert described["description"], route
        for status in ("400", "401", "403", "404", "429", "503"):
            shape = described["responses"][status]["content"]["application/json"]["schema"]["$ref"]
            assert shape.endswith("/Failed")


def test_names_of_operations_are_unique() -> None:
    names = [route.name for route in ROUTES]
    assert [name for name in names if names.count(name) > 1] == []


def test_page_of_the_description_needs_no_token_and_says_no_secret(shared: Running) -> None:
    with shared.client() as client:
        assert client.get("/docs").status_code == 200
        assert client.get("/openapi.json").json()["info"]["title"] == "spanmq"
