"""Every program works again, without a restart, whatever happens to its server: nothing is lost or doubled."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.patience import wait_until
from tests.process.failover.scene import Scene, scene

READY = "/health/ready"
# With the default limits, of which the longest is 35 s. It takes 8 on a quiet machine.
SILENCE_SECONDS = 25.0


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """The scene of all tests here, in their order: each begins and ends with the first server writable alone."""
    with scene(Path(tmp_path_factory.mktemp("failover"))) as opened:
        opened.programs.work_at(opened.first)
        yield opened
        assert opened.faults() == []


def swap(to_writable: object, *, scene: Scene) -> None:
    for place in (scene.first, scene.second):
        if place is not to_writable:
            place.set("default_transaction_read_only", "on")
    for place in (scene.first, scene.second):
        if place is to_writable:
            place.set("default_transaction_read_only", "off")


def test_programs_follow_the_writable_server(both: Scene) -> None:
    for place in (both.second, both.first):
        swap(place, scene=both)
        both.programs.work_at(place)


def test_service_is_not_ready_while_every_server_is_read_only(both: Scene) -> None:
    swap(None, scene=both)
    http = both.programs.http
    wait_until(lambda: http.get(READY).status_code == 503)
    assert http.post("/v1/queues/calls/messages", json={"body": 1}).status_code == 503
    assert http.get("/health/live").status_code == 200
    swap(both.first, scene=both)
    both.programs.work_at(both.first)


def test_programs_leave_a_peer_that_acknowledges_and_never_answers(both: Scene) -> None:
    both.first.proxy.set("stall")
    swap(both.second, scene=both)
    began_at = time.monotonic()
    both.programs.work_at(both.second)
    assert time.monotonic() - began_at < SILENCE_SECONDS
    swap(both.first, scene=both)
    both.first.proxy.set("pass")
    both.programs.work_at(both.first)


def test_programs_leave_connections_that_a_proxy_has_forgotten(both: Scene) -> None:
    both.first.proxy.set("stall")
    # New connections pass, and reach the server that these have.
    both.first.proxy.set("pass")
    began_at = time.monotonic()
    both.programs.work_at(both.first)
    assert time.monotonic() - began_at < SILENCE_SECONDS


def test_requests_and_probes_end_while_no_server_answers(both: Scene) -> None:
    for place in (both.first, both.second):
        place.proxy.set("stall")
    http = both.programs.http
    assert http.get(READY).status_code == 503
    assert http.post("/v1/queues/calls/messages", json={"body": 1}).status_code == 503
    assert http.get(READY).status_code == 503
    for place in (both.first, both.second):
        place.proxy.set("pass")
    both.programs.work_at(both.first)


def test_programs_outlive_the_end_of_all_their_sessions(both: Scene) -> None:
    both.first.end_sessions()
    both.programs.work_at(both.first)


@pytest.mark.parametrize("level", ["repeatable read", "serializable", "read committed"])
def test_default_isolation_level_of_the_server_does_not_matter(both: Scene, level: str) -> None:
    both.first.set("default_transaction_isolation", f"'{level}'")
    both.first.end_sessions()
    both.programs.work_at(both.first)


def test_programs_outlive_a_crash_and_the_stop_of_their_server(both: Scene) -> None:
    both.first.server.kill()
    both.first.server.restart()
    both.programs.work_at(both.first)
    both.first.server.restart()
    both.programs.work_at(both.first)
